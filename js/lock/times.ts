/** The times of a lock: their bounds, their checks, and which options they are. */

import { checkBoolean, checkWhole } from '../base/checks.js';
import { argumentError } from '../base/errors.js';
import { milliseconds } from '../base/time.js';
import type { HoldNumbers } from '../native/records.js';

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

/** The options that every lock has when it is acquired. @internal */
export type HoldOptions = Pick<HoldNumbers, 'ttl' | 'renew' | 'maxHold' | 'stallTimeout'>;

/** The options that are lengths of time, of every call that acquires a lock. @internal */
export const LOCK_TIMES: ReadonlySet<string> = new Set([
  'linger',
  'maxHold',
  'stallTimeout',
  'ttl',
  'wait',
]);

/** The options that are lengths of time of a lease, without that of the wait. @internal */
export const HOLD_TIMES: ReadonlySet<string> = new Set([
  'linger',
  'maxHold',
  'stallTimeout',
  'ttl',
]);

/** @internal */
export function checkHold({ ttl, renew, maxHold, stallTimeout }: HoldOptions): void {
  checkTtl(ttl);
  checkBoolean(renew, 'renew');
  checkWholeOrInfinite(maxHold, 'maxHold', TTL_MS_MIN);
  checkWholeOrInfinite(stallTimeout, 'stallTimeout', 1);
}

/** @internal */
export function checkLinger(linger: unknown, ttl: number): void {
  checkWhole(linger, 'linger', 0, Math.floor(ttl / LINGER_PART));
}

/** The `linger` of a manager for a lock with a shorter lease than its others. @internal */
export function lingerWithin(linger: number, ttl: number): number {
  return Math.min(linger, Math.floor(ttl / LINGER_PART));
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
