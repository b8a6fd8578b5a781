/** Redis servers that tests start themselves, on free loopback ports. */

import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import type { Certified } from './certificates.js';
import { removeFolder } from './folders.js';
import { FaultProxy } from './proxy.js';
import { needs } from './tools.js';
import { until } from './wait.js';

const program = needs('redis');

/** The binary that tests run: `HOLDFAST_REDIS_SERVER`, or a Redis or Valkey on PATH. */
export function serverBinary(): string {
  return program();
}

/** What a node of a Cluster adds to its port for the one on which nodes talk to each other. */
const BUS = 10_000;

/**
 * A port of the loopback interface that nobody listened on a moment ago, nor on the one `above` it.
 * Below those that systems give to clients: while a server is away, a client could get its port, even
 * for dialling it.
 */
export async function freePort(above = 0): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, 32_000 - above);
    if ((await isFree(port)) && (await isFree(port + above))) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const probe = createServer();
  const free = await new Promise<boolean>((resolve) => {
    probe.once('error', () => resolve(false));
    probe.listen(port, '127.0.0.1', () => resolve(true));
  });
  if (free) await new Promise((resolve) => probe.close(resolve));
  return free;
}

export interface ServerOptions {
  /** The binary to run; by default that of `serverBinary`. */
  readonly binary?: string;
  /** Further arguments, such as `--requirepass secret`. */
  readonly args?: readonly string[];
  /** Keep the data over a restart. */
  readonly persistent?: boolean;
  /** Listen on a socket file instead of a port. */
  readonly socket?: boolean;
  /** What clients must show, and what it shows to the primary that it follows. */
  readonly password?: string;
  /** Run as a node of a Cluster. */
  readonly cluster?: boolean;
  /** Run as a Sentinel, with this for a configuration file. */
  readonly sentinel?: string;
  /** Speak TLS and nothing else. */
  readonly tls?: ServerTls;
  /** Name a proxy's port to all others as its own: clients that learn of it from them come through the proxy. */
  readonly proxied?: boolean;
  /** Further variables of its environment. */
  readonly env?: Readonly<Record<string, string>>;
}

export interface ServerTls {
  /** What the server shows. */
  readonly server: Certified;
  /** The CA of it, and of the clients. */
  readonly ca: Certified;
  /** What clients must show, the admin's shows it; by default nothing. */
  readonly client?: Certified;
}

/** What runs now: a test that is ended by a signal takes its servers along. */
const running = new Set<ChildProcess>();

for (const signal of ['SIGHUP', 'SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => process.exit(1));
}
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

export class RedisServer {
  readonly folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
  port = 0;
  #child: ChildProcess | undefined;
  #admin: Redis | undefined;
  #paused = false;
  #proxy: FaultProxy | undefined;

  constructor(readonly options: ServerOptions = {}) {}

  /** Starts a server and waits until it answers. */
  static async start(options: ServerOptions = {}): Promise<RedisServer> {
    const server = new RedisServer(options);
    await server.startOnFreePort();
    return server;
  }

  /** Starts it for the first time, and waits until it answers. */
  async startOnFreePort(): Promise<void> {
    const { cluster, proxied } = this.options;
    for (let attempt = 1; ; attempt++) {
      this.port = await freePort(cluster === true ? BUS : 0);
      if (proxied === true) this.#proxy = await FaultProxy.start(this.port);
      try {
        await this.start();
        return;
      } catch (error) {
        await this.#proxy?.stop();
        // Somebody else may have taken the port meanwhile.
        if (attempt === 3) throw error;
      }
    }
  }

  /** Starts servers that know nothing of each other. If one fails, none is left. */
  static async startSeveral(count: number, options: ServerOptions = {}): Promise<RedisServer[]> {
    const starts = Array.from({ length: count }, () => RedisServer.start(options));
    const results = await Promise.allSettled(starts);
    const started = results.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
    const failed = results.find((each) => each.status === 'rejected');
    if (failed === undefined) return started;
    await Promise.all(started.map((server) => server.stop()));
    throw failed.reason;
  }

  get url(): string {
    if (this.options.socket === true) return `unix://${join(this.folder, 'socket')}`;
    const scheme = this.options.tls === undefined ? 'redis' : 'rediss';
    return `${scheme}://127.0.0.1:${this.port}`;
  }

  /** The port that others know it by. */
  get announced(): number {
    return this.#proxy?.port ?? this.port;
  }

  /** What stands between it and all others, if it was started as `proxied`. */
  get proxy(): FaultProxy {
    if (this.#proxy === undefined) throw new Error(`no proxy in front of port ${this.port}`);
    return this.#proxy;
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** Whether it runs, neither ended nor stopped: then it answers. */
  get running(): boolean {
    const child = this.#child;
    return child !== undefined && running.has(child) && !this.#paused;
  }

  get log(): string {
    const file = join(this.folder, 'log');
    return existsSync(file) ? readFileSync(file, 'utf8') : '';
  }

  /** A client for everything that is not under test. */
  get admin(): Redis {
    this.#admin ??= this.client();
    return this.#admin;
  }

  /** A bare connection to its port. */
  dial(): Socket {
    return connect(this.port, '127.0.0.1');
  }

  client(options: Record<string, unknown> = {}): Redis {
    const where =
      this.options.socket === true
        ? { path: join(this.folder, 'socket') }
        : { port: this.port, host: '127.0.0.1' };
    const { password, tls } = this.options;
    const login = password === undefined ? {} : { password };
    const { cert, key } = tls?.client ?? {};
    const secure = tls === undefined ? {} : { tls: { ca: tls.ca.cert, cert, key } };
    const client = new Redis({ ...where, ...login, ...secure, lazyConnect: false, ...options });
    client.on('error', () => {});
    return client;
  }

  /**
   * Starts the process again on the same port and folder, and waits until it takes commands, or
   * only until it listens.
   */
  async start(extra: readonly string[] = [], ready = this.#ready): Promise<void> {
    const where =
      this.options.socket === true
        ? ['--port', '0', '--unixsocket', join(this.folder, 'socket')]
        : [...this.#portArgs(), '--bind', '127.0.0.1'];
    const data =
      this.options.persistent === true
        ? ['--appendonly', 'yes', '--appendfsync', 'always']
        : ['--save', '', '--appendonly', 'no'];
    const args = [
      ...this.#mode(),
      ...where,
      ...this.#announcement(),
      ...data,
      ...['--dir', this.folder, '--logfile', join(this.folder, 'log')],
      ...(this.options.args ?? []),
      ...extra,
    ];
    const binary = this.options.binary ?? serverBinary();
    const env = { ...process.env, ...this.options.env };
    const child = spawn(binary, args, { stdio: 'ignore', env });
    this.#child = child;
    running.add(child);
    this.#paused = false;
    child.once('exit', () => running.delete(child));
    child.unref();
    await until(() => {
      if (child.exitCode !== null) throw new Error(`the server ended at once:\n${this.log}`);
      return this.log.includes(ready);
    }, `${binary} on port ${this.port}`);
  }

  #announcement(): string[] {
    if (this.#proxy === undefined) return [];
    const own = (kind: string) => [
      ...[`--${kind}-announce-ip`, '127.0.0.1'],
      ...[`--${kind}-announce-port`, String(this.announced)],
    ];
    if (this.options.cluster !== true) return own('replica');
    // The bus has no proxy, and would otherwise be looked for above the announced port.
    return [...own('cluster'), '--cluster-announce-bus-port', String(this.port + BUS)];
  }

  #portArgs(): string[] {
    const { tls } = this.options;
    if (tls === undefined) return ['--port', String(this.port)];
    return [
      ...['--port', '0', '--tls-port', String(this.port)],
      ...['--tls-cert-file', tls.server.certFile, '--tls-key-file', tls.server.keyFile],
      ...['--tls-ca-cert-file', tls.ca.certFile],
      ...['--tls-cluster', 'yes', '--tls-replication', 'yes'],
      ...['--tls-auth-clients', tls.client === undefined ? 'no' : 'yes'],
    ];
  }

  /** Ends the process like a crash, also one that is paused. No signal comes before: Deno sends a process only one. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.ref();
    child.kill('SIGKILL');
    await gone;
    rmSync(join(this.folder, 'log'), { force: true });
  }

  async restart(): Promise<void> {
    await this.kill();
    await this.start();
  }

  /** Stops the process from running without closing anything. */
  pause(): void {
    this.#paused = true;
    this.#child?.kill('SIGSTOP');
  }

  resume(): void {
    this.#child?.kill('SIGCONT');
    this.#paused = false;
  }

  /** Closes every connection but the admin's. Who listens for messages counts as `pubsub`. */
  async killClients(): Promise<void> {
    await this.admin.call('CLIENT', 'KILL', 'TYPE', 'normal');
    await this.admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
  }

  /** Everything in the database, with its time to live. */
  async keyspace(): Promise<Record<string, { type: string; ttl: number }>> {
    const keys = await this.admin.keys('*');
    const entries = keys.sort().map(async (key) => {
      const [type, ttl] = await Promise.all([this.admin.type(key), this.admin.pttl(key)]);
      return [key, { type, ttl }] as const;
    });
    return Object.fromEntries(await Promise.all(entries));
  }

  async stop(): Promise<void> {
    this.#admin?.disconnect();
    await this.#proxy?.stop();
    await this.kill();
    removeFolder(this.folder);
  }

  /** What a server says in its log when it takes commands. */
  get #ready(): string {
    return this.options.sentinel === undefined ? 'eady to accept connections' : '+monitor master';
  }

  #mode(): string[] {
    const { cluster, password, sentinel } = this.options;
    if (sentinel !== undefined) {
      const file = join(this.folder, 'sentinel.conf');
      // A Sentinel keeps what it learns in this file: over a restart it is its own.
      if (!existsSync(file)) writeFileSync(file, sentinel);
      return [file, '--sentinel'];
    }
    const login =
      password === undefined ? [] : ['--requirepass', password, '--masterauth', password];
    return cluster === true ? ['--cluster-enabled', 'yes', ...login] : login;
  }
}

/** The version that a server binary tells, such as `7.0.15`. */
export function serverVersion(): string {
  const text = execFileSync(serverBinary(), ['--version'], { encoding: 'utf8' });
  return /v=([\d.]+)/.exec(text)?.[1] ?? '';
}
