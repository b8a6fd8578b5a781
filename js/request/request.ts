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
    await all(locks, (lock) => lock.exit()).catch(() => {});
    throw error;
  }
  const lost = lossOf(locks, result);
  const unreleased = await all(locks, (lock) => lock.exit()).then(noError, asError);
  if (lost !== undefined) throw lost;
  if (unreleased !== undefined && !isUnreachable(unreleased)) throw unreleased;
  return result;
}

function noError(): undefined {}

function asError(error: unknown): unknown {
  return error;
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
