/**
 * A TCP proxy that knows where requests and answers begin and end, and lets one request, by its number, meet a
 * fate: it is not executed, its answer does not come, its connection breaks, or something happens in between.
 */

import {
  type AddressInfo,
  createServer,
  connect as dial,
  type Server,
  type Socket,
} from 'node:net';
import { reset } from './sockets.js';
import { until } from './wait.js';
import type { Protocol, RequestFrame } from './wire-protocols.js';

/** What becomes of one request, and of the connection that it came by. */
export interface Fate {
  /** Whether the server gets the request. Nothing that follows it on its connection reaches the server. */
  readonly executed: boolean;
  /** Whether the client gets the answer. */
  readonly answered: boolean;
  /**
   * What becomes of the connection: it goes on, nothing passes any more, it is reset, or closed in good
   * order. With `goes on` the requests that follow are executed too.
   */
  readonly connection: 'goes on' | 'silence' | 'reset' | 'close';
  /** Whether the server is out of reach from then on, until `restore`. */
  readonly away?: boolean;
  /** Called when the server has answered, before the answer is passed on. */
  readonly before?: () => void;
  /** Called when the answer has been passed on. */
  readonly after?: () => void;
}

interface Line {
  readonly client: Socket;
  readonly server: Socket;
  /** The requests that have no answer yet: their numbers, 0 for those that do not count. */
  readonly open: number[];
  /** No request passes any more. */
  deaf: boolean;
  /** No answer passes any more. */
  mute: boolean;
}

export class Wire {
  readonly #server: Server;
  readonly #lines = new Set<Line>();
  #fated = 0;
  #fate: Fate | undefined;
  #away = false;
  /** A request that meets its fate after `restore` only loses its connection: nobody would restore the server again. */
  #restored = false;
  /** When the last request that counts has come. */
  #lastAt = 0;
  /** The requests so far that count, as people read them. */
  readonly requests: string[] = [];
  /** Whether the request has met its fate. */
  met = false;

  private constructor(
    readonly upstream: number,
    readonly protocol: Protocol,
  ) {
    this.#server = createServer((client) => this.#accept(client));
  }

  /** Starts one on a free port, in front of the server at a port of this machine. */
  static async start(upstream: number, protocol: Protocol): Promise<Wire> {
    const wire = new Wire(upstream, protocol);
    await new Promise<void>((resolve, reject) => {
      wire.#server.once('error', reject);
      wire.#server.listen(0, '127.0.0.1', resolve);
    });
    return wire;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Lets a request meet a fate; the first that counts has the number 1. */
  at(request: number, fate: Fate): void {
    this.#fated = request;
    this.#fate = fate;
  }

  /** Waits until the request has met its fate, or `ended` says that it never will. */
  async untilMet(ended: () => boolean): Promise<void> {
    await until(() => this.met || ended(), `request ${this.#fated}`);
  }

  /** Makes the server reachable again. */
  restore(): void {
    this.#away = false;
    this.#restored = true;
    this.#lastAt = performance.now();
  }

  /** Waits until no request that counts has come for so many ms. */
  async untilQuiet(ms: number): Promise<void> {
    await until(() => performance.now() - this.#lastAt > ms, 'the end of requests');
  }

  async stop(): Promise<void> {
    for (const { client, server } of this.#lines) {
      client.destroy();
      server.destroy();
    }
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #accept(client: Socket): void {
    client.on('error', () => {});
    if (this.#away) {
      reset(client);
      return;
    }
    const server = dial(this.upstream, '127.0.0.1');
    server.on('error', () => {});
    const line: Line = { client, server, open: [], deaf: false, mute: false };
    this.#lines.add(line);
    const end = () => {
      client.destroy();
      server.destroy();
      this.#lines.delete(line);
    };
    client.on('close', end);
    server.on('close', end);
    const reader = this.protocol();
    frames(client, (bytes) => {
      const frame = reader.request(bytes);
      if (frame === undefined) return 0;
      this.#request(line, frame, bytes.subarray(0, frame.length));
      return frame.length;
    });
    frames(server, (bytes) => {
      const frame = reader.reply(bytes);
      if (frame === undefined) return 0;
      this.#reply(line, frame.ends, bytes.subarray(0, frame.length));
      return frame.length;
    });
  }

  #request(line: Line, { text, answers }: RequestFrame, bytes: Buffer): void {
    if (line.deaf) return;
    let number = 0;
    if (text !== undefined) {
      number = this.requests.push(text);
      this.#lastAt = performance.now();
    }
    const fate = number > 0 && number === this.#fated ? this.#fate : undefined;
    if (fate !== undefined) {
      line.deaf = fate.connection !== 'goes on';
      if (!fate.executed) {
        this.met = true;
        this.#part(line, fate);
        return;
      }
    }
    if (answers) line.open.push(number);
    line.server.write(bytes);
  }

  #reply(line: Line, ends: boolean, bytes: Buffer): void {
    const fated = line.open[0] === this.#fated && !this.met && this.#fated > 0;
    if (ends) line.open.shift();
    const fate = fated ? this.#fate : undefined;
    if (fate !== undefined && !fate.answered) line.mute = true;
    if (fate !== undefined && ends) fate.before?.();
    if (!line.mute) line.client.write(bytes);
    if (fate === undefined || !ends) return;
    this.met = true;
    fate.after?.();
    this.#part(line, fate);
  }

  #part(line: Line, { connection, away }: Fate): void {
    if (away === true && !this.#restored) {
      this.#away = true;
      for (const each of this.#lines) reset(each.client);
    } else if (connection === 'reset') reset(line.client);
    else if (connection === 'close') line.client.end();
  }
}

/** Cuts what a socket receives into frames. `take` answers the length of the first, 0 if it is not whole. */
export function frames(socket: Socket, take: (bytes: Buffer) => number): void {
  let rest: Buffer = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    for (let length = take(rest); length > 0; length = rest.length > 0 ? take(rest) : 0) {
      rest = rest.subarray(length);
    }
  });
}
