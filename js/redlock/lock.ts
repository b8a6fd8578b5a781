import type { Redlock } from './index.js';
import type { ExecutionResult, ExecutionStats } from './votes.js';

/**
 * Some resources that are locked until `expiration`. `acquire` and `extend` return it; it can also be made by
 * hand, to release or extend the lock of another process.
 *
 * @example
 * ```ts
 * const { resources, value, expiration } = message                  // what another process has acquired
 * await new Lock(redlock, resources, value, [], expiration).release()
 * ```
 */
export class Lock {
  /** The `Redlock` that releases and extends the lock. */
  readonly redlock: Redlock;
  /** The names, as the caller gave them. */
  readonly resources: string[];
  /** The owner token, as it is stored in Redis; the tokens of all resources, if there are several. */
  readonly value: string;
  /** The votes of each client on the acquire or the extension. */
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
  /** The time until which the lock is held, by `Date.now()`; 0 after its release or extension. */
  expiration: number;

  constructor(
    redlock: Redlock,
    resources: string[],
    value: string,
    attempts: ReadonlyArray<Promise<ExecutionStats>>,
    expiration: number,
  ) {
    this.redlock = redlock;
    this.resources = resources;
    this.value = value;
    this.attempts = attempts;
    this.expiration = expiration;
  }

  /** Releases the lock: `redlock.release(lock)`. */
  async release(): Promise<ExecutionResult> {
    return this.redlock.release(this);
  }

  /** Extends the lock to `duration` ms from now: `redlock.extend(lock, duration)`. */
  async extend(duration: number): Promise<Lock> {
    return this.redlock.extend(this, duration);
  }
}
