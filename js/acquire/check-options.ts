/** Makes requests of the options of a manager's methods. Nothing is sent before these checks have passed. */

import {
  checkBoolean,
  checkObject,
  checkText,
  checkWholeNumber,
  type Given,
  show,
} from '../base/checks.js';
import { argumentError, LockLostError } from '../base/errors.js';
import { writeLabel } from '../base/label.js';
import { checkName } from '../base/names.js';
import { checkOwner, labelOfOwner } from '../base/owners.js';
import { clientOf } from '../base/tokens.js';
import type { LockJson, LockMode } from '../lock/lock.js';
import type {
  AcquireOptions,
  AdoptOptions,
  ForceReleaseOptions,
  QueryOptions,
  ReleaseOptions,
  RequestOptions,
  TryAcquireOptions,
} from '../lock/options.js';
import type { QueryRequest } from '../lock/query.js';
import type { AcquireRequest } from '../lock/request.js';
import {
  checkHold,
  checkLinger,
  checkWait,
  HOLD_TIMES,
  type HoldOptions,
  LOCK_TIMES,
  lingerWithin,
} from '../lock/times.js';
import { SHARE_EXCLUSIVE, SHARE_UNLIMITED, WAIT_NEVER, WAIT_STEAL } from '../native/records.js';

const COUNT_MAX = 100_000;
const TOKENS_MAX = 10_000;

/** The prefix of a manager's keys, and the defaults of its locks. @internal */
export interface LockDefaults extends HoldOptions {
  /** The beginning of every lock's key. */
  readonly prefix: string;
  readonly label: string;
  readonly wait: number;
  readonly linger: number;
  readonly awaitRelease: boolean;
}

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
  refuseHyphens(names);
  refuseContradictions(given, notSupported);
  return request;
}

/** Refuses names that Web Locks reserve. @internal */
export function refuseHyphens(names: readonly string[]): void {
  if (!names.some((name) => name.startsWith('-'))) return;
  throw notSupported('the name of a request must not begin with a hyphen, as with Web Locks');
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
export function checkForceReleaseOptions(name: string, options: unknown): ForceReleaseRequest {
  refuseOwner(name, options);
  const given = checkObject<ForceReleaseOptions>(options, ['foreign', 'token'], 'forceRelease');
  const { foreign = false, token } = given;
  checkBoolean(foreign, 'foreign');
  if (token === undefined) return { foreign, tokens: [] };
  const tokens = Array.isArray(token) ? token : [token];
  checkWholeNumber(tokens.length, 'the number of tokens', 1, TOKENS_MAX);
  for (const each of tokens) checkText(each, 'token');
  return { foreign, tokens };
}

/** An owner is a name that a caller has chosen; its locks have a method of their own. */
function refuseOwner(name: string, options: unknown): void {
  const { owner } = Object(options) as { owner?: unknown };
  if (owner === undefined) return;
  const calls = `for the lock of an owner call release(${show(name)}, { owner: ${show(owner)} }), for one hold forceRelease(${show(name)}, { token })`;
  throw argumentError('ERR_INVALID_ARG_VALUE', `forceRelease has no option "owner": ${calls}`);
}

/** The options of `forceRelease`. `tokens`: empty for whoever holds the lock. @internal */
interface ForceReleaseRequest {
  readonly foreign: boolean;
  readonly tokens: readonly string[];
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
  const linger = given.linger ?? lingerWithin(defaults.linger, ttl);
  checkLinger(linger, ttl);
  // The lock of an owner is not this manager's: only the server ends it, and no other caller here gets it.
  const isOwned = owner !== undefined;
  // One literal: V8 (Node 20) took 5 µs for the copy of an object, at times, and none for this.
  return {
    ttl,
    renew,
    maxHold,
    stallTimeout,
    leaveToExpire: isOwned || leaveToExpire,
    linger: isOwned ? 0 : linger,
    label,
    share: checkShare(given),
    permits: checkPermits(given),
    wait,
    signal,
    reentrant,
    owner,
    awaitRelease,
    origin: undefined,
  };
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
