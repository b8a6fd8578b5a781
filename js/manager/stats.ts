/** The counters of a manager. */

import type { Campaigns } from '../lead/campaigns.js';
import type { LeadState } from '../lead/options.js';
import type { NativeChannel } from '../native/channel.js';
import type { LockWarningCode } from './events.js';

/**
 * Counters since `connect`, except `held`, `leads`, `idle`, `waiting`, `oldestHold` and `servers`, which are current
 * values.
 *
 * @example
 * ```ts
 * const { held, waiting, lost } = locks.stats()
 * console.log(held, waiting, lost) // 0 0 0
 * ```
 */
export interface LockStats {
  /** Locks that callers of this manager hold. */
  readonly held: number;
  /** The names for which `lead` campaigns, and which of them this process leads. */
  readonly leads: readonly LeadState[];
  /** Locks that no caller holds any more, which the manager keeps for its next callers; see `linger`. */
  readonly idle: number;
  /** Acquires that have not ended, without those of `lead`. */
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
  /** Locks lost, but for those whose release was the first to find out. */
  readonly lost: number;
  /**
   * Held locks that nothing in the process referred to any more, so that nothing could release them; see the warning
   * `WARN_LOCK_ABANDONED`. Only a garbage collection finds them.
   */
  readonly abandoned: number;
  /**
   * How long ago the oldest lock that this manager holds was acquired, in ms; 0 while it holds none. The locks of leaders do
   * not count: their names begin with `leader:`.
   */
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
  /**
   * The servers that this manager is connected to now, or that refuse its login since, and what each allows. Empty for
   * `memory:`, which allows everything.
   */
  readonly servers: readonly ServerAbilities[];
}

/**
 * The abilities of a server, which each new connection tests. Locks work without any of them; docs/servers.md says what each
 * missing one costs.
 *
 * @example
 * ```ts
 * for (const { server, protocol, pubsub } of locks.stats().servers) {
 *   console.log(`${server}: RESP${protocol}, ${pubsub ? 'messages' : 'polling'}`)
 * }
 * ```
 */
export interface ServerAbilities {
  /** The server, without login: `host:port`, or the path of its socket. */
  readonly server: string;
  /**
   * The version of RESP, as the server says it. With 3 everything is on one connection. With 2, and with 3 on a server that
   * sends messages as arrays (Kvrocks), messages have a connection of their own, and nothing else differs.
   */
  readonly protocol: 2 | 3;
  /** Whether scripts may read the server's clock (`TIME`). */
  readonly clock: boolean;
  /** Whether this manager and its scripts may publish and subscribe. */
  readonly pubsub: boolean;
  /** Whether locks may be taken by plain commands, which cost the server less than a script. */
  readonly plainCommands: boolean;
  /**
   * Whether the server tells at once when other code deletes a held lock, or when it loses one (`CLIENT TRACKING`, with RESP3).
   * If not, the holder learns of it with its next renewal.
   */
  readonly tracking: boolean;
  /** The server's command for a compare-and-delete; `null` where a script does it. */
  readonly compareAndDelete: 'DELEX' | 'DELIFEQ' | null;
  /** The codes of the warnings about the server itself, as the present connection found it, such as `WARN_LOCK_EVICTION`. */
  readonly risks: readonly LockWarningCode[];
  /**
   * The server's words if the connection is lost and the server refuses the login since, such as `WRONGPASS …`; `null` while
   * it is connected.
   */
  readonly refused: string | null;
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
export function readStats(channel: NativeChannel, campaigns: Campaigns): LockStats {
  const { handOffs, servers, ...counts } = channel.stats();
  const last = handOffs.length - 1;
  return {
    ...counts,
    // A candidate may wait for days: nothing is stuck then.
    waiting: Math.max(0, counts.waiting - campaigns.waiting),
    leads: campaigns.states,
    abandoned: channel.abandoned,
    oldestHold: channel.oldestHold,
    handOffs: handOffs.map((count, slot) => ({
      upTo: slot === last ? Number.POSITIVE_INFINITY : 2 ** slot / 1000,
      count,
    })),
    servers: servers as ServerAbilities[],
  };
}
