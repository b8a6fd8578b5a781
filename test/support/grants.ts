/** The commands of Redis about a lock and its wait queue, one by one. */

import type { Redis } from 'ioredis';
import type { RedisServer } from './server.js';
import { until } from './wait.js';

/** The lock's value while others share it. */
const SHARED = 'hf1.shared';

/** The lock, or a share of it, as it was given to a token. */
export interface Grant {
  readonly token: string;
  /** The waiters in the queue at that moment, first to last, the new owner included. */
  readonly line: readonly string[];
}

/** `hf1.<manager>.<number>`. */
function managerOf(token: string): string | undefined {
  return token.split('.')[1];
}

/** Follows one lock through MONITOR. */
export class GrantWatch {
  readonly grants: Grant[] = [];
  readonly #places = new Map<string, number>();
  /** The entry of the head is removed a moment before or after the write of the lock's value. */
  #before: readonly string[] = [];
  /** Who has wanted it whole. */
  readonly #whole = new Set<string>();
  /** The owner of a permit that a call is about to hand off within its process, ahead of other waiters. */
  #giver: string | undefined;
  #seen = '';

  private constructor(
    readonly server: RedisServer,
    readonly name: string,
    readonly monitor: Redis,
  ) {}

  /** To be awaited before other traffic: ioredis takes the commands that it sees meanwhile for answers. */
  static async start(server: RedisServer, name: string): Promise<GrantWatch> {
    // An answer first: a client that is ready sends nothing that its own monitor would see.
    await server.admin.ping();
    const watch = new GrantWatch(server, name, await server.admin.monitor());
    watch.monitor.on('monitor', (_time: string, args: string[]) => watch.#see(args));
    return watch;
  }

  /** Waits until everything that Redis did so far has been seen, and ends. */
  async stop(): Promise<readonly Grant[]> {
    const end = `end of ${this.name} ${Math.random()}`;
    await this.server.admin.echo(end);
    await until(() => this.#seen === end, 'the end of what Redis did');
    this.monitor.disconnect();
    return this.grants;
  }

  #see(args: readonly string[]): void {
    const [command = '', key = '', ...rest] = args;
    // Only calls of a hand-off have the shares as their third key.
    if (/^eval/i.test(command)) this.#giver = this.#isPass(args) ? args[7] : undefined;
    const queue = `{lock:${this.name}}:queue`;
    switch (`${command.toUpperCase()} ${key}`) {
      case `ZADD ${queue}`:
        this.#places.set(rest[1] ?? '', Number(rest[0]));
        this.#before = this.#line();
        break;
      case `ZREM ${queue}`:
        this.#before = this.#line();
        this.#places.delete(rest[0] ?? '');
        break;
      case `SET lock:${this.name}`: {
        const token = (rest[0] ?? '').replace(/\+$/, '');
        this.#whole.add(token);
        const line = this.#before.includes(token) ? this.#before : this.#line();
        // Without a waiter the lock is taken with NX, which may have failed; KEEPTTL changes the mark, not the owner.
        if (rest[1] === 'PX' && token !== SHARED) this.grants.push({ token, line });
        break;
      }
      case `ZADD {lock:${this.name}}:shared`: {
        // A new share comes with its fence; it is no grant if its owner had the whole lock, which was downgraded.
        const [, token = '', , fenceOf] = rest;
        if (fenceOf !== `#${token}` || this.#whole.has(token)) break;
        if (this.#giver !== undefined && managerOf(this.#giver) === managerOf(token)) break;
        const line = this.#before.includes(token) ? this.#before : this.#line();
        this.grants.push({ token, line });
        break;
      }
      default:
        if (command.toUpperCase() === 'ECHO') this.#seen = key;
    }
  }

  #isPass(args: readonly string[]): boolean {
    return (
      args[2] === '4' && args[3] === `lock:${this.name}` && args[5]?.endsWith(':shared') === true
    );
  }

  #line(): string[] {
    return [...this.#places].sort((a, b) => a[1] - b[1]).map(([token]) => token);
  }
}
