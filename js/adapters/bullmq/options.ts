/** The options of `oneAtATime` and `mayBlock`, and the types of their handlers and processors. */

import type { Job } from 'bullmq';
import { checkObject, checkText, checkWholeNumber, show } from '../../base/checks.js';
import { argumentError } from '../../base/errors.js';
import { type Duration, milliseconds } from '../../base/time.js';
import type { Lock } from '../../lock/lock.js';
import type { AcquireOptions } from '../../lock/options.js';
import { checkHold, LOCK_TIMES, TTL_MS_MIN } from '../../lock/times.js';

/**
 * Options of `oneAtATime`: how many jobs of a key run at a time, and those of `acquire` for the lock of a job.
 *
 * @example
 * ```ts
 * import type { OneAtATimeOptions } from 'holdfast/bullmq'
 *
 * const options: OneAtATimeOptions = { limit: 3, ttl: 10_000 }
 * ```
 */
export interface OneAtATimeOptions
  extends Pick<AcquireOptions, 'label' | 'maxHold' | 'stallTimeout' | 'ttl'> {
  /**
   * How many jobs of a key run at a time, at least 1.
   *
   * @default 1
   */
  readonly limit?: number | undefined;
}

/**
 * A handler: it does the work of a job, while no other job of its key runs.
 *
 * @example
 * ```ts
 * import type { KeyedHandler } from 'holdfast/bullmq'
 *
 * const invoice: KeyedHandler<{ customer: string }> = async (job, lock, signal) => {
 *   await fetch(shop, { method: 'POST', body: job.data.customer, headers: { fence: `${lock.fence}` }, signal })
 * }
 * ```
 */
// biome-ignore lint/suspicious/noExplicitAny: the types that BullMQ gives a job by default
export type KeyedHandler<Data = any, Result = any, Name extends string = string> = (
  job: Job<Data, Result, Name>,
  lock: Lock,
  signal: AbortSignal,
) => Result | Promise<Result>;

/**
 * A processor for a `Worker` of BullMQ.
 *
 * @example
 * ```ts
 * import { Worker } from 'bullmq'
 * import { type JobProcessor, oneAtATime } from 'holdfast/bullmq'
 *
 * const processor: JobProcessor = oneAtATime(locks, (job) => job.data.customer, async (job) => settle(job))
 * const worker = new Worker('orders', processor, { autorun: false, connection: { lazyConnect: true } })
 * await worker.close()
 * ```
 */
// biome-ignore lint/suspicious/noExplicitAny: the types that BullMQ gives a job by default
export type JobProcessor<Data = any, Result = any, Name extends string = string> = (
  job: Job<Data, Result, Name>,
  token?: string,
  signal?: AbortSignal,
) => Promise<Result>;

/**
 * Options of `mayBlock`.
 *
 * @example
 * ```ts
 * import type { MayBlockOptions } from 'holdfast/bullmq'
 *
 * const options: MayBlockOptions<{ pages: number }> = { stallTimeout: ({ data }) => 10_000 + 100 * data.pages }
 * ```
 */
// biome-ignore lint/suspicious/noExplicitAny: the types that BullMQ gives a job by default
export interface MayBlockOptions<Data = any, Result = any, Name extends string = string> {
  /**
   * For how long a job may block the event loop, in ms or as a text such as `'2m'`; or a function that tells it of a job. Then
   * the job is renewed no more, so that BullMQ gives one that never comes back to another worker.
   *
   * @default the `stallTimeout` of `connect` if that was given, or else 30000
   */
  readonly stallTimeout?: Duration | ((job: Job<Data, Result, Name>) => Duration) | undefined;
}

/** How long a job may block; undefined for the manager's time. @internal */
export type StallTimeoutOf = (job: Job) => number | undefined;

/** @internal */
export function checkMayBlock(options: unknown): StallTimeoutOf {
  const { stallTimeout } = checkObject<MayBlockOptions>(options, ['stallTimeout'], 'mayBlock');
  if (typeof stallTimeout === 'function') return (job) => checkAnswer(stallTimeout(job), job);
  const ms = stallTimeout === undefined ? undefined : checkStallTimeout(stallTimeout);
  return () => ms;
}

/** Checks what the function of the caller has answered. */
function checkAnswer(given: unknown, { id }: Job): number {
  if (typeof given === 'number' || typeof given === 'string')
    return checkStallTimeout(given as Duration);
  const message = `the function stallTimeout must answer ms or a text such as '2m', got ${show(given)} for job ${id}`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}

function checkStallTimeout(given: Duration): number {
  const stallTimeout = typeof given === 'string' ? milliseconds(given, 'stallTimeout') : given;
  checkHold({ ttl: TTL_MS_MIN, renew: true, maxHold: Number.POSITIVE_INFINITY, stallTimeout });
  return stallTimeout;
}

/** The options, checked. @internal */
export interface Settings {
  readonly limit: number;
  /** The options of the lock. */
  readonly hold: Pick<AcquireOptions, 'label' | 'maxHold' | 'stallTimeout' | 'ttl'>;
}

const OPTIONS = ['label', 'limit', 'maxHold', 'stallTimeout', 'ttl'];

/** @internal */
export function checkSettings(options: unknown): Settings {
  const { limit = 1, ...hold } = checkObject<OneAtATimeOptions>(
    options,
    OPTIONS,
    'oneAtATime',
    LOCK_TIMES,
  );
  checkWholeNumber(limit, 'limit', 1, Number.MAX_SAFE_INTEGER);
  // The manager has checked its own values, which stand in for those that are not given.
  const endless = { maxHold: Number.POSITIVE_INFINITY, stallTimeout: Number.POSITIVE_INFINITY };
  checkHold({ ttl: TTL_MS_MIN, renew: true, ...endless, ...hold });
  if (hold.label !== undefined) checkText(hold.label, 'label');
  return { limit, hold };
}

/** The options of `acquire` for the lock of a job. @internal */
export function holdOf({ limit, hold }: Settings) {
  const mode = limit === 1 ? {} : ({ mode: 'shared', limit } as const);
  // The next job must find the lock free in every process, and no job ends in time for a lease that is not renewed.
  return { ...hold, ...mode, renew: true, linger: 0, awaitRelease: true };
}
