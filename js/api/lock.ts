import type { LockMode } from './options.js';

/**
 * A lock that this process holds, until it is released or its lease runs out.
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
  /** The name it was acquired by. */
  readonly name: string;
  /** `'exclusive'`, or `'shared'` with others that hold it so. Changed by `downgrade` alone. */
  readonly mode: LockMode;
  /**
   * The fencing token: a safe integer, strictly greater for every later owner of this lock. A
   * resource that refuses smaller fences than it has seen is safe even from an owner that was
   * paused past the end of its lease.
   *
   * Source: <https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html>
   */
  readonly fence: number;
  /** The owner token: what stands in Redis while this lock is held. */
  readonly token: string;
  /**
   * Whether the lock is still held. Counted by a monotonic clock from before it was granted, so it
   * turns false before the server can let another in; right even in the first line after the event
   * loop was blocked.
   */
  readonly held: boolean;
  /** How long the lock is still held without another `extend`, in ms; 0 when it is not held. */
  readonly remaining: number;
  /**
   * Aborted, with a `LockLostError` as its reason, the moment the lock is lost and before the server
   * can let another in; never by a release.
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
   * @throws LockLostError if it is not.
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
   * Makes the lease last at least `ttl` ms from now, but not past `maxHold`. Never shortens it.
   *
   * @param ttl - In whole ms from 50 to 86 400 000; by default as long as it was last given.
   * @throws LockLostError if the lock is not held any more.
   * @throws LockConnectionError, LockServerError or LockQuorumError if it could not be done within
   *   `commandTimeout`, whether there was no answer, a refusal or no majority; the lock is then still
   *   held for `remaining` ms. A refusal that time does not mend rejects at once.
   *
   * @example
   * ```ts
   * await using lock = await locks.acquire('export', { renew: false })
   * await lock.extend(60_000)
   * console.log(lock.remaining > 50_000) // true
   * ```
   */
  extend(ttl?: number): Promise<void>;

  /**
   * Turns an exclusive lock into a shared one, at once and without giving it up: others that wait to
   * share it are let in. Keeps the fence. Does nothing to a lock that is shared already.
   *
   * There is no way back: two holders of a shared lock that both want it for themselves would each
   * wait for the other for ever. Release it, and acquire it anew.
   *
   * @returns `true` if it is shared now, `false` if it had been lost or released before.
   * @throws LockConnectionError if no answer came within `commandTimeout`; it may have happened.
   *
   * @example
   * ```ts
   * await using lock = await locks.acquire('catalogue')
   * await rebuild()
   * await lock.downgrade()   // readers may read, nobody else may write
   * await report()
   * ```
   */
  downgrade(): Promise<boolean>;

  /**
   * Gives the lock up. `held` is false from the moment of this call.
   *
   * @returns `true` if this call freed it, `false` if it had been lost or released before.
   * @throws LockConnectionError if no answer came within `commandTimeout`; the release is repeated
   *   when the server can be reached again.
   *
   * @example
   * ```ts
   * const lock = await locks.acquire('item:42')
   * console.log(await lock.release(), await lock.release()) // true false
   * ```
   */
  release(): Promise<boolean>;

  /**
   * What another process needs to take the lock over with `adopt`: `JSON.stringify(lock)` has it.
   * Until it does, the lock stays with this process, which goes on renewing it.
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
 * A lock on its way to another process, see `adopt`.
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
  /** How it is held. */
  readonly mode: LockMode;
  /** The owner token: whoever has it can take the lock over. */
  readonly token: string;
  /** The fencing token. */
  readonly fence: number;
}

/**
 * A lock that nested requests can share; who leaves it last releases it.
 *
 * @internal
 */
export interface SharedHandle extends Lock {
  /** A view of this lock for one more user. */
  enter(): SharedHandle;
  /** One user less. Releases the lock if it was the last. */
  leave(): Promise<boolean>;
}
