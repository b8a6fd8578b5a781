/** Passwords that change while locks are held and waited for. */

import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import type { ConnectOptions, ConnectTarget, Credentials } from 'holdfast';
import { connect, holdfast, type LockManager } from '../support/holdfast.js';
import type { RedisServer } from '../support/server.js';
import { sleep, until } from '../support/wait.js';

/** The ACL user of these tests. The default user is the admin's. */
export const USER = 'app';

/** A password that changes on some servers. */
export class Rotation {
  #count = 0;
  /** How often it was asked for. */
  asked = 0;

  constructor(
    readonly servers: readonly RedisServer[],
    /** How long each answer is valid, in ms; as long as the password is, by default. */
    readonly validFor?: number,
  ) {}

  get password(): string {
    return `s3cret-${this.#count}`;
  }

  readonly credentials = async (): Promise<Credentials> => {
    this.asked += 1;
    await sleep(1);
    const { password, validFor } = this;
    return {
      username: USER,
      password,
      ...(validFor === undefined ? {} : { expiresAt: Date.now() + validFor }),
    };
  };

  /** Makes the user, who may do everything. */
  async begin(): Promise<this> {
    await this.#set('reset', 'on', '~*', '&*', '+@all', `>${this.password}`);
    return this;
  }

  /** From now on another password is valid, and no other. */
  async change(): Promise<void> {
    this.#count += 1;
    await this.#set('resetpass', `>${this.password}`);
  }

  /** Closes the user's connections. */
  async kill(): Promise<void> {
    await Promise.all(
      this.servers.map(({ admin }) => admin.call('CLIENT', 'KILL', 'USER', USER).catch(() => 0)),
    );
  }

  async #set(...rules: readonly string[]): Promise<void> {
    await Promise.all(
      this.servers.map(({ admin }) => admin.call('ACL', 'SETUSER', USER, ...rules)),
    );
  }
}

/** A quorum whose connections were closed a moment ago releases the lock later. */
function expectQuorumError(error: unknown): void {
  if (!(error instanceof holdfast.LockQuorumError)) throw error;
}

/** How long the event loop is blocked once, in the middle of the rotations. */
const BLOCKED_MS = 2_000;

/**
 * No connection is made while it is blocked. A renewal may have been due at its begin, so the lease leaves two thirds of
 * this for the block, and for connections and renewals on a machine that is busy otherwise.
 */
const TTL_MS = 10_000;

/** How many servers it is connected to. */
function connections(locks: LockManager): number {
  return locks.stats().servers.filter(({ refused }) => !refused).length;
}

function block(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

export interface Scale {
  readonly held: number;
  readonly waiters: number;
  readonly rotations: number;
  /** The time between two rotations, in ms. */
  readonly pause: number;
}

/**
 * Locks are held and waited for while the password changes again and again, each time with the end of all connections.
 * Nothing is lost, and each waiter gets its lock.
 */
export async function survives(
  rotation: Rotation,
  target: ConnectTarget,
  options: ConnectOptions,
  { held, waiters, rotations, pause }: Scale,
): Promise<void> {
  const { credentials } = rotation;
  const login = { credentials, ttl: TTL_MS, connectTimeout: 5_000, ...options };
  const [holder, waiter] = await Promise.all([connect(target, login), connect(target, login)]);
  try {
    const lost: string[] = [];
    let i = 0;
    for (const locks of [holder, waiter]) {
      locks.on('lost', (lock, { reason }) => lost.push(`${i}: ${lock.name} ${reason}`));
      locks.on('warning', () => {});
    }
    const names = Array.from({ length: held }, (_, index) => `held-${index}`);
    const locks = await Promise.all(names.map((name) => holder.acquire(name)));
    const waiting = names
      .slice(0, waiters)
      .map((name) => waiter.acquire(name, { wait: Number.POSITIVE_INFINITY }));
    for (const each of waiting) each.catch(() => {});
    await until(() => waiter.stats().waiting === waiters, 'the waiters');
    const all = [holder, waiter].map(connections);
    let next = 0;
    for (; i < rotations; i++) {
      await rotation.change();
      await rotation.kill();
      if (i === 4) block(BLOCKED_MS);
      if (i % 3 === 0 && next < waiters) {
        // A waiter gets its lock in the middle of it.
        await locks[next]?.release().catch(expectQuorumError);
        await waiting[next];
        next += 1;
      }
      await sleep(pause);
      // Nothing lives without connections, which a busy machine makes slowly.
      await until(() => isDeepStrictEqual([holder, waiter].map(connections), all), 'connections');
    }
    assert.deepEqual(lost, []);
    for (const lock of locks.slice(next)) assert.ok(lock.held, lock.name);
    await Promise.all(locks.map((lock) => lock.release()));
    await Promise.all((await Promise.all(waiting)).map((lock) => lock.release()));
    assert.deepEqual(lost, []);
  } finally {
    await Promise.all([holder.close(), waiter.close()]);
  }
}
