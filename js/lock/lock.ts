import type { Duration } from '../base/time.js';

/**
 * How a lock is held: `'exclusive'`, by one holder, or `'shared'`, by any number of holders that use this mode, while
 * the lock has no exclusive holder.
 *
 * @example
 * ```ts
 * await using lock = await locks.acquire('catalogue', { mode: 'shared' })
 * console.log(lock.mode) // shared
 * ```
 */
export type LockMode = 'exclusive' | 'shared';

/**
 * A lock that this process holds, until it is released or its lease ends.
 *
 * @example
 * ```ts
 * const lock = await locks.acquire('item:42')
 * try {
 *   await db.query('UPDATE stock SET n = n - 1, fence = $1 WHERE id = 42 AND fence < $1', [lock.fence])
 * } finally {
 *   await lock.release()
 * }
 * ```
 */
export interface Lock extends AsyncDisposable {
  /** The lock's name. */
  readonly name: string;
  /** `'exclusive'`, or `'shared'` with other holders. Only `downgrade` changes it. */
  readonly mode: LockMode;
  /** How many permits of the `limit` it has; 1 unless its caller asked for more. */
  readonly permits: number;
  /**
   * The fencing token: a safe integer, strictly greater for every later owner of this lock. A
   * resource that refuses smaller fences than it has seen is safe even from an owner that was
   * paused past the end of its lease.
   *
   * Source: <https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html>
   */
  readonly fence: number;
  /** The owner token: the value in Redis while this lock is held. Empty once it was released. */
  readonly token: string;
  /**
   * Whether the lock is still held. Measured by a monotonic clock from before the grant: when the lease ends, it turns
   * false before the server can grant the lock to another client, also in the first line after the event loop was
   * blocked. If the lock was taken by force, or the server lost it, it turns false soon after.
   */
  readonly held: boolean;
  /** How long the lock is still held without another `extend`, in ms; 0 when it is not held. */
  readonly remaining: number;
  /**
   * Aborted, with a `LockLostError` as its reason, when `held` turns false by a loss; never by a release. To read it, or its
   * `aborted`, reads the clock, as `held` does.
   *
   * @example
   * ```ts
   * await using lock = await locks.acquire('item:42')
   * await fetch(shop, { signal: lock.signal })
   * ```
   */
  readonly signal: AbortSignal;

  /**
   * Does nothing while the lock is held.
   *
   * @throws LockLostError if it is not held.
   *
   * @example
   * ```ts
   * await using lock = await locks.acquire('item:42')
   * await settle()
   * lock.assertHeld()   // nothing was lost meanwhile
   * ```
   */
  assertHeld(): void;

  /**
   * Makes the lease last at least `ttl` ms from now, once: when no more than the lock's own `ttl` is left of that, renewals
   * go on with the lock's own `ttl`. Never shortens the lease.
   *
   * A lease never passes the end of `maxHold`: an extension that would is cut to that. Then it resolves all the same, and
   * `remaining` shows what it gave.
   *
   * @param ttl - From 50 to 9e15 ms; by default the lock's own `ttl`.
   * @throws LockLostError if the lock is not held any more.
   * @throws LockConnectionError, LockServerError or LockQuorumError if it did not succeed within
   *   `commandTimeout`: no answer, a refusal, or no majority. The lock is then still held for `remaining` ms. A
   *   refusal that is not transient rejects at once.
   *
   * @example
   * ```ts
   * await using lock = await locks.acquire('export', { renew: false })
   * await lock.extend(60_000)
   * console.log(lock.remaining > 50_000) // true
   *
   * await using brief = await locks.acquire('report', { maxHold: 5_000 })
   * await brief.extend(60_000)
   * console.log(brief.remaining > 5_000) // false
   * ```
   */
  extend(ttl?: Duration): Promise<void>;

  /**
   * Renews the lock no more, and leaves it to expire: it stays held for `remaining` ms, also if the manager is closed or the
   * process ends, unless it is released before. The end of its lease is then no loss: `signal` is aborted, but the manager
   * emits no `lost`. An `extend` lengthens the lease once, as with `renew: false`. Sends nothing.
   *
   * @returns `true` if the rest of the lease is left, `false` if the lock had been lost or released before.
   * @throws LockError `ERR_LOCK_NESTED` if it is the lock of an outer request: this one shares it with `reentrant`, and
   *   the outer one relies on its renewal.
   *
   * @example
   * ```ts
   * const lock = await locks.acquire('mail:7', { ttl: 60_000 })
   * await report('sent')
   * await lock.stopRenewing()   // nobody sends this mail within the next minute
   * console.log(lock.held) // true
   * ```
   */
  stopRenewing(): Promise<boolean>;

  /**
   * Turns an exclusive lock into a shared one without releasing it: waiters that want to share it get their
   * grants. Keeps the fence. Does nothing to a lock that is shared already.
   *
   * A shared lock cannot be upgraded: two holders that both tried would wait for each other for ever. Release
   * it, and acquire it anew.
   *
   * @returns `true` if it is shared now, `false` if it had been lost or released before.
   * @throws LockConnectionError if no answer came within `commandTimeout`; the server may have done it.
   * @throws LockError `ERR_LOCK_NESTED` if it is the lock of an outer request: this one shares it with `reentrant`, and
   *   the outer one relies on it.
   * @throws TypeError `ERR_INVALID_ARG_VALUE` if it has an `owner`, and a lock that is shared has no single one.
   *
   * @example
   * ```ts
   * await using lock = await locks.acquire('catalogue')
   * await rebuild()
   * await lock.downgrade()   // others may read, and none may write
   * await report()
   * ```
   */
  downgrade(): Promise<boolean>;

  /**
   * Releases the lock. `held` is false from the moment of this call.
   *
   * @returns `true` if this call freed it, `false` if it had been lost or released before. With `linger`, or if the lock is
   *   handed to a caller of this process, no server is asked: what has happened to the lock since the last answer about it,
   *   a second before at most, is not known yet.
   * @throws LockConnectionError if no answer came within `commandTimeout`; holdfast repeats the release
   *   when it can reach the server again.
   *
   * @example
   * ```ts
   * const lock = await locks.acquire('item:42')
   * console.log(await lock.release(), await lock.release()) // true false
   * ```
   */
  release(): Promise<boolean>;

  /**
   * The form in which another process adopts the lock with `adopt`; `JSON.stringify(lock)` calls this.
   * Until then this process holds the lock and renews it. Of a released lock the token is empty, and `adopt` refuses it.
   *
   * @example
   * ```ts
   * const lock = await locks.acquire('video:9')
   * const message = JSON.stringify(lock)                          // here
   * const adopted = await others.adopt(JSON.parse(message))       // there
   * console.log(adopted.fence > lock.fence) // true
   * ```
   */
  toJSON(): LockJson;

  /**
   * Releases the lock at the end of an `await using` scope.
   *
   * @example
   * ```ts
   * {
   *   await using lock = await locks.acquire('item:42')
   * }
   * console.log((await locks.query()).held.length) // 0
   * ```
   */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * A lock as it is passed to another process, see `adopt`.
 *
 * @example
 * ```ts
 * const lock = await locks.acquire('video:9')
 * const { name, mode, token, fence } = JSON.parse(JSON.stringify(lock))
 * await others.adopt({ name, mode, token, fence })
 * ```
 */
export interface LockJson {
  /** The lock's name. */
  readonly name: string;
  /** How the lock is held. */
  readonly mode: LockMode;
  /** The owner token: a process that has it can adopt the lock. Empty if the lock was released before. */
  readonly token: string;
  /** The fencing token. */
  readonly fence: number;
  /**
   * The owner that the caller has named: who adopts the lock gets it for the same owner.
   *
   * @default undefined
   */
  readonly owner?: string;
}

/**
 * A lock that nested requests can share. The last user to leave releases it.
 *
 * @internal
 */
export interface SharedHandle extends Lock {
  /** A view of this lock for one more user. */
  enter(): SharedHandle;
  /**
   * Ends the use of this view. Releases the lock if no other user is left, and waits for that if `awaited`; by default if
   * the lock was acquired so.
   */
  exit(awaited?: boolean): Promise<boolean>;
}
