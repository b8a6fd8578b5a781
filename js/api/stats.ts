/** The counters of a manager. */

import type { NativeChannel } from '../native/channel.js';

/**
 * Counters since `connect`, except `held`, `waiting` and `oldestHold`, which are current values.
 *
 * @example
 * ```ts
 * const { held, waiting, lost } = locks.stats()
 * console.log(held, waiting, lost) // 0 0 0
 * ```
 */
export interface LockStats {
  /** Locks that this manager holds. */
  readonly held: number;
  /** Acquires that have not ended. */
  readonly waiting: number;
  /** Locks acquired. */
  readonly acquired: number;
  /**
   * How many of the acquired locks were handed off by another caller of this manager: exclusive locks without the
   * server, permits by one request.
   */
  readonly handedOff: number;
  /** Acquires that timed out. */
  readonly timedOut: number;
  /** Locks lost. */
  readonly lost: number;
  /**
   * Held locks that nothing in the process referred to any more, so that nothing could release them; see the warning
   * `WARN_LOCK_ABANDONED`. Only a garbage collection finds them.
   */
  readonly abandoned: number;
  /** How long ago the oldest lock that this manager holds was acquired, in ms; 0 while it holds none. */
  readonly oldestHold: number;
  /** Leases renewed, without the claims of locks that other processes granted. */
  readonly renewals: number;
  /** Requests sent to the server, renewals included. */
  readonly requests: number;
  /**
   * A histogram of handoffs from other processes: the time from the server's grant until this process knew of it. Each
   * entry counts those that took at most `upTo` ms, and more than the `upTo` of the entry before it.
   */
  readonly handOffs: readonly HandOffCount[];
}

/**
 * One entry of the histogram of handoffs.
 *
 * @example
 * ```ts
 * const slow = locks.stats().handOffs.filter(({ upTo }) => upTo > 100)
 * console.log(slow.every(({ count }) => count === 0)) // true
 * ```
 */
export interface HandOffCount {
  /** The upper bound, in ms; `Infinity` for the last entry. */
  readonly upTo: number;
  /** The number of handoffs since `connect`. */
  readonly count: number;
}

/** @internal */
export function readStats(channel: NativeChannel): LockStats {
  const { handOffs, ...counts } = channel.stats();
  const last = handOffs.length - 1;
  return {
    ...counts,
    abandoned: channel.abandoned,
    oldestHold: channel.oldestHold,
    handOffs: handOffs.map((count, slot) => ({
      upTo: slot === last ? Number.POSITIVE_INFINITY : 2 ** slot / 1000,
      count,
    })),
  };
}
