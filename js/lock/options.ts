/** The options of a manager's methods. */

import type { Duration } from '../base/time.js';
import type { LockMode } from './lock.js';

/**
 * Options of `acquire`.
 *
 * @example
 * ```ts
 * await using lock = await locks.acquire('item:42', { wait: 5_000, label: 'shop-3' })
 * ```
 */
export interface AcquireOptions extends TryAcquireOptions {
  /**
   * How long to wait while another client holds the lock, or while the server cannot be reached, in whole ms; of several
   * names for all together. `0` tries once, `Infinity` waits until the lock is granted. One answer of the server is
   * waited for in any case, for `commandTimeout` at most.
   *
   * @default the `wait` of `connect` if that was given, or else 10000
   */
  readonly wait?: Duration | undefined;
  /**
   * Ends the wait when it is aborted; `acquire` then rejects with the signal's reason. Has no effect once the
   * lock was granted.
   *
   * @default undefined
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * Takes the lock from its holder at once, before all waiters: the holder's `signal` is aborted with the reason
   * `stolen`, but nothing stops the work that it has begun, so the resource should check the `fence`. Does not take the
   * lock from other code. Not with `mode: 'shared'`, `signal` or `wait`.
   *
   * @default false
   */
  readonly steal?: boolean | undefined;
}

/**
 * Options of `request`: those of `acquire`, and two of its own.
 *
 * @example
 * ```ts
 * await locks.request('cron', { ifAvailable: true }, async (lock) => {
 *   console.log(lock !== null) // true
 * })
 * ```
 */
export interface RequestOptions extends AcquireOptions {
  /**
   * Does not wait: if another client holds the lock, the callback gets `null` in its place. Not with
   * `signal`, `steal` or `wait`.
   *
   * @default false
   */
  readonly ifAvailable?: boolean | undefined;
  /**
   * Whether the callback may share the lock of a `request` around this one: it then gets that lease, at once
   * and without the server, and the lock is released when the last callback that shares it has ended. Nested
   * requests in one `Promise.all` share the lock too, and so do not exclude each other. The options of the
   * outermost request apply to the lease.
   *
   * A nested request that cannot share the lock waits for the end of the outer request, up to its `wait`: without this
   * option, or if the outer one shares the lock and this one wants it exclusively. If the outer request awaits it, neither
   * goes on until then. After one second of such a wait the manager warns (`WARN_LOCK_NESTED`).
   *
   * @default false
   */
  readonly reentrant?: boolean | undefined;
}

/**
 * Options of `forceRelease`.
 *
 * @example
 * ```ts
 * console.log(await locks.forceRelease('report', { foreign: true })) // false
 * ```
 */
export interface ForceReleaseOptions {
  /**
   * Also deletes the value of other code that uses the same key.
   *
   * @default false
   */
  readonly foreign?: boolean | undefined;
  /**
   * Releases the lock only from these holds: their tokens, as `query` shows them. If anybody else holds the lock or a share
   * of it by then, nothing is done. Of other code, with `foreign`, it is the value of the key. 10 000 at most. The lock of an
   * `owner` is released by `release`.
   *
   * @default undefined (whoever holds it)
   */
  readonly token?: string | readonly string[] | undefined;
}

/**
 * Options of `release`.
 *
 * @example
 * ```ts
 * await locks.acquire('order:7', { owner: 'checkout-7' })
 * console.log(await others.release('order:7', { owner: 'checkout-7' })) // true
 * ```
 */
export interface ReleaseOptions {
  /** The owner for whom the lock was acquired. If another one has it, nothing is done. */
  readonly owner: string;
}

/**
 * Options of `query`.
 *
 * @example
 * ```ts
 * const { held } = await locks.query({ startsWith: 'item:', count: 500 })
 * ```
 */
export interface QueryOptions {
  /**
   * Only locks whose names begin with this text.
   *
   * @default ''
   */
  readonly startsWith?: string | undefined;
  /**
   * Only the lock of this name. It is read by its key, without a scan, so it costs next to nothing on a large
   * database. Not together with `startsWith`.
   *
   * @default undefined
   */
  readonly name?: string | undefined;
  /**
   * How many keys of the database one page scans, whether or not they are locks: from 1 to 100 000.
   * The server does nothing else meanwhile, for about a ms per thousand.
   *
   * @default 1000
   */
  readonly count?: number | undefined;
}

/**
 * Options of `tryAcquire`.
 *
 * @example
 * ```ts
 * const permit = await locks.tryAcquire('api', { mode: 'shared', limit: 10, label: 'shop-3' })
 * console.log(permit !== null) // true
 * ```
 */
export interface TryAcquireOptions extends AdoptOptions {
  /**
   * `'exclusive'` to hold the lock alone, `'shared'` to hold it together with all others that use this mode. Waiters
   * are served in order, whatever their mode: a shared waiter waits behind an earlier exclusive one.
   *
   * @default 'exclusive'
   */
  readonly mode?: LockMode | undefined;
  /**
   * Only with `mode: 'shared'`: the largest number of holders that the lock may have, this caller included,
   * a whole number from 1 to 2⁵³ − 1; or of permits, if some holders take several, such as bytes. If all callers give the same
   * number, the lock is a semaphore. If not, a waiter with a lower limit at the head of the queue also holds up those with higher limits behind it.
   *
   * @default undefined, no limit
   */
  readonly limit?: number | undefined;
  /**
   * The owner of the lock, as a workflow whose steps run in several processes: 1 to 256 bytes of UTF-8. Whoever names the
   * same owner gets the lock again, in any process, with a greater fence, and whoever had it before for this owner loses it
   * (`adopted`); and `locks.release(name, { owner })` releases it without a `Lock`. **Whoever knows the owner may do so**, so it should be a text that nobody guesses, and
   * that no two pieces of work share. The lock belongs to the owner, not to this process: only a release or the end of its
   * lease ends it, as with `leaveToExpire`, also when the manager is closed or has lost it. The owner is its label, too. For
   * one name, and not with `mode: 'shared'`, `label` or a quorum.
   *
   * @default undefined (this caller alone)
   */
  readonly owner?: string | undefined;
  /**
   * Only with `limit`: how many of the `limit` permits this holder takes, a whole number from 1 to `limit`. It gets all
   * of them or none, and a waiter for many is not overtaken by later ones for few.
   *
   * @default 1
   *
   * @example
   * ```ts
   * await using half = await locks.acquire('gpu', { mode: 'shared', limit: 8, permits: 4 })
   * console.log(half.permits) // 4
   * ```
   */
  readonly permits?: number | undefined;
  /**
   * Only with `renew: false`: a lock that was not released stays held until its lease ends, even if the manager is
   * closed, the process ends or `maxHold` is over before. The end of its lease is then not a loss. For work that one of many processes may
   * do once per `ttl`. By default the end of the manager releases the lock.
   *
   * @default false
   */
  readonly leaveToExpire?: boolean | undefined;
  /**
   * How long the manager keeps the lock for its own next caller once it was released and no caller here waits, in whole ms
   * up to a third of `ttl`: that caller gets it without asking the server, with a fence of its own. `tryAcquire` elsewhere
   * finds the lock held. So much later than it was first kept it is free in the next pause, however often it was taken
   * meanwhile. For a lock that one process takes again and again. If the process is killed or frozen meanwhile, others wait
   * until the lease ends: for up to `ttl`. No effect with `mode: 'shared'`, `renew: false`, on a quorum, if the lock's
   * `token` was read, or if a round trip takes longer than half a second or a 32nd of `ttl`.
   *
   * @default the `linger` of `connect`, up to a third of `ttl`, or else 0
   */
  readonly linger?: Duration | undefined;
  /**
   * Whether the end of `request`, `runOnce` and an `await using` block waits until the server has confirmed the release.
   * With `false` it waits only until the release is handed to the connection, which saves a round trip: the next caller of
   * this manager follows on that connection, and others get the lock as soon as ever, but it may still be held when the
   * promise resolves. If the release fails, the manager emits the warning `WARN_LOCK_UNRELEASED`. `lock.release()` always
   * waits.
   *
   * @default the `awaitRelease` of `connect`, or else true
   */
  readonly awaitRelease?: boolean | undefined;
}

/**
 * Options of `adopt`, which apply from then on.
 *
 * @example
 * ```ts
 * const lock = await locks.acquire('video:9')
 * await others.adopt(lock.toJSON(), { ttl: 60_000, maxHold: 3_600_000 })
 * ```
 */
export interface AdoptOptions {
  /**
   * A name of the caller for people: `query`, the command line and the errors of waiters show it as it is given, up to 80
   * characters. In Redis it has up to 240 bytes, three for each byte of UTF-8 but `A-Z a-z 0-9 . _ ~ -`. A longer label is
   * cut, and a control character becomes `-`.
   *
   * @default the `label` of `connect`; with `adopt` the label that the lock has, also if this is `''`
   */
  readonly label?: string | undefined;
  /**
   * The lease: how long the lock stays held if this process dies, in whole ms from 50 to
   * 9e15. A crashed holder blocks other clients for this long at most.
   *
   * @default 10000
   */
  readonly ttl?: Duration | undefined;
  /**
   * Whether the lease is renewed, at a third of its length, until the lock is released. A native
   * thread renews it, so a blocked event loop does not lose the lock. With `false` the server is asked about the lock as
   * often, so a lock that the server has lost is known to be lost as soon; and one that another caller of this manager hands off may
   * have up to a 64th of `ttl` less left.
   *
   * @default true
   */
  readonly renew?: boolean | undefined;
  /**
   * The longest time that the lock is held, renewals and extensions included, in whole ms from 50, or `Infinity`. After
   * that time the lock is released, and its `signal` is aborted. It is counted as a lease is, less 1 % and 2 ms: so no
   * renewal and no `extend` asks the server for a lease that ends later. The first lease has the whole `ttl`.
   *
   * @default Infinity
   */
  readonly maxHold?: Duration | undefined;
  /**
   * How long the event loop may be blocked before renewal pauses, in whole ms from 1, or
   * `Infinity`: a process that hangs for ever must not hold the lock for ever. Means nothing with `renew: false`, since
   * such a lease ends by itself.
   *
   * @default 30000
   */
  readonly stallTimeout?: Duration | undefined;
}
