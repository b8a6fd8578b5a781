/** The options of `runOnce`, and its result. */

import { fillWaiting, type LockDefaults } from '../acquire/check-options.js';
import { checkBoolean, checkObject } from '../base/checks.js';
import type { Duration } from '../base/time.js';
import type { AcquireOptions } from '../lock/options.js';
import type { AcquireRequest } from '../lock/request.js';
import { LOCK_TIMES } from '../lock/times.js';
import { WAIT_NEVER } from '../native/records.js';
import { checkSlots, type Slots } from './planned-times.js';

/**
 * Options of `runOnce`: what a slot is, and those of `acquire` for the lock that the body holds.
 *
 * @example
 * ```ts
 * const slot = '2026-01-31'
 * await locks.runOnce('invoices', { slot, retry: true, wait: 60_000 }, async () => settle())
 * ```
 */
export interface OnceOptions
  extends Pick<
    AcquireOptions,
    'awaitRelease' | 'label' | 'maxHold' | 'signal' | 'stallTimeout' | 'ttl'
  > {
  /**
   * The length of a slot, from 50 ms to 366 days. A call belongs to the multiple
   * of this length since 1970 that is nearest by the server's clock, so processes that start the job at times that
   * differ by less than half of it agree about the slot. One of `every`, `cron` and `slot` is needed.
   *
   * @default undefined
   */
  readonly every?: Duration | undefined;
  /**
   * A cron pattern of five fields, of six with seconds in front, or a name such as `'@daily'`. The slot is the planned time
   * at which the call was made, by the server's clock: the last one, however late the call is, or the next one if that is
   * less than a minute and less than a quarter of the time between the two ahead. When the clocks of `timeZone` change, a
   * pattern with one time a day runs at the end of the gap if that time is skipped, and at the first of two such times; one
   * with several minutes or hours there has no run in the gap, and one at each of two such times.
   *
   * @default undefined
   */
  readonly cron?: string | undefined;
  /**
   * The time zone of `cron`, by its name in the IANA database, such as `'Europe/Berlin'`.
   *
   * @default 'UTC'
   */
  readonly timeZone?: string | undefined;
  /**
   * The name of the slot, such as the time for which a scheduler has planned the run. A `Date` is named as its
   * `toISOString()`.
   *
   * @default undefined
   */
  readonly slot?: string | Date | undefined;
  /**
   * Whether the next caller runs a slot again if its body threw or its process crashed. The body must then be safe to
   * run twice. By default a slot counts as done before its body begins.
   *
   * @default false
   */
  readonly retry?: boolean | undefined;
  /**
   * How long a slot stays done, from 50 ms to 366 days. It must be at least `every`, and longer than any process
   * can be late. With `cron` a slot stays done at least until the next planned time, however far that is.
   *
   * @default 86400000 (24 h); with `every` twice its length, with `cron` 16 times that until the next; from 60000 to 366 days
   */
  readonly keep?: Duration | undefined;
  /**
   * Whether the slot keeps what its body returns, for as long as it is done: every later caller with this option gets it
   * as `value`; with `cron` for the last planned time alone. It is kept as JSON, of up to 65536 bytes, in the key that
   * marks the slot. A larger result, or one that has no JSON, counts as an error of the body.
   *
   * @default false
   */
  readonly keepResult?: boolean | undefined;
  /**
   * How long to wait while another client holds the lock, in whole ms, or `Infinity`. With `retry`, a waiting caller
   * runs the slot if that client crashes.
   *
   * @default 0
   */
  readonly wait?: Duration | undefined;
}

/**
 * The result of `runOnce`.
 *
 * @example
 * ```ts
 * const result = await locks.runOnce('report', { slot: '2026-01-31' }, async () => 42)
 * if (result.ran) console.log(result.value) // 42
 * else console.log(result.reason)
 * ```
 */
export type OnceResult<T> = OnceRan<T> | OnceRefused<T>;

/**
 * The result of a `runOnce` whose body ran.
 *
 * @example
 * ```ts
 * const result = await locks.runOnce('report', { slot: '2026-02-01' }, async () => 42)
 * console.log(result.ran && result.slot) // 2026-02-01
 * ```
 */
export interface OnceRan<T> {
  /** The body ran here. */
  readonly ran: true;
  /** The name of the slot. */
  readonly slot: string;
  /** The body's return value. */
  readonly value: T;
}

/**
 * The result of a `runOnce` whose body did not run.
 *
 * @example
 * ```ts
 * const options = { slot: '2026-02-02' }
 * await others.runOnce('report', options, async () => 42)
 * const result = await locks.runOnce('report', options, async () => 42)
 * console.log(result.ran || result.reason) // done
 * ```
 */
export interface OnceRefused<T = unknown> {
  /** The body did not run here. */
  readonly ran: false;
  /** The name of the slot. */
  readonly slot: string;
  /**
   * The slot is done; or the lock is held by another client, whose body runs for this slot or another.
   */
  readonly reason: 'done' | 'running';
  /**
   * With `keepResult`, what the body of a slot that is done returned, as `JSON.parse` reads it. Missing if the body
   * has not ended, has returned `undefined`, or threw; and if its caller did not ask for `keepResult`.
   *
   * @default undefined
   */
  readonly value?: T;
}

/** The options of a run, checked. @internal */
export interface OnceRequest {
  readonly request: AcquireRequest;
  readonly slots: Slots;
  readonly retry: boolean;
  readonly keepResult: boolean;
}

const OPTIONS = [
  'awaitRelease',
  'cron',
  'every',
  'keep',
  'keepResult',
  'label',
  'maxHold',
  'retry',
  'signal',
  'slot',
  'stallTimeout',
  'timeZone',
];
const TIMES: ReadonlySet<string> = new Set([...LOCK_TIMES, 'every', 'keep']);

/** @internal */
export function checkOnceOptions(options: unknown, defaults: LockDefaults): OnceRequest {
  const known = [...OPTIONS, 'ttl', 'wait'];
  const given = checkObject<OnceOptions>(options, known, 'runOnce', TIMES);
  const { every, cron, timeZone, slot, keep, wait = 0, ...rest } = given;
  const { retry = false, keepResult = false, ...hold } = rest;
  checkBoolean(retry, 'retry');
  checkBoolean(keepResult, 'keepResult');
  const slots = checkSlots({ every, cron, timeZone, slot }, keep);
  const request = fillWaiting({ ...hold, wait }, { ...defaults, renew: true, linger: 0 });
  return {
    request: wait === 0 ? { ...request, wait: WAIT_NEVER } : request,
    slots,
    retry,
    keepResult,
  };
}
