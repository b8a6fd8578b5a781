/** The options of a manager's methods, and their checks. Nothing is sent before these have passed. */

import {
  checkBoolean,
  checkObject,
  checkText,
  checkWhole,
  checkWholeNumber,
  type Given,
  show,
} from '../base/checks.js';
import { argumentError, LockLostError } from '../base/errors.js';
import { writeLabel } from '../base/label.js';
import { checkName } from '../base/names.js';
import { checkOwner, labelOfOwner } from '../base/owners.js';
import { type Duration, milliseconds } from '../base/time.js';
import { clientOf } from '../base/tokens.js';
import { SHARE_EXCLUSIVE, SHARE_UNLIMITED, WAIT_NEVER, WAIT_STEAL } from '../native/records.js';
import type { LockJson, LockMode } from './lock.js';

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
   * Releases the lock only from these owners: their tokens, as `query` shows them, or the names of an `owner`. If anybody else holds the lock or a
   * share of it by then, nothing is done. Of other code, with `foreign`, it is the value of the key. 10 000 at most.
   *
   * @default undefined (whoever holds it)
   */
  readonly owner?: string | readonly string[] | undefined;
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
   * often, so a lock that the server has lost is known to be lost as soon.
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

/** The bounds of a lease, in ms. @internal */
export const TTL_MS_MIN = 50;
/**
 * The end of the longest lease is still an exact number of ms, and so are all sums of it in the scripts, until 2198. The
 * core counts in µs, of which 64 bits have room for twice as long.
 *
 * @internal
 */
export const TTL_MS_MAX = 9_000_000_000_000_000;
/** A third of the lease is over when it is renewed. */
const LINGER_PART = 3;
const COUNT_MAX = 100_000;
const OWNERS_MAX = 10_000;

/** The options that every lock has when it is acquired. @internal */
export interface HoldOptions {
  readonly ttl: number;
  readonly renew: boolean;
  readonly maxHold: number;
  readonly stallTimeout: number;
}

/** A call that takes several locks one by one. @internal */
export interface SetCall {
  /** For how long it has waited, in ms. */
  readonly waited: () => number;
  /** How many locks it asks for. */
  readonly size: number;
}

/** The prefix of a manager's keys, and the defaults of its locks. @internal */
export interface LockDefaults extends HoldOptions {
  /** The beginning of every lock's key. */
  readonly prefix: string;
  readonly label: string;
  readonly wait: number;
  readonly linger: number;
  readonly awaitRelease: boolean;
}

/** A caller's request, with every default filled in. @internal */
export interface AcquireRequest extends HoldOptions {
  readonly label: string;
  /** `WAIT_NEVER`, `WAIT_STEAL`, or ms. */
  readonly wait: number;
  readonly signal: AbortSignal | undefined;
  /** `SHARE_EXCLUSIVE`, `SHARE_UNLIMITED`, or the limit. */
  readonly share: number;
  /** How many of the limit it takes. */
  readonly permits: number;
  readonly reentrant: boolean;
  /** The owner that the caller has named. */
  readonly owner?: string | undefined;
  /** The call, if it takes several locks one by one. */
  readonly set?: SetCall;
  /** Whether the end of the manager leaves the lock to expire. */
  readonly leaveToExpire: boolean;
  /** How long the manager keeps the lock for its next caller, in ms. */
  readonly linger: number;
  /** Whether the end of a request or a block awaits the release. */
  readonly awaitRelease: boolean;
  /** The calls that led here, if `HOLDFAST_TRACE` is 1. */
  readonly origin: string | undefined;
}

/** The options that are lengths of time, of every call that acquires a lock. @internal */
export const LOCK_TIMES: ReadonlySet<string> = new Set([
  'linger',
  'maxHold',
  'stallTimeout',
  'ttl',
  'wait',
]);

/** Those of a lease, without that of the wait. */
const HOLD_TIMES: ReadonlySet<string> = new Set(['linger', 'maxHold', 'stallTimeout', 'ttl']);

const ADOPT_OPTIONS = ['label', 'maxHold', 'renew', 'stallTimeout', 'ttl'];
const TRY_ACQUIRE_OPTIONS = [
  ...ADOPT_OPTIONS,
  'awaitRelease',
  'leaveToExpire',
  'limit',
  'linger',
  'mode',
  'owner',
  'permits',
];
const ACQUIRE_OPTIONS = [...TRY_ACQUIRE_OPTIONS, 'signal', 'steal', 'wait'];
const REQUEST_OPTIONS = [...ACQUIRE_OPTIONS, 'ifAvailable', 'reentrant'];

/** @internal */
export function checkAcquireOptions(options: unknown, defaults: LockDefaults): AcquireRequest {
  const given = checkObject<AcquireOptions>(options, ACQUIRE_OPTIONS, 'acquire', LOCK_TIMES);
  const request = fillWaiting(given, defaults);
  refuseContradictions(given, (message) => argumentError('ERR_INVALID_ARG_VALUE', message));
  return request;
}

/**
 * Checks in the order of Web Locks in Node: types, the signal, the name, contradictions. `isShared`: the lease is that of a
 * request around the call, so the call's own lengths of time do not apply, and may be those of no lease.
 *
 * @internal
 */
export function checkRequestOptions(
  names: readonly string[],
  options: unknown,
  defaults: LockDefaults,
  isShared: boolean,
): AcquireRequest {
  const given = checkObject<RequestOptions>(options, REQUEST_OPTIONS, 'request', LOCK_TIMES);
  const request = fillWaiting(isShared ? withoutHold(given) : given, defaults);
  given.signal?.throwIfAborted();
  if (names.some((name) => name.startsWith('-'))) {
    throw notSupported('the name of a request must not begin with a hyphen, as with Web Locks');
  }
  refuseContradictions(given, notSupported);
  return request;
}

/** @internal */
export function checkTryAcquireOptions(options: unknown, defaults: LockDefaults): AcquireRequest {
  const given = checkObject<TryAcquireOptions>(
    options,
    TRY_ACQUIRE_OPTIONS,
    'tryAcquire',
    LOCK_TIMES,
  );
  return fillHolding(given, defaults);
}

/** @internal */
export function checkAdoptOptions(
  options: unknown,
  defaults: LockDefaults,
  owner?: string,
): AcquireRequest {
  const given = checkObject<AdoptOptions>(options, ADOPT_OPTIONS, 'adopt', LOCK_TIMES);
  const owned = owner === undefined ? given : { ...given, owner };
  return fillHolding(owned, { ...defaults, label: '' });
}

/** Checks what `adopt` is given. Without a token it is a name and an owner. @internal */
export function checkLockJson(lock: unknown): {
  name: string;
  token: string | undefined;
  share: number;
  owner: string | undefined;
} {
  if (typeof lock !== 'object' || lock === null || Array.isArray(lock)) {
    const message = `adopt takes the result of a lock's toJSON(), an object; got ${show(lock)}`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  // Other properties are ignored: a later version may add some.
  const { name, token, fence, mode, owner } = lock as LockJson;
  checkName(name);
  if (owner !== undefined) checkOwner(owner);
  if (owner !== undefined && token === undefined) {
    return { name, token, share: SHARE_EXCLUSIVE, owner };
  }
  checkText(token, 'token');
  if (token === '') {
    const message = `cannot adopt lock "${name}": it was released before its toJSON() was called`;
    throw new LockLostError(message, name, 'released');
  }
  if (clientOf(token) === null) {
    const message = `token must be the token of a lock of holdfast, got ${show(token)}`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  if (fence !== undefined) checkWholeNumber(fence, 'fence', 1, Number.MAX_SAFE_INTEGER);
  const share = checkShare(mode === undefined ? {} : { mode });
  if (owner !== undefined) checkOwned(owner, { mode });
  return { name, token, share, owner };
}

/** Checks the options of `release`, and answers the owner. @internal */
export function checkReleaseOptions(options: unknown): string {
  const { owner } = checkObject<ReleaseOptions>(options, ['owner'], 'release');
  checkOwner(owner);
  return owner;
}

/** @internal */
export function checkForceReleaseOptions(options: unknown): ForceReleaseRequest {
  const given = checkObject<ForceReleaseOptions>(options, ['foreign', 'owner'], 'forceRelease');
  const { foreign = false, owner } = given;
  checkBoolean(foreign, 'foreign');
  if (owner === undefined) return { foreign, owners: [] };
  const owners = Array.isArray(owner) ? owner : [owner];
  checkWholeNumber(owners.length, 'the number of owners', 1, OWNERS_MAX);
  for (const each of owners) checkText(each, 'owner');
  return { foreign, owners };
}

/** The options of `forceRelease`. `owners`: empty for whoever holds the lock. @internal */
export interface ForceReleaseRequest {
  readonly foreign: boolean;
  readonly owners: readonly string[];
}

/** The options of `query`. `whole`: `text` is a name, otherwise the beginning of names. @internal */
export interface QueryRequest {
  readonly count: number;
  readonly text: string;
  readonly whole: boolean;
}

/** @internal */
export function checkQueryOptions(options: unknown): QueryRequest {
  const given = checkObject<QueryOptions>(options, ['count', 'name', 'startsWith'], 'query');
  const { count = 1_000, name, startsWith = '' } = given;
  checkWholeNumber(count, 'count', 1, COUNT_MAX);
  checkText(startsWith, 'startsWith');
  if (name === undefined) return { count, text: startsWith, whole: false };
  checkName(name);
  if (given.startsWith !== undefined) {
    const message = 'query takes "name" or "startsWith", not both';
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  return { count, text: name, whole: true };
}

/** Checks the options of a call that may wait, and fills its request in. @internal */
export function fillWaiting(given: Given<RequestOptions>, defaults: LockDefaults): AcquireRequest {
  const { wait = defaults.wait, signal, steal = false, ifAvailable = false } = given;
  const { reentrant = false } = given;
  checkWait(wait);
  checkSignal(signal);
  checkBoolean(steal, 'steal');
  checkBoolean(ifAvailable, 'ifAvailable');
  checkBoolean(reentrant, 'reentrant');
  const chosen = steal ? WAIT_STEAL : ifAvailable ? WAIT_NEVER : wait;
  return fillHolding(given, defaults, { wait: chosen, signal, reentrant });
}

/** Leaves out the numbers that are about a lease of one's own. */
function withoutHold(given: Given<RequestOptions>): Given<RequestOptions> {
  const entries = Object.entries(given);
  return Object.fromEntries(
    entries.filter(([name, value]) => typeof value !== 'number' || !HOLD_TIMES.has(name)),
  );
}

const NOT_WAITING = { wait: WAIT_NEVER, signal: undefined, reentrant: false };

/** Fills in the options that matter while the lock is held, beside those of the wait. */
function fillHolding(
  given: Given<TryAcquireOptions>,
  defaults: LockDefaults,
  { wait, signal, reentrant }: Pick<AcquireRequest, 'wait' | 'signal' | 'reentrant'> = NOT_WAITING,
): AcquireRequest {
  const { ttl = defaults.ttl, renew = defaults.renew, maxHold = defaults.maxHold } = given;
  const { stallTimeout = defaults.stallTimeout, leaveToExpire = false } = given;
  const { awaitRelease = defaults.awaitRelease } = given;
  checkBoolean(awaitRelease, 'awaitRelease');
  checkHold({ ttl, renew, maxHold, stallTimeout });
  const { owner } = given;
  if (owner !== undefined) checkOwned(owner, given);
  const chosen = given.label === undefined ? defaults.label : checkLabel(given.label);
  const label = owner === undefined ? chosen : labelOfOwner(owner);
  checkBoolean(leaveToExpire, 'leaveToExpire');
  if (leaveToExpire && renew) {
    const message = 'leaveToExpire needs renew: false, since a renewed lock does not expire';
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  const linger = given.linger ?? Math.min(defaults.linger, Math.floor(ttl / LINGER_PART));
  checkLinger(linger, ttl);
  const share = checkShare(given);
  // Not the object that was checked: with that one V8 (Node 20) took 5 µs for the copy, instead of 0.1.
  const hold = { ttl, renew, maxHold, stallTimeout, leaveToExpire, linger };
  // The lock of an owner is not this manager's: only the server ends it, and no other caller here gets it.
  if (owner !== undefined) Object.assign(hold, { leaveToExpire: true, linger: 0 });
  return {
    ...hold,
    label,
    share,
    permits: checkPermits(given),
    wait,
    signal,
    reentrant,
    owner,
    awaitRelease,
    origin: undefined,
  };
}

/** @internal */
export function checkLinger(linger: unknown, ttl: number): void {
  checkWhole(linger, 'linger', 0, Math.floor(ttl / LINGER_PART));
}

/** Checks an owner, and that nothing is given that it excludes. */
function checkOwned(
  owner: unknown,
  { label, mode }: { readonly label?: string; readonly mode?: LockMode | undefined },
): void {
  checkOwner(owner);
  if (mode === 'shared') {
    const message = `owner is for mode 'exclusive': a lock that is shared has no single owner`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  if (label === undefined) return;
  const message = 'owner and label exclude each other: the owner is shown as the label';
  throw argumentError('ERR_INVALID_ARG_VALUE', message);
}

function checkLabel(label: unknown): string {
  checkText(label, 'label');
  return writeLabel(label);
}

function checkShare({ mode = 'exclusive', limit }: Given<TryAcquireOptions>): number {
  if (mode !== 'exclusive' && mode !== 'shared') {
    const message = `mode must be 'exclusive' or 'shared', got ${show(mode)}`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  if (limit === undefined) return mode === 'shared' ? SHARE_UNLIMITED : SHARE_EXCLUSIVE;
  if (mode !== 'shared') {
    const message = `limit needs mode 'shared', since an exclusive lock has one holder`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  checkWholeNumber(limit, 'limit', 1, Number.MAX_SAFE_INTEGER);
  return limit;
}

function checkPermits({ limit, permits }: Given<TryAcquireOptions>): number {
  if (permits === undefined) return 1;
  if (limit === undefined) {
    throw argumentError('ERR_INVALID_ARG_VALUE', 'permits needs a limit, of which it is a part');
  }
  checkWholeNumber(permits, 'permits', 1, limit);
  return permits;
}

/** Options that exclude each other; `refusal` makes the error. */
function refuseContradictions(
  given: Given<RequestOptions>,
  refusal: (message: string) => Error,
): void {
  const { ifAvailable = false, mode, signal, steal = false, wait } = given;
  if (ifAvailable && steal) throw refusal('ifAvailable and steal exclude each other');
  if (steal && mode === 'shared') throw refusal(`steal is for mode 'exclusive'`);
  if (!steal && !ifAvailable) return;
  const what = steal ? 'steal' : 'ifAvailable';
  if (signal !== undefined) throw refusal(`signal is without effect: ${what} never waits`);
  if (wait !== undefined) throw refusal(`wait is without effect: ${what} never waits`);
}

/** The error that Web Locks throw. */
function notSupported(message: string): Error {
  return new DOMException(message, 'NotSupportedError');
}

/** @internal */
export function checkHold({ ttl, renew, maxHold, stallTimeout }: HoldOptions): void {
  checkTtl(ttl);
  checkBoolean(renew, 'renew');
  checkWholeOrInfinite(maxHold, 'maxHold', TTL_MS_MIN);
  checkWholeOrInfinite(stallTimeout, 'stallTimeout', 1);
}

function checkSignal(signal: unknown): void {
  if (signal === undefined || isSignal(signal)) return;
  const message = `signal must be an AbortSignal, got ${show(signal)}`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}

/** Whether `value` is an AbortSignal, also one of another realm, which is no instance of this realm's class. */
function isSignal(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const signal = value as Partial<AbortSignal>;
  const methods = ['addEventListener', 'removeEventListener', 'throwIfAborted'] as const;
  try {
    const whole = 'reason' in value && methods.every((each) => typeof signal[each] === 'function');
    return whole && typeof signal.aborted === 'boolean';
  } catch {
    // The getter throws on an object that only inherits from the class.
    return false;
  }
}

/** Checks the `ttl` that an extension is given, and answers it in ms. @internal */
export function readTtl(ttl: unknown): number {
  const ms: unknown = typeof ttl === 'string' ? milliseconds(ttl, 'ttl') : ttl;
  checkTtl(ms);
  return ms;
}

/** @internal */
export function checkTtl(ttl: unknown): asserts ttl is number {
  if (ttl === null || ttl === Number.POSITIVE_INFINITY) {
    const code = ttl === null ? 'ERR_INVALID_ARG_TYPE' : 'ERR_OUT_OF_RANGE';
    const message = `ttl must be whole ms, ${TTL_MS_MIN} to ${TTL_MS_MAX}, got ${ttl}: a lock without an end would outlive the crash of its holder, so let a short lease be renewed (the default), or choose a long one, such as '365d'`;
    throw argumentError(code, message);
  }
  checkWhole(ttl, 'ttl', TTL_MS_MIN, TTL_MS_MAX);
}

/** @internal */
export function checkWait(wait: unknown): void {
  checkWholeOrInfinite(wait, 'wait', 0);
}

function checkWholeOrInfinite(value: unknown, what: string, least: number): void {
  if (value === Number.POSITIVE_INFINITY) return;
  checkWhole(value, what, least, Number.MAX_SAFE_INTEGER);
}
