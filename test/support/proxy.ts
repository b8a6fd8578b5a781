/** A TCP proxy between a server and its clients, with faults on demand. */

import { once } from 'node:events';
import {
  type AddressInfo,
  createServer,
  connect as dial,
  type Server,
  type Socket,
} from 'node:net';
import { reset } from './sockets.js';

/** A connection and its other half. */
interface Pair {
  readonly client: Socket;
  readonly upstream: Socket;
  /** Whether it began with HELLO; unknown until its first request. */
  greets?: boolean;
  /** Whether it asked for a shard channel. */
  listens?: boolean;
  /** Whether it asked for another channel. */
  subscribes?: boolean;
  /** Requests that are held back, while that is wanted; then forwarded also if the client is gone. */
  held?: Buffer[] | undefined;
  /** Forward nothing more, keep it open. */
  silent?: boolean;
  /** Requests that wait for their time, and since when; while requests are paced. */
  paced?: { chunks: Buffer[]; since: number; timer: NodeJS.Timeout } | undefined;
}

export class FaultProxy {
  readonly #server: Server;
  readonly #pairs = new Set<Pair>();
  #left: { host: string; port: number } | undefined;
  /** Forward requests, drop replies. */
  loseReplies = false;
  /** Forward nothing, keep everything open. */
  blackhole = false;
  /** Reset every new connection at once. */
  refuse = false;
  /** Close every new connection at once. */
  hangsUp = false;
  /** Reset a connection as soon as it has forwarded this many replies of the server. */
  cutAfterReplies = Number.POSITIVE_INFINITY;
  /** How many bytes of requests a connection forwards in a second: the server seems to be slow. */
  bytesPerSecond = Number.POSITIVE_INFINITY;
  /** How long every reply is held back, in ms. */
  delayMs = 0;
  /** The faults affect servers and Sentinels alone, not connections that begin with HELLO, as clients do. */
  sparesClients = false;
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

  /** Starts one on a free port of 127.0.0.1, or at another address. */
  static async start(upstreamPort: number, { host = '127.0.0.1', port = 0 } = {}) {
    const proxy = new FaultProxy(upstreamPort);
    await new Promise<void>((resolve, reject) => {
      proxy.#server.once('error', reject);
      proxy.#server.listen(port, host, resolve);
    });
    return proxy;
  }

  get port(): number {
    return this.#address.port;
  }

  get #address(): AddressInfo {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('not listening');
    return address;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** How many connections are open. */
  get open(): number {
    return this.#pairs.size;
  }

  /** Resets every connection that is not spared. */
  cut(): void {
    for (const pair of this.#pairs) {
      if (this.#spares(pair)) continue;
      reset(pair.client);
      pair.upstream.destroy();
      this.#pairs.delete(pair);
    }
  }

  /** Closes every connection in good order, as a server does that is shut down. */
  hangUp(): void {
    for (const pair of this.#pairs) pair.client.end();
  }

  /** Resets every connection, and listens no more: new ones are refused by the system. */
  async leave(): Promise<void> {
    this.#left = { host: this.#address.address, port: this.port };
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.cut();
    await closed;
  }

  /** Listens again where it was. */
  async comeBack(): Promise<void> {
    this.#server.listen(this.#left);
    await once(this.#server, 'listening');
  }

  /** Forgets all connections, as a firewall does: nobody is told. */
  silence(): void {
    for (const pair of this.#pairs) pair.silent = true;
  }

  /** Forgets the connections that listen to shard channels, as a firewall does: nobody is told. */
  silenceListeners(): void {
    for (const pair of this.#pairs) pair.silent = pair.listens === true;
  }

  /** The same for those that listen to other channels. */
  silenceSubscribers(): void {
    for (const pair of this.#pairs) pair.silent = pair.subscribes === true;
  }

  /** Holds all requests of the open connections back from now on, as a slow network does. */
  hold(): void {
    for (const pair of this.#pairs) pair.held ??= [];
  }

  /** Forwards what is held back, also of connections that were given up. How many bytes that were. */
  deliver(): number {
    let bytes = 0;
    for (const pair of this.#pairs) {
      for (const chunk of pair.held ?? []) {
        bytes += chunk.length;
        pair.upstream.write(chunk);
      }
      pair.held = undefined;
      if (pair.client.destroyed) pair.upstream.end();
    }
    return bytes;
  }

  async stop(): Promise<void> {
    this.sparesClients = false;
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** Forwards what comes from now on in its time, until nothing is left. */
  #pace(pair: Pair, first: Buffer): void {
    const timer = setInterval(() => {
      const { paced } = pair;
      if (!paced) return;
      let count = Math.floor((this.bytesPerSecond * (performance.now() - paced.since)) / 1_000);
      while (count > 0 && paced.chunks[0]) {
        const part = paced.chunks[0].subarray(0, count);
        pair.upstream.write(part);
        paced.chunks[0] = paced.chunks[0].subarray(part.length);
        if (paced.chunks[0].length === 0) paced.chunks.shift();
        count -= part.length;
      }
      paced.since = performance.now();
      if (paced.chunks.length > 0) return;
      clearInterval(timer);
      pair.paced = undefined;
    }, 2);
    pair.paced = { chunks: [first], since: performance.now(), timer };
  }

  #spares({ greets }: Pair): boolean {
    return this.sparesClients && greets === true;
  }

  #accept(client: Socket): void {
    this.accepted += 1;
    if (this.refuse) {
      reset(client);
      return;
    }
    if (this.hangsUp) {
      client.destroy();
      return;
    }
    const upstream = dial(this.upstreamPort, '127.0.0.1');
    const pair: Pair = { client, upstream };
    this.#pairs.add(pair);
    client.on('data', (chunk) => {
      pair.greets ??= chunk.includes('HELLO');
      pair.listens ||= chunk.includes('SSUBSCRIBE');
      pair.subscribes ||= chunk.includes('\nSUBSCRIBE');
      if (pair.silent || (this.blackhole && !this.#spares(pair))) return;
      this.requestBytes += chunk.length;
      this.onRequest?.(chunk);
      if (pair.held) pair.held.push(chunk);
      else if (pair.paced) pair.paced.chunks.push(chunk);
      else if (Number.isFinite(this.bytesPerSecond)) this.#pace(pair, chunk);
      else upstream.write(chunk);
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
      const spared = this.#spares(pair);
      if (pair.silent || ((this.loseReplies || this.blackhole) && !spared)) return;
      if (this.delayMs === 0 || spared) reply(chunk);
      else setTimeout(reply, this.delayMs, chunk);
    });
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      socket.on('error', () => {});
      socket.on('close', () => {
        if (socket === client && pair.held) return;
        clearInterval(pair.paced?.timer);
        other.destroy();
        this.#pairs.delete(pair);
      });
    }
  }
}
