/** A page that is open: server-sent events, at the pace of its reader. */

/** A silent connection is cut by some proxies after half a minute. */
const HEARTBEAT_MS = 15_000;
/** A page that has taken nothing for longer than so many heartbeats has gone, or hangs. */
const UNREAD_BEATS_MAX = 2;

const encoder = new TextEncoder();

/** Gets the end of a stream. @internal */
interface StreamListener {
  /** The page must get the whole state. */
  catchUp(): void;
  /** The page has gone, or was closed. */
  closed(): void;
}

/** A stream of events to one page. It keeps no event for a reader that does not wait for one. @internal */
export class Stream {
  /** The body of the answer. */
  readonly body: ReadableStream<Uint8Array>;
  readonly #heartbeat: NodeJS.Timeout;
  readonly #listener: StreamListener;
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  /** The reader waits for the next event. */
  #wanted = false;
  /** The reader is slower than the changes: it gets the whole state when it waits again. */
  #behind = false;
  #over = false;
  /** The heartbeats since the reader waited. */
  #unread = 0;

  /** `hello` is the first event. */
  constructor(hello: string, listener: StreamListener) {
    this.#listener = listener;
    this.body = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller;
          controller.enqueue(encoder.encode(eventOf('hello', hello)));
        },
        pull: () => this.#wants(),
        cancel: () => this.#end(() => {}),
      },
      { highWaterMark: 0 },
    );
    this.#heartbeat = setInterval(() => this.#beat(), HEARTBEAT_MS).unref();
  }

  /** Sends an event, unless the reader has not yet taken what was sent before. */
  send(event: string, json: string): void {
    if (this.#wanted) this.#write(eventOf(event, json));
    else this.#behind = true;
  }

  close(): void {
    this.#end(() => this.#controller.close());
  }

  #wants(): void {
    this.#wanted = true;
    this.#unread = 0;
    if (!this.#behind) return;
    this.#behind = false;
    this.#listener.catchUp();
  }

  /** A browser whose stream was ended opens another one. */
  #beat(): void {
    if (this.#wanted) this.#write(':\n\n');
    else this.#unread += 1;
    if (this.#unread <= UNREAD_BEATS_MAX) return;
    this.#end(() => this.#controller.error(new Error('the page does not read')));
  }

  #write(text: string): void {
    this.#wanted = false;
    this.#controller.enqueue(encoder.encode(text));
  }

  #end(finish: () => void): void {
    if (this.#over) return;
    this.#over = true;
    this.#wanted = false;
    clearInterval(this.#heartbeat);
    finish();
    this.#listener.closed();
  }
}

function eventOf(event: string, json: string): string {
  return `event: ${event}\ndata: ${json}\n\n`;
}
