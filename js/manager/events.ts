/** The events of a manager. */

import { EventEmitter } from 'node:events';
import type { LockConnectionError, LockError, LockLostError } from '../base/errors.js';
import type { Term, TermEnd } from '../lead/options.js';
import type { Lock } from '../lock/lock.js';

/**
 * The kind of a warning; stable across versions. `docs/operations.md` says what each means, and what to do.
 *
 * @example
 * ```ts
 * import type { LockWarningCode } from 'holdfast'
 *
 * const quiet: ReadonlySet<LockWarningCode> = new Set(['WARN_LOCK_NESTED'])
 * locks.on('warning', ({ code, message }) => quiet.has(code) || console.error(message))
 * ```
 */
export type LockWarningCode =
  | 'WARN_IDEMPOTENCY_STORE'
  | 'WARN_LOCK_ABANDONED'
  | 'WARN_LOCK_ACTIVE_REPLICA'
  | 'WARN_LOCK_CLOCK'
  | 'WARN_LOCK_EVENT'
  | 'WARN_LOCK_EVICTION'
  | 'WARN_LOCK_KINDS'
  | 'WARN_LOCK_LOGIN'
  | 'WARN_LOCK_NESTED'
  | 'WARN_LOCK_PERSISTENCE'
  | 'WARN_LOCK_POLLING'
  | 'WARN_LOCK_REPLICA'
  | 'WARN_LOCK_SAME_SERVER'
  | 'WARN_LOCK_SCRIPTS'
  | 'WARN_LOCK_TARGET'
  | 'WARN_LOCK_UNKEPT'
  | 'WARN_LOCK_UNRELEASED';

/**
 * A warning of a manager: a `LockError` that nothing throws. `lock` is the lock's name, if it is about one.
 *
 * @example
 * ```ts
 * import type { LockWarning } from 'holdfast'
 *
 * locks.on('warning', (warning: LockWarning) => console.error(warning.code, warning.lock, warning.message))
 * ```
 */
export interface LockWarning extends LockError {
  /** The kind of warning. */
  readonly code: LockWarningCode;
}

/**
 * The events of a manager, and the arguments of their listeners.
 *
 * @example
 * ```ts
 * locks.on('lost', (lock, error) => console.error(error.message))
 * locks.on('disconnect', (error) => console.error(error.message))
 * locks.on('reconnect', () => console.error('connected again'))
 * locks.on('close', () => console.error('closed'))
 * locks.on('elected', (term) => console.error(`leads ${term.name} with ${term.fence}`))
 * locks.on('stepDown', (term, end) => console.error(`leads ${term.name} no more: ${end}`))
 * locks.on('warning', (warning) => console.error(warning.code, warning.message))
 * ```
 */
export interface LockManagerEvents {
  /**
   * A lock was lost. Its `signal` is aborted already. Not emitted for locks that `close` releases, nor for a lock with
   * `leaveToExpire` whose lease has ended.
   */
  lost: [lock: Lock, error: LockLostError];
  /**
   * A connection was lost. holdfast reconnects at once; in between, locks stay held until their leases end. There is one
   * connection for each server of a quorum, and of a Cluster for each that has slots. If the server then refuses the login,
   * the event comes once more: the `cause` of its error is a `LockServerError` with the `serverCode`.
   */
  disconnect: [error: LockConnectionError];
  /**
   * A connection is open again. Each `disconnect` of a lost connection is followed by one. If a server of a Cluster has no
   * slots any more, as after a failover, it is emitted once all servers that have slots are connected.
   */
  reconnect: [];
  /**
   * A server or a caller makes the locks slower or less safe than they could be. The `message` says how, and what to
   * do; `docs/operations.md` lists each `code` with its meaning. Each warning is emitted once, not with every
   * connection. Without a listener it becomes a warning of the process.
   */
  warning: [warning: LockWarning];
  /** This process leads, by `lead`: its callback begins. */
  elected: [term: Term];
  /** It leads no more: its term has ended, or is lost while the callback still runs. */
  stepDown: [term: Term, end: TermEnd];
  /** The manager was closed, and holds no lock any more. */
  close: [];
}

/** The events of a manager, and those that Node emits to every EventEmitter. */
const EVENTS: ReadonlySet<unknown> = new Set(
  Object.keys({
    close: 0,
    disconnect: 0,
    elected: 0,
    lost: 0,
    newListener: 0,
    reconnect: 0,
    removeListener: 0,
    stepDown: 0,
    warning: 0,
  } satisfies Record<keyof LockManagerEvents | 'newListener' | 'removeListener', 0>),
);

/** Whether an event has a name that no manager emits. A symbol is not a slip. @internal */
export function isUnknownEvent(event: unknown): event is string {
  return typeof event === 'string' && !EVENTS.has(event);
}

/** The methods of an EventEmitter that add or remove listeners. */
const LISTENING = [
  'addListener',
  'off',
  'on',
  'once',
  'prependListener',
  'prependOnceListener',
  'removeAllListeners',
  'removeListener',
] as const;

/**
 * Calls `changed` with an instance of `emitters`, and an event, whenever its listeners may have changed.
 *
 * @internal
 */
export function onListenerChange<T extends EventEmitter>(
  emitters: { readonly prototype: T },
  changed: (emitter: T, event: string | symbol | undefined) => void,
): void {
  for (const method of LISTENING) {
    const inherited = EventEmitter.prototype[method] as (...args: unknown[]) => unknown;
    const value = function (this: T, ...args: unknown[]): unknown {
      const result = inherited.apply(this, args);
      changed(this, args[0] as string | symbol | undefined);
      return result;
    };
    Object.defineProperty(emitters.prototype, method, {
      value,
      writable: true,
      configurable: true,
    });
  }
}
