/** A TCP proxy between a manager and its server, with faults on demand. */

import { createServer, connect as dial, type Server, type Socket } from 'node:net';

export class FaultProxy {
  readonly #server: Server;
  readonly #pairs = new Set<{ client: Socket; upstream: Socket }>();
  /** Forward requests, drop replies. */
  loseReplies = false;
  /** Forward nothing, keep everything open. */
  blackhole = false;
  /** Close every new connection at once. */
  refuse = false;
  /** Reset a connection as soon as it has forwarded this many replies of the server. */
  cutAfterReplies = Number.POSITIVE_INFINITY;
  /** How long every reply is held back, in ms. */
  delayMs = 0;
  /** Bytes of requests that were forwarded. */
  requestBytes = 0;
  /** How many connections were accepted so far. */
  accepted = 0;
  /** How many connections were reset by the manager. */
  resets = 0;
  /** Called with every chunk of requests before it is forwarded. */
  onRequest: ((chunk: Buffer) => void) | undefined;

  private constructor(readonly upstreamPort: number) {
    this.#server = createServer((client) => this.#accept(client));
  }

  static async start(upstreamPort: number): Promise<FaultProxy> {
    const proxy = new FaultProxy(upstreamPort);
    await new Promise<void>((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get port(): number {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('not listening');
    return address.port;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** How many connections are open. */
  get open(): number {
    return this.#pairs.size;
  }

  /** Resets every connection. */
  cut(): void {
    for (const { client, upstream } of this.#pairs) {
      reset(client);
      upstream.destroy();
    }
    this.#pairs.clear();
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #accept(client: Socket): void {
    this.accepted += 1;
    if (this.refuse) {
      reset(client);
      return;
    }
    const upstream = dial(this.upstreamPort, '127.0.0.1');
    const pair = { client, upstream };
    this.#pairs.add(pair);
    client.on('data', (chunk) => {
      if (this.blackhole) return;
      this.requestBytes += chunk.length;
      this.onRequest?.(chunk);
      upstream.write(chunk);
    });
    client.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNRESET') this.resets += 1;
    });
    let replies = 0;
    const reply = (chunk: Buffer) => {
      replies += 1;
      if (replies >= this.cutAfterReplies) client.end(chunk);
      else client.write(chunk);
    };
    upstream.on('data', (chunk) => {
      if (this.loseReplies || this.blackhole) return;
      if (this.delayMs === 0) reply(chunk);
      else setTimeout(reply, this.delayMs, chunk);
    });
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      socket.on('error', () => {});
      socket.on('close', () => {
        other.destroy();
        this.#pairs.delete(pair);
      });
    }
  }
}

/**
 * Resets a connection. Node (20.20 at least) never ends a process in which a socket was reset that was
 * shutting down already: its clean-up waits for a handle that nobody closes.
 */
function reset(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}
