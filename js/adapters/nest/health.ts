/** The health of a manager, for @nestjs/terminus. */

import { checkObject, checkWhole } from '../../base/checks.js';
import { checkName } from '../../base/names.js';
import type { Duration } from '../../base/time.js';
import type { LockManager } from '../../manager/manager.js';

/**
 * Options of `lockHealth`.
 *
 * @example
 * ```ts
 * import type { LockHealthOptions } from 'holdfast/nest'
 *
 * const options: LockHealthOptions = { timeout: 500 }
 * ```
 */
export interface LockHealthOptions {
  /**
   * How long the check may take, from 1 ms to a minute.
   *
   * @default 1000
   */
  readonly timeout?: Duration;
  /**
   * The lock that is acquired and released; for servers whose ACL does not allow the default.
   *
   * @default `health:` and the `clientId` of the manager
   */
  readonly lock?: string;
}

/**
 * The health of a manager as Terminus expects it, under the key that was given.
 *
 * @example
 * ```ts
 * import { type LockHealth, lockHealth } from 'holdfast/nest'
 *
 * const health: LockHealth<'locks'> = await lockHealth('locks', locks)
 * console.log(health.locks.status) // up
 * ```
 */
export type LockHealth<Key extends string> = Record<
  Key,
  {
    /** Whether a lock could be acquired. */
    status: 'down' | 'up';
    /** Why not. */
    message?: string;
    /** How many locks the manager holds. */
    held: number;
    /** How many callers of the manager wait for a lock. */
    waiting: number;
  }
>;

/** The lease of the lock, in ms: long enough for any answer, and short if the process ends. */
const TTL_MS = 10_000;
const TIMES: ReadonlySet<string> = new Set(['timeout']);

/**
 * A health indicator for Terminus, 11 or newer: acquires and releases a lock of its own. So it is up only if
 * the server answers, and lets the manager write. Never rejects for a server that is down.
 *
 * @param key - The name in Terminus's answer.
 * @throws TypeError or RangeError for wrong options.
 *
 * @example
 * ```ts
 * import { Controller, Get } from '@nestjs/common'
 * import { HealthCheck, HealthCheckService } from '@nestjs/terminus'
 * import { LockManager } from 'holdfast'
 * import { lockHealth } from 'holdfast/nest'
 *
 * @Controller('health')
 * class Health {
 *   constructor(readonly health: HealthCheckService, readonly locks: LockManager) {}
 *
 *   @Get()
 *   @HealthCheck()
 *   check() {
 *     return this.health.check([() => lockHealth('locks', this.locks)])
 *   }
 * }
 * ```
 */
export async function lockHealth<const Key extends string>(
  key: Key,
  locks: LockManager,
  options?: LockHealthOptions,
): Promise<LockHealth<Key>> {
  const given = checkObject<LockHealthOptions>(options, ['lock', 'timeout'], 'lockHealth', TIMES);
  const { timeout = 1_000, lock = `health:${locks.clientId}` } = given;
  checkWhole(timeout, 'timeout', 1, 60_000);
  checkName(lock);
  const message = await failureOf(locks, lock, timeout);
  const { held, waiting } = locks.stats();
  const health =
    message === undefined
      ? { status: 'up', held, waiting }
      : { status: 'down', message, held, waiting };
  return { [key]: health } as LockHealth<Key>;
}

/** Why the lock could not be acquired in time, if it could not. */
async function failureOf(
  locks: LockManager,
  name: string,
  timeout: number,
): Promise<string | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(resolve, timeout, `no answer within ${timeout} ms`);
  });
  // Another check may have the lock: the server has answered, too.
  // An idle lock would be taken without a request, and say nothing about the server.
  const tried = locks.tryAcquire(name, { ttl: TTL_MS, linger: 0 }).then(async (lock) => {
    await lock?.release();
    return undefined;
  });
  const failed = tried.catch((error: Error) => error.message);
  try {
    return await Promise.race([failed, late]);
  } finally {
    clearTimeout(timer);
  }
}
