/** Groups of independent servers, and the keys of a quorum on them. */

import { after, before } from 'node:test';
import type { ConnectOptions } from 'holdfast';
import { closeManagers, connect, type LockManager } from '../../support/holdfast.js';
import { RedisServer, type ServerOptions } from '../../support/server.js';
import { until } from '../../support/wait.js';

/** Servers that know nothing of each other. */
export class Group {
  constructor(readonly servers: readonly RedisServer[]) {}

  static async start(count: number, options: ServerOptions = {}): Promise<Group> {
    return new Group(await RedisServer.startSeveral(count, options));
  }

  get urls(): string[] {
    return this.servers.map(({ url }) => url);
  }

  /** The server of a number. */
  at(index: number): RedisServer {
    return this.servers[index] as RedisServer;
  }

  /** A manager on all of them. Servers that were started a moment ago have a vote, unless told otherwise. */
  async open(options: ConnectOptions = {}): Promise<LockManager> {
    return connect({ quorum: this.urls }, { longestLease: 0, ...options });
  }

  /** The owner of the lock on each running server; null where it is free. */
  async holders(name: string): Promise<(string | null)[]> {
    const running = this.servers.filter((server) => server.running);
    return Promise.all(running.map(({ admin }) => admin.get(`lock:${name}`)));
  }

  /** Waits until no running server has the lock. */
  async free(name: string): Promise<void> {
    const nobody = async () => (await this.holders(name)).every((holder) => holder === null);
    await until(nobody, `${name} to be free everywhere`);
  }

  /** Restores the beginning: all servers run, no lock is held, no manager and no operation is open. */
  async reset(): Promise<void> {
    await closeManagers();
    for (const server of this.servers) {
      server.resume();
      if (!server.running) await server.start();
    }
    await Promise.all(this.servers.map(({ admin }) => admin.flushall()));
  }

  async stop(): Promise<void> {
    await this.reset();
    await Promise.all(this.servers.map((server) => server.stop()));
  }
}

/** A group that is started before the tests of this file or suite, and stopped after them. */
export function groupOfSuite(count: number): Group {
  const group = new Group(Array.from({ length: count }, () => new RedisServer()));
  before(() => Promise.all(group.servers.map((server) => server.startOnFreePort())));
  after(() => group.stop());
  return group;
}

/** The duration of a call, in ms, and its result. */
export async function timed<T>(
  action: () => Promise<T>,
): Promise<{ took: number; result: PromiseSettledResult<T> }> {
  const began = performance.now();
  const [result] = await Promise.allSettled([action()]);
  return { took: performance.now() - began, result };
}
