/**
 * `Mutex`, `Semaphore`, `MultiSemaphore` and `RedlockMutex` of redis-semaphore, on holdfast.
 *
 * @packageDocumentation
 */

import type { Client } from '../redlock/votes.js';
import { LostLockError, TimeoutError } from './errors.js';
import { Lock, type LockLostCallback, type LockOptions } from './lock.js';
import { defaultTimeoutOptions, type TimeoutOptions } from './options.js';

export type { Client, LockLostCallback, LockOptions, TimeoutOptions };
export { defaultTimeoutOptions, Lock, LostLockError, TimeoutError };

/**
 * A lock with one holder. It excludes the `Mutex` of redis-semaphore.
 *
 * @example
 * ```ts
 * import { Mutex } from 'holdfast/redis-semaphore'
 *
 * const mutex = new Mutex(new Redis(), 'item:42', { acquireTimeout: 5_000 })
 * await mutex.acquire()
 * try {
 *   await sell(42)
 * } finally {
 *   await mutex.release()
 * }
 * ```
 */
export class Mutex extends Lock {
  /**
   * @param client - A client of ioredis or node-redis, whose address and login are used.
   * @param key - The name of the lock; the key in Redis is `mutex:` and this name.
   * @throws Error if an argument is missing or wrong.
   */
  constructor(client: Client, key: string, options?: LockOptions) {
    checkClient(client);
    super([client], { kind: 'mutex', key: `mutex:${checkKey(key)}` }, options);
  }
}

/**
 * A lock with at most `limit` holders.
 *
 * @example
 * ```ts
 * const semaphore = new Semaphore(new Redis(), 'api', 10)
 * if (await semaphore.tryAcquire()) await call().finally(() => semaphore.release())
 * ```
 */
export class Semaphore extends Lock {
  /**
   * @param client - A client of ioredis or node-redis, whose address and login are used.
   * @param key - The name of the lock; the key in Redis is `semaphore:` and this name.
   * @param limit - The largest number of holders.
   * @throws Error if an argument is missing or wrong.
   */
  constructor(client: Client, key: string, limit: number, options?: LockOptions) {
    checkClient(client);
    const kind = {
      kind: 'semaphore',
      key: `semaphore:${checkKey(key)}`,
      name: key,
      limit: checkCount(limit, 'limit'),
    };
    super([client], kind, options);
  }
}

/**
 * A semaphore whose holder takes several permits, all or none. A waiter for many is not overtaken by later ones for few.
 *
 * @example
 * ```ts
 * const half = new MultiSemaphore(new Redis(), 'gpu', 8, 4)
 * if (await half.tryAcquire()) await train().finally(() => half.release())
 * ```
 */
export class MultiSemaphore extends Lock {
  /**
   * @param client - A client of ioredis or node-redis, whose address and login are used.
   * @param key - The name of the lock; the key in Redis is `semaphore:` and this name, as for a `Semaphore`.
   * @param limit - How many permits all holders have together.
   * @param permits - How many of them this one takes. With more than `limit` an `acquire` rejects with a `TimeoutError`.
   * @throws Error if an argument is missing or wrong.
   */
  constructor(client: Client, key: string, limit: number, permits: number, options?: LockOptions) {
    checkClient(client);
    const kind = {
      kind: 'multi-semaphore',
      key: `semaphore:${checkKey(key)}`,
      name: key,
      limit: checkCount(limit, 'limit'),
      permits: checkCount(permits, 'permits'),
    };
    super([client], kind, options);
  }
}

/**
 * A lock with one holder on several independent servers. It excludes the `RedlockMutex` of redis-semaphore.
 *
 * @example
 * ```ts
 * const mutex = new RedlockMutex([new Redis(6379), new Redis(6380), new Redis(6381)], 'item:42')
 * ```
 */
export class RedlockMutex extends Lock {
  /**
   * @param clients - Three to fifteen clients of ioredis or node-redis, or one.
   * @param key - The name of the lock; the key in Redis is `mutex:` and this name.
   * @throws Error if an argument is missing or wrong.
   */
  constructor(clients: readonly Client[], key: string, options?: LockOptions) {
    if (!Array.isArray(clients)) throw new Error('"clients" array is required');
    super(clients, { kind: 'redlock-mutex', key: `mutex:${checkKey(key)}` }, options);
  }
}

function checkClient(client: unknown): void {
  if (!client) throw new Error('"client" is required');
}

function checkCount(count: unknown, name: string): number {
  if (!count) throw new Error(`"${name}" is required`);
  if (typeof count !== 'number') throw new Error(`"${name}" must be a number`);
  return count;
}

function checkKey(key: unknown): string {
  if (!key) throw new Error('"key" is required');
  if (typeof key !== 'string') throw new Error('"key" must be a string');
  return key;
}
