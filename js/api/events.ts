/** The events of a manager. */

import { EventEmitter } from 'node:events';
import type { LockConnectionError, LockError, LockLostError } from './errors.js';
import type { Lock } from './lock.js';

/**
 * The events of a manager, and the arguments of their listeners.
 *
 * @example
 * ```ts
 * locks.on('lost', (lock, error) => console.error(error.message))
 * locks.on('disconnect', (error) => console.error(error.message))
 * locks.on('reconnect', () => console.error('connected again'))
 * locks.on('close', () => console.error('closed'))
 * locks.on('warning', (warning) => console.error(warning.code, warning.message))
 * ```
 */
export interface LockManagerEvents {
  /**
   * A lock was lost that had not been released. Its `signal` is aborted already. Not emitted for locks that
   * `close` gives up, nor for a lock with `leaveToExpire` whose lease has ended.
   */
  lost: [lock: Lock, error: LockLostError];
  /** The connection was lost. holdfast reconnects at once; locks that are held stay held meanwhile. */
  disconnect: [error: LockConnectionError];
  /** The connection is back. */
  reconnect: [];
  /**
   * Something makes the manager slower or less safe than it could be; `message` says what, and what to
   * do. Each is emitted once, not with every connection: `WARN_LOCK_POLLING`, the ACL forbids messages, so waiters
   * poll; `WARN_LOCK_SCRIPTS`, the ACL forbids the fence counter or a command, so locks cost the server more;
   * `WARN_LOCK_CLOCK`, scripts may not read the server's clock, so exclusive locks alone work, and waiters poll;
   * `WARN_LOCK_EVICTION`, a server's `maxmemory-policy` may evict locks; `WARN_LOCK_REPLICA`, the
   * server is a replica; `WARN_LOCK_SAME_SERVER`, two servers of a quorum are one;
   * `WARN_LOCK_PERSISTENCE`, with `longestLease: 0`, one of them may forget locks when it restarts;
   * `WARN_LOCK_ABANDONED`, nothing in the process refers to a held lock any more, so nothing can release
   * it; `WARN_LOCK_TARGET`, `connect` got no target, so the locks are kept on localhost. Without a listener it becomes a warning of the process.
   */
  warning: [warning: LockError];
  /** The manager was closed, and has given up all its locks. */
  close: [];
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
 * Calls `changed` with an instance of `emitters` whenever its listeners may have changed.
 *
 * @internal
 */
export function onListenerChange<T extends EventEmitter>(
  emitters: { readonly prototype: T },
  changed: (emitter: T) => void,
): void {
  for (const method of LISTENING) {
    const inherited = EventEmitter.prototype[method] as (...args: unknown[]) => unknown;
    const value = function (this: T, ...args: unknown[]): unknown {
      const result = inherited.apply(this, args);
      changed(this);
      return result;
    };
    Object.defineProperty(emitters.prototype, method, {
      value,
      writable: true,
      configurable: true,
    });
  }
}
