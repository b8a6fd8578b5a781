import type { Redlock } from './index.js';
import type { ExecutionResult, ExecutionStats } from './votes.js';

/**
 * Some resources that are locked until `expiration`. Made by `acquire` and `extend`; or by hand, of what
 * another process has told, to release or extend its lock from here.
 *
 * @example
 * ```ts
 * const { resources, value, expiration } = message                  // what another process has acquired
 * await new Lock(redlock, resources, value, [], expiration).release()
 * ```
 */
export class Lock {
  /** Who releases and extends it. */
  readonly redlock: Redlock;
  /** The names, as they were given. */
  readonly resources: string[];
  /** The owner's token, as it is stored in Redis; of several resources all their tokens. */
  readonly value: string;
  /** What each client said when it was acquired or extended. */
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
  /** Until when it is held, by `Date.now()`; 0 as soon as it is released, or another stands for it. */
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

  /** Gives it up: `redlock.release(lock)`. */
  async release(): Promise<ExecutionResult> {
    return this.redlock.release(this);
  }

  /** Has it last `duration` ms from now, as the lock that it resolves to: `redlock.extend(lock, duration)`. */
  async extend(duration: number): Promise<Lock> {
    return this.redlock.extend(this, duration);
  }
}
