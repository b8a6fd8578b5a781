/** A quorum of five servers as a place for the conformance suite, and the behaviours that it does not promise. */

import { quiet } from '../../support/crew.js';
import { RedisServer } from '../../support/server.js';
import type { Host, Where } from './place.js';
import type { ServerHost } from './servers.js';

/** The behaviours that differ, and the reasons. */
const WITHOUT: readonly RegExp[] = [
  // There is no wait queue: every waiter is woken and tries again.
  /^queue: (?!fences rise|a manager that closes)/,
  /^timeout: says how long was waited/,
  /^timeout: who stops waiting leaves the line/,
  /tryAcquire does not overtake/,
  // Every fence is at least the servers' time, so it rises by more than one.
  /^fences rise by one/,
  /^fences do not change while/,
  // Requests to each server count.
  /^stats: /,
  // Servers that know nothing of each other cannot count, share or change an owner together.
  /^(owner|shared|limit|permits|downgrade|taken away|steal|forceRelease|adopt|query)\b/,
  // Foreign data at the key of the queue has no effect here.
  /^a key of another type is refused/,
];

export class QuorumHost implements Host {
  readonly name: string;
  #servers: readonly RedisServer[] = [];

  constructor(readonly single: ServerHost) {
    this.name = `a quorum of five of ${single.name}`;
  }

  /** Whether a behaviour is promised here, too. */
  promises(title: string): boolean {
    return !WITHOUT.some((pattern) => pattern.test(title));
  }

  async start(): Promise<void> {
    this.#servers = await RedisServer.startSeveral(5, { binary: this.single.binary });
  }

  next(): Where {
    const urls = this.#servers.map(({ url }) => url);
    const label = `a quorum of ${urls.map((url) => `${url}/0`).join(', ')}`;
    const counter = 'lock:{0}::fence';
    return { target: { quorum: urls }, label, counter, options: { longestLease: 0 } };
  }

  async quiet(): Promise<void> {
    for (const server of this.#servers) {
      await quiet(server, undefined, { quorum: true });
      await server.admin.flushall();
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.#servers.map((server) => server.stop()));
  }
}
