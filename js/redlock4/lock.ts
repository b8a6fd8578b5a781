import type { Answer, Callback } from './promise.js';
import type { Redlock } from './redlock.js';

/**
 * Resources that are locked until `expiration`.
 *
 * @example
 * ```ts
 * const lock = await redlock.lock('item:42', 1_000)
 * await lock.unlock()
 * ```
 */
export class Lock {
  /** The `Redlock` that releases and extends the lock. */
  readonly redlock: Redlock;
  /** The names of the locked resources. */
  resource: string[];
  /** The value of each of these keys in Redis. */
  value: string | null;
  /** The time until which the lock is held, by `Date.now()`; 0 after its release. */
  expiration: number;
  /** The number of attempts that the acquire took. */
  attempts: number;
  /** The number of attempts that were left. */
  attemptsRemaining: number;

  constructor(
    redlock: Redlock,
    resource: string[],
    value: string | null,
    expiration: number,
    attempts: number,
    attemptsRemaining: number,
  ) {
    this.redlock = redlock;
    this.resource = resource;
    this.value = value;
    this.expiration = expiration;
    this.attempts = attempts;
    this.attemptsRemaining = attemptsRemaining;
  }

  /** Releases the lock: `redlock.unlock(lock)`. */
  unlock(callback?: Callback<void>): Answer<void> {
    return this.redlock.unlock(this, callback);
  }

  /** Makes the lock last for `ttl` ms from now: `redlock.extend(lock, ttl)`. */
  extend(ttl: number, callback?: Callback<Lock>): Answer<Lock> {
    return this.redlock.extend(this, ttl, callback);
  }
}

/**
 * A lock could not be acquired, released or extended. `cause` says what happened, to which lock, on which server, and
 * what to do.
 */
export class LockError extends Error {
  override readonly name = 'LockError';
  /** The number of attempts; undefined for a release. */
  readonly attempts: number | undefined;

  /** @param message - What failed. */
  constructor(
    message = 'Failed to lock the resource.',
    attempts?: number,
    options?: { readonly cause?: unknown },
  ) {
    super(message, options);
    this.attempts = attempts;
  }
}
