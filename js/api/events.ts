/** What a manager tells of by itself. */

import { EventEmitter } from 'node:events';
import type { LockConnectionError, LockError, LockLostError } from './errors.js';
import type { Lock } from './lock.js';

/**
 * The events of a manager and what their listeners get.
 *
 * @example
 * ```ts
 * locks.on('lost', (lock, error) => console.error(error.message))
 * locks.on('disconnect', (error) => console.error(error.message))
 * locks.on('reconnect', () => console.error('connected again'))
 * locks.on('warning', (warning) => console.error(warning.code, warning.message))
 * ```
 */
export interface LockManagerEvents {
  /**
   * A lock was lost that had not been released. Its `signal` is aborted already. Not told of what `close`
   * gives up, nor of a lock with `keep` whose lease has ended.
   */
  lost: [lock: Lock, error: LockLostError];
  /** The connection broke. It is made anew at once; locks that are held stay held meanwhile. */
  disconnect: [error: LockConnectionError];
  /** There is a connection again. */
  reconnect: [];
  /**
   * Something makes the manager slower or less safe than it could be; `message` says what, and what to
   * do. Each once, not with every connection: `WARN_LOCK_POLLING`, the ACL forbids messages, so waiters
   * poll; `WARN_LOCK_EVICTION`, a server's `maxmemory-policy` may evict locks; `WARN_LOCK_REPLICA`, the
   * server is a replica; `WARN_LOCK_SAME_SERVER`, two servers of a quorum are one;
   * `WARN_LOCK_PERSISTENCE`, with `longestLease: 0`, one of them may forget locks when it restarts;
   * `WARN_LOCK_NESTED`, code under `request` waits for the lock that the request holds;
   * `WARN_LOCK_ABANDONED`, nothing in the process refers to a lock that is held any more, so nobody can release
   * it. Without a listener it becomes a warning of the process.
   */
  warning: [warning: LockError];
}

/** The methods of an EventEmitter that change who listens. */
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
 * Has `notice` called with an instance of `emitters` whenever its listeners may have changed.
 *
 * @internal
 */
export function noticeListeners<T extends EventEmitter>(
  emitters: { readonly prototype: T },
  notice: (emitter: T) => void,
): void {
  for (const method of LISTENING) {
    const inherited = EventEmitter.prototype[method] as (...args: unknown[]) => unknown;
    const value = function (this: T, ...args: unknown[]): unknown {
      const result = inherited.apply(this, args);
      notice(this);
      return result;
    };
    Object.defineProperty(emitters.prototype, method, {
      value,
      writable: true,
      configurable: true,
    });
  }
}
