/** The lock of the decorated method that runs now. */

import { AsyncLocalStorage } from 'node:async_hooks';
import { LockError } from '../../base/errors.js';
import type { Lock } from '../../lock/lock.js';

interface Run {
  readonly lock: Lock;
  readonly slot?: string;
}

const runs = new AsyncLocalStorage<Run>();

/** Calls `body` as the body of a decorated method. @internal */
export function runAs<T>(run: Run, body: () => T): T {
  return runs.run(run, body);
}

/**
 * The lock of the method with `@Lock`, `@Once` or `@Leader` that runs now, the innermost of several: for its `fence`, and for its
 * `signal`, which is aborted if the lock is lost. What the method calls may ask for it, too.
 *
 * @throws LockError `ERR_LOCK_NOT_DECORATED` if no such method runs.
 *
 * @example
 * ```ts
 * import { currentLock, Lock } from 'holdfast/nest'
 *
 * class Stock {
 *   @Lock('item:${0}')
 *   async sell(item: string): Promise<number> {
 *     return currentLock().fence
 *   }
 * }
 * ```
 */
export function currentLock(): Lock {
  return current('currentLock').lock;
}

/**
 * The name of the slot for which a method with `@Once` runs now: with `every`, the time of the tick.
 *
 * @throws LockError `ERR_LOCK_NOT_DECORATED` if no such method runs.
 *
 * @example
 * ```ts
 * import { currentSlot, Once } from 'holdfast/nest'
 *
 * class Reports {
 *   @Once('report', { every: '1h' })
 *   async build(): Promise<void> {
 *     await report(`until ${currentSlot()}`)
 *   }
 * }
 * ```
 */
export function currentSlot(): string {
  const { slot } = current('currentSlot');
  if (slot !== undefined) return slot;
  throw outside(
    'currentSlot',
    'the method that runs now has no @Once: only one with @Once has a slot',
  );
}

function current(caller: string): Run {
  const run = runs.getStore();
  if (run !== undefined) return run;
  throw outside(caller, 'no method with @Lock, @Once or @Leader runs here');
}

function outside(caller: string, message: string): LockError {
  return new LockError('ERR_LOCK_NOT_DECORATED', `${caller}: ${message}`);
}
