/** The numbers of a manager: read by `holdfast/prometheus` and `holdfast/opentelemetry`. */

import { subscribe, tracingChannel, unsubscribe } from 'node:diagnostics_channel';
import { show } from '../base/checks.js';
import { argumentError, type LockLostReason } from '../base/errors.js';
import { isLeaderLock } from '../base/names.js';
import type { LockLostMessage, LockTrace } from '../lock/diagnostics.js';
import type { LockWarningCode } from '../manager/events.js';
import type { LockManager } from '../manager/manager.js';
import { Kinds } from './kinds.js';
import { tolerant } from './tolerant.js';

/** Every reason of a loss that a metric counts, so that each series begins at 0. @internal */
export const LOST_REASONS: readonly LockLostReason[] = [
  'adopted',
  'expired',
  'maxHold',
  'stalled',
  'stolen',
];

/** Every code of a warning, so that each series begins at 0. @internal */
export const WARNING_CODES = Object.keys({
  WARN_IDEMPOTENCY_STORE: 0,
  WARN_LOCK_ABANDONED: 0,
  WARN_LOCK_ACTIVE_REPLICA: 0,
  WARN_LOCK_CLOCK: 0,
  WARN_LOCK_EVENT: 0,
  WARN_LOCK_EVICTION: 0,
  WARN_LOCK_KINDS: 0,
  WARN_LOCK_LOGIN: 0,
  WARN_LOCK_NESTED: 0,
  WARN_LOCK_PERSISTENCE: 0,
  WARN_LOCK_POLLING: 0,
  WARN_LOCK_REPLICA: 0,
  WARN_LOCK_SAME_SERVER: 0,
  WARN_LOCK_SCRIPTS: 0,
  WARN_LOCK_TARGET: 0,
  WARN_LOCK_UNKEPT: 0,
  WARN_LOCK_UNRELEASED: 0,
} satisfies Record<LockWarningCode, 0>) as readonly LockWarningCode[];

/** Refuses what is no manager; one of another copy of the package is one. @internal */
export function checkManager(locks: unknown): asserts locks is LockManager {
  const { clientId, warn } = (locks ?? {}) as Partial<LockManager>;
  if (typeof clientId === 'string' && typeof warn === 'function') return;
  const given = locks instanceof Promise ? 'a promise: await connect(…)' : show(locks);
  const message = `measureLocks takes a manager, the result of connect, got ${given}`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}

/** Gets what a manager does; times in seconds. @internal */
interface MeasureListener {
  /** An acquire has ended: `acquired`, `taken` for a lock that was not free, `aborted`, or the code of an error. */
  acquired(seconds: number, kind: string, outcome: string): void;
  /** A lock is not held any more: `released`, or the reason of its loss. */
  ended(seconds: number, kind: string, end: string): void;
  lost(reason: LockLostReason): void;
}

/** A message of a tracing channel, with what Node adds in the end. */
interface Ended extends LockTrace {
  readonly result?: unknown;
}

/** Observes one manager until it is closed. @internal */
export class Measures {
  readonly #manager: LockManager;
  readonly #listener: MeasureListener;
  readonly #kinds: Kinds;
  readonly #attempt = tolerant('measureLocks');
  /** When each acquire under way has begun, oldest first. */
  readonly #waiting = new Map<object, number>();

  /** `kinds`: the option of `measureLocks`. */
  constructor(manager: LockManager, kinds: unknown, listener: MeasureListener) {
    this.#manager = manager;
    this.#kinds = new Kinds(kinds, (warning) => manager.warn(warning));
    this.#listener = listener;
    acquires.subscribe(this.#acquire);
    releases.subscribe(this.#release);
    subscribe(LOST, this.#lost);
  }

  /** Ends the observation. May be called again. */
  end(): void {
    acquires.unsubscribe(this.#acquire);
    releases.unsubscribe(this.#release);
    unsubscribe(LOST, this.#lost);
  }

  /** For how long the caller that has waited longest has waited, in seconds; 0 if none waits. */
  get oldestWait(): number {
    const [begun] = this.#waiting.values();
    return begun === undefined ? 0 : this.#secondsSince(begun);
  }

  /** The permits of semaphores that the manager holds, by kind, and the highest limit of each kind. */
  get permits(): ReadonlyMap<string, { readonly held: number; readonly limit: number }> {
    const kinds = new Map<string, { readonly held: number; readonly limit: number }>();
    for (const { name, permits, limit } of this.#manager.heldSemaphores()) {
      const kind = this.#kinds.of(name);
      const before = kinds.get(kind) ?? { held: 0, limit: 0 };
      kinds.set(kind, { held: before.held + permits, limit: Math.max(before.limit, limit) });
    }
    return kinds;
  }

  readonly #acquire = {
    start: (message: LockTrace) => {
      // A candidate waits for as long as another leads, which is no measure of anything.
      if (this.#isOurs(message) && !isLeaderLock(message.lock))
        this.#waiting.set(message, this.#manager.now());
    },
    asyncEnd: (message: LockTrace) => {
      const begun = this.#waiting.get(message);
      if (begun === undefined) return;
      this.#waiting.delete(message);
      const { lock, outcome = 'error' } = message;
      this.#attempt(() => {
        this.#listener.acquired(this.#secondsSince(begun), this.#kinds.of(lock), outcome);
      });
    },
    end() {},
    asyncStart() {},
    error() {},
  };

  readonly #release = {
    start() {},
    end() {},
    asyncStart() {},
    asyncEnd: (message: LockTrace) => {
      // A lock that had been lost was counted then.
      if (this.#isOurs(message) && (message as Ended).result === true)
        this.#ended(message, 'released');
    },
    error() {},
  };

  readonly #lost = (message: unknown) => {
    const lost = message as LockLostMessage;
    if (!this.#isOurs(lost)) return;
    this.#attempt(() => this.#listener.lost(lost.error.reason));
    this.#ended(lost, lost.error.reason);
  };

  #secondsSince(ms: number): number {
    return Math.max(0, this.#manager.now() - ms) / 1000;
  }

  #isOurs({ clientId }: LockTrace): boolean {
    return clientId === this.#manager.clientId;
  }

  #ended({ lock, holder }: LockTrace, end: string): void {
    const { since } = holder as { since?: number };
    if (since === undefined) return;
    this.#attempt(() => {
      this.#listener.ended(this.#secondsSince(since), this.#kinds.of(lock), end);
    });
  }
}

const LOST = 'holdfast:lost';
const acquires = tracingChannel<LockTrace, LockTrace>('holdfast:acquire');
const releases = tracingChannel<LockTrace, LockTrace>('holdfast:release');

/** A number of a manager, and its names as a metric, written out so that a search finds them. @internal */
interface Metric {
  readonly prometheus: string;
  readonly opentelemetry: string;
  readonly help: string;
  /** The number now. */
  read(manager: LockManager, measures: Measures): number;
}

/** The counters of `stats()`. @internal */
export const COUNTS: readonly Metric[] = [
  {
    prometheus: 'holdfast_acquired_total',
    opentelemetry: 'holdfast.acquired',
    help: 'Locks acquired',
    read: (manager) => manager.stats().acquired,
  },
  {
    prometheus: 'holdfast_handed_off_total',
    opentelemetry: 'holdfast.handed_off',
    help: 'Locks acquired from another caller of the manager',
    read: (manager) => manager.stats().handedOff,
  },
  {
    prometheus: 'holdfast_timed_out_total',
    opentelemetry: 'holdfast.timed_out',
    help: 'Acquires that waited in vain',
    read: (manager) => manager.stats().timedOut,
  },
  {
    prometheus: 'holdfast_abandoned_total',
    opentelemetry: 'holdfast.abandoned',
    help: 'Locks that nothing referred to any more while they were held',
    read: (manager) => manager.stats().abandoned,
  },
  {
    prometheus: 'holdfast_renewals_total',
    opentelemetry: 'holdfast.renewals',
    help: 'Leases renewed',
    read: (manager) => manager.stats().renewals,
  },
  {
    prometheus: 'holdfast_requests_total',
    opentelemetry: 'holdfast.requests',
    help: 'Requests sent to the server',
    read: (manager) => manager.stats().requests,
  },
];

/** The gauges of each name for which a manager campaigns. @internal */
export const LEADING: Omit<Metric, 'read'> = {
  prometheus: 'holdfast_leading',
  opentelemetry: 'holdfast.leading',
  help: '1 while this manager leads, 0 while it campaigns',
};

/** The gauges of each kind of semaphores of which a manager holds permits. @internal */
export const PERMITS: readonly (Omit<Metric, 'read'> & { readonly of: 'held' | 'limit' })[] = [
  {
    of: 'held',
    prometheus: 'holdfast_permits_held',
    opentelemetry: 'holdfast.permits.held',
    help: 'Permits of semaphores that this manager holds',
  },
  {
    of: 'limit',
    prometheus: 'holdfast_permits_limit',
    opentelemetry: 'holdfast.permits.limit',
    help: 'The highest limit of these semaphores',
  },
];

/** The state of a manager at this moment. @internal */
export const LEVELS: readonly Metric[] = [
  {
    prometheus: 'holdfast_connected',
    opentelemetry: 'holdfast.connected',
    help: '1 while connected, 0 while not',
    read: ({ connected }) => Number(connected),
  },
  {
    prometheus: 'holdfast_idle',
    opentelemetry: 'holdfast.idle',
    help: 'Locks kept for the next caller',
    read: (manager) => manager.stats().idle,
  },
  {
    prometheus: 'holdfast_held',
    opentelemetry: 'holdfast.held',
    help: 'Locks held',
    read: (manager) => manager.stats().held,
  },
  {
    prometheus: 'holdfast_waiting',
    opentelemetry: 'holdfast.waiting',
    help: 'Acquires under way',
    read: (manager) => manager.stats().waiting,
  },
  {
    prometheus: 'holdfast_oldest_hold_seconds',
    opentelemetry: 'holdfast.oldest_hold.duration',
    help: 'For how long the oldest lock has been held',
    read: (manager) => manager.stats().oldestHold / 1000,
  },
  {
    prometheus: 'holdfast_oldest_wait_seconds',
    opentelemetry: 'holdfast.oldest_wait.duration',
    help: 'For how long the oldest acquire under way has waited',
    read: (_, { oldestWait }) => oldestWait,
  },
];
