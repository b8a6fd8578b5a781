/** Runs the callback of a `request`, and releases its locks. */

import { checkFunction } from '../base/checks.js';
import { isUnreachable, LockLostError } from '../base/errors.js';
import type { SharedHandle } from '../lock/lock.js';
import { all } from '../lock/lock-set.js';
import { Scope } from './nesting.js';

/**
 * Runs `callback` and releases the locks. An error of the callback goes before a loss, a loss before an error of
 * the release.
 *
 * @internal
 */
export async function runUnder<T>(
  owner: object,
  locks: readonly SharedHandle[],
  callback: () => T,
): Promise<Awaited<T>> {
  const scope = new Scope(owner, locks);
  let result: Awaited<T>;
  try {
    result = await scope.run(callback);
    scope.close();
  } catch (error) {
    scope.close();
    await exit(locks).catch(() => {});
    throw error;
  }
  let lost = lossOf(locks, result);
  let unreleased: unknown;
  try {
    // The server may have lost a lock and told nobody; then its release answers false.
    if (!(await exit(locks))) lost ??= lossOf(locks, result);
  } catch (error) {
    unreleased = error;
  }
  if (lost !== undefined) throw lost;
  if (unreleased !== undefined && !isUnreachable(unreleased)) throw unreleased;
  return result;
}

/**
 * Releases the locks. Nearly always there is one, which needs none of the promises that wait for several.
 *
 * @returns Whether this has freed each of them.
 */
function exit(locks: readonly SharedHandle[]): Promise<boolean> {
  const [first] = locks;
  if (first !== undefined && locks.length === 1) return first.exit();
  return all(locks, (lock) => lock.exit()).then((freed) => freed.every(Boolean));
}

/** The loss of a lock that its callback has not released itself, with the callback's result. */
function lossOf(locks: readonly SharedHandle[], result: unknown): LockLostError | undefined {
  for (const lock of locks) {
    try {
      lock.assertHeld();
    } catch (error) {
      const { message, reason } = error as LockLostError;
      if (reason !== 'released') return new LockLostError(message, lock.name, reason, result);
    }
  }
  return undefined;
}

/** @internal */
export function checkCallback(callback: unknown): asserts callback is (lock: unknown) => unknown {
  checkFunction(callback, 'the callback');
}
