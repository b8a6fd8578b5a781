/** The servers that this machine has as places for the conformance suite. */

import { execFileSync } from 'node:child_process';
import { existsSync, realpathSync } from 'node:fs';
import { basename, delimiter, join } from 'node:path';
import { Cluster } from '../../support/cluster.js';
import { quiet } from '../../support/crew.js';
import type { LockManager } from '../../support/holdfast.js';
import { type AclUser, enrol, leastRights } from '../../support/least-rights.js';
import { RedisServer, serverBinary } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { awaitSubscription, type Host, type Where } from './place.js';

/** A server of its own, from one binary; used by its default user, or by another. */
export class ServerHost implements Host {
  readonly name: string;
  #server: RedisServer | undefined;
  #url = '';

  constructor(
    readonly binary: string,
    readonly user?: AclUser,
    readonly args: readonly string[] = [],
  ) {
    const rights = user === undefined ? '' : ', with the least rights';
    this.name = [versionOf(binary) + rights, ...args].join(' ');
  }

  async start(): Promise<void> {
    this.#server = await RedisServer.start({ binary: this.binary, args: this.args });
    this.#url = this.user ? await enrol(this.#server, this.user) : this.#server.url;
  }

  next(): Where {
    return { target: this.#url, label: `${this.#running.url}/0` };
  }

  async quiet(): Promise<void> {
    await quiet(this.#running);
    await this.#running.admin.flushall();
  }

  async stop(): Promise<void> {
    await this.#server?.stop();
  }

  get #running(): RedisServer {
    if (this.#server === undefined) throw new Error(`${this.name} does not run`);
    return this.#server;
  }
}

/** Three servers that share the locks. */
export class ClusterHost implements Host {
  readonly name: string;
  #cluster: Cluster | undefined;
  /** The managers that wait, or have waited, for each lock of the present behaviour. */
  #waiters = new Map<string, Set<LockManager>>();

  constructor(readonly binary: string) {
    this.name = `a Cluster of ${versionOf(binary)}`;
  }

  async start(): Promise<void> {
    this.#cluster = await Cluster.start({ binary: this.binary });
  }

  next(): Where {
    this.#waiters = new Map();
    const { urls } = this.#running;
    const label = `the Cluster of ${urls[0]}`;
    return { target: { cluster: urls }, label, counter: 'holdfast:{0}:fence' };
  }

  wrap(manager: LockManager): LockManager {
    awaitSubscription.set(manager, (name) => this.#awaitSubscription(manager, name));
    return manager;
  }

  async #awaitSubscription(manager: LockManager, name: string): Promise<void> {
    const waiters = this.#waiters.get(name) ?? new Set();
    this.#waiters.set(name, waiters.add(manager));
    const pattern = `holdfast:inbox:*:{lock:${name}}`;
    await until(async () => {
      const asked = this.#running.nodes.map(({ admin }) =>
        admin.call('PUBSUB', 'SHARDCHANNELS', pattern),
      );
      return ((await Promise.all(asked)) as string[][]).flat().length >= waiters.size;
    }, `the subscriptions of ${waiters.size} waiters for ${name}`);
  }

  async quiet(): Promise<void> {
    for (const node of this.#running.nodes) {
      await quiet(node);
      await node.admin.flushall();
    }
  }

  async stop(): Promise<void> {
    await this.#cluster?.stop();
  }

  get #running(): Cluster {
    if (this.#cluster === undefined) throw new Error(`${this.name} does not run`);
    return this.#cluster;
  }
}

/** The servers that `HOLDFAST_SERVERS`, a list like PATH, names besides those of this machine. */
export function otherServers(): ServerHost[] {
  const { HOLDFAST_SERVERS = '' } = process.env;
  const files = HOLDFAST_SERVERS.split(delimiter).filter(Boolean);
  const gone = files.find((file) => !existsSync(file));
  if (gone !== undefined)
    throw new Error(`HOLDFAST_SERVERS names a server that does not exist: ${gone}`);
  return files.map((file) => new ServerHost(file));
}

/**
 * The servers of this machine, that of `HOLDFAST_REDIS_SERVER` first: each once with all rights and once with those that
 * docs/operations.md asks for.
 */
export function serverHosts(): ServerHost[] {
  const { HOLDFAST_REDIS_SERVER, PATH = '' } = process.env;
  const named = HOLDFAST_REDIS_SERVER ? [serverBinary()] : [];
  const folders = PATH.split(delimiter).filter(Boolean);
  const onPath = ['redis-server', 'valkey-server']
    .flatMap((name) => folders.map((folder) => join(folder, name)))
    .filter((file) => existsSync(file));
  // One file can have many names: a distribution's valkey-server may also be called redis-server.
  const distinct = new Map([...named, ...onPath].map((file) => [realpathSync(file), file]));
  const query = leastRights('for query');
  // Some behaviours hold a lock whose key is the counter of all fences.
  const least = { ...query, rules: [...query.rules, '~{holdfast:fence}:*'] };
  return [...distinct.values()].flatMap((file) => [
    new ServerHost(file),
    new ServerHost(file, least),
  ]);
}

/** Name and version as people write them, such as `Valkey 8.0.1`. */
function versionOf(binary: string): string {
  const text = execFileSync(binary, ['--version'], { encoding: 'utf8' });
  const [, name, version] = /^(\w+) server v=([\d.]+)/.exec(text) ?? [];
  if (version === undefined) throw new Error(`${binary} is no Redis and no fork of it: ${text}`);
  // Some distributions call their Valkey Redis.
  return `${basename(binary).startsWith('valkey') ? 'Valkey' : name} ${version}`;
}
