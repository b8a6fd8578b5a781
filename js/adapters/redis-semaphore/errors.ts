/** The errors of redis-semaphore. */

/**
 * A lock could not be acquired in time; `cause` says which client holds it.
 *
 * @example
 * ```ts
 * await mutex.acquire().catch((error) => {
 *   if (!(error instanceof TimeoutError)) throw error
 * })
 * ```
 */
export class TimeoutError extends Error {}

/**
 * A lock was lost while it was held; `cause` says how. It is the argument of `onLockLost`.
 *
 * @example
 * ```ts
 * new Mutex(client, 'item:42', { onLockLost: (error) => log.warn(error.message, error.cause) })
 * ```
 */
export class LostLockError extends Error {}
