/** A page that is open: server-sent events, at the pace of its reader. */

import type { ServerResponse } from 'node:http';

/** A silent connection is cut by some proxies after half a minute. */
const HEARTBEAT_MS = 15_000;
/** A page that has not taken what was sent to it for longer than so many heartbeats has gone, or hangs. */
const UNREAD_BEATS_MAX = 2;

/** A stream of events to one page. @internal */
export class Stream {
  readonly #response: ServerResponse;
  readonly #heartbeat: NodeJS.Timeout;
  /** The reader is slower than the changes: it gets the whole state when it has read what is on its way. */
  #behind = false;
  #full = false;
  /** The heartbeats since the reader took all that was sent to it. */
  #unread = 0;

  /** `catchUp` is called when the page must get the whole state; `closed` when the page has gone. */
  constructor(response: ServerResponse, catchUp: () => void, closed: () => void) {
    this.#response = response;
    response.writeHead(200, { 'Content-Type': 'text/event-stream; charset=utf-8' });
    response.on('drain', () => {
      this.#full = false;
      this.#unread = 0;
      if (!this.#behind) return;
      this.#behind = false;
      catchUp();
    });
    response.on('close', () => {
      clearInterval(this.#heartbeat);
      closed();
    });
    // A reader that reset its connection; 'close' follows.
    response.on('error', () => {});
    this.#heartbeat = setInterval(() => this.#beat(), HEARTBEAT_MS).unref();
  }

  /** Sends an event, unless the reader has not yet taken what was sent before. */
  send(event: string, json: string): void {
    if (this.#full) this.#behind = true;
    else this.#write(`event: ${event}\ndata: ${json}\n\n`);
  }

  close(): void {
    this.#response.end();
  }

  /** A browser whose stream was ended opens another one. */
  #beat(): void {
    if (this.#full) this.#unread += 1;
    else this.#write(':\n\n');
    if (this.#unread > UNREAD_BEATS_MAX) this.#response.destroy();
  }

  #write(text: string): void {
    if (!this.#response.write(text)) this.#full = true;
  }
}
