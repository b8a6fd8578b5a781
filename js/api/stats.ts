/** What a manager has counted. */

import type { NativeChannel } from '../native/channel.js';

/**
 * Counts since `connect`, but for `held`, `waiting` and `oldestHold`, which are as of now.
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
  /** Acquires under way. */
  readonly waiting: number;
  /** Locks acquired. */
  readonly acquired: number;
  /**
   * Those of them that came straight from another caller of this manager: whole locks without the server,
   * permits by one request.
   */
  readonly handedOn: number;
  /** Acquires that waited in vain. */
  readonly timedOut: number;
  /** Locks lost. */
  readonly lost: number;
  /**
   * Locks that nothing in the process referred to any more while they were held, so that nobody could release
   * them; see the warning `WARN_LOCK_ABANDONED`. Only collections of garbage find them.
   */
  readonly abandoned: number;
  /** For how long the lock that this manager has held longest is held, in ms; 0 while it holds none. */
  readonly oldestHold: number;
  /** Leases renewed, those of locks that were just granted included. */
  readonly renewals: number;
  /** Requests sent to the server, renewals included. */
  readonly requests: number;
  /**
   * How long hand-offs from other processes took, from the moment that the server passed the lock on
   * until it was known here: how many took at most `upTo` ms and more than the entry before.
   */
  readonly handOffs: readonly HandOffCount[];
}

/**
 * How many hand-offs took about so long.
 *
 * @example
 * ```ts
 * const slow = locks.stats().handOffs.filter(({ upTo }) => upTo > 100)
 * console.log(slow.every(({ count }) => count === 0)) // true
 * ```
 */
export interface HandOffCount {
  /** The longest that they took, in ms; `Infinity` for the last entry. */
  readonly upTo: number;
  /** How many there were, since `connect`. */
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
