/** A processor of BullMQ that runs one job at a time for each key, and leaves its worker's place to others meanwhile. */

import type { Job } from 'bullmq';
import { noticing } from '../../base/abort.js';
import { checkFunction, checkText, show } from '../../base/checks.js';
import { argumentError } from '../../base/errors.js';
import type { Lock } from '../../lock/lock.js';
import type { LockManager } from '../../manager/manager.js';
import { Lookout } from './lookout.js';
import {
  checkSettings,
  holdOf,
  type JobProcessor,
  type KeyedHandler,
  type OneAtATimeOptions,
  type Settings,
} from './options.js';
import { placeOf, type Standing } from './orders.js';
import { Turn } from './turn.js';

/**
 * How long a job is set aside before it looks again by itself, for each job before it. It is woken when its turn comes, and
 * workers look at the first of each key, so this is for the case that all of them were ended.
 */
const LOOK_AGAIN_MS = 10_000;
const LOOK_AGAIN_MS_MAX = 600_000;
/** The same for the first that waits. */
const NEXT_MS = 2_000;
/** The same for a job that another precedes which has just been started, and is not in the order yet. */
const SOON_MS = 1_000;
const BUSY = Symbol('busy');

/**
 * Makes a processor for a `Worker` of BullMQ that runs one job at a time for each key, or `limit`, in all workers of the
 * queue. A job whose turn has not come is set aside as a delayed job, so it keeps no other job from its place in the worker.
 * The jobs of a key run in the order of their ids, and one that ends wakes the next. A job that fails lets others go ahead
 * until its next attempt; then it is first again.
 *
 * While a job runs it holds the lock `queue:key`, such as `invoices:ada`: other code can take it to keep the jobs out, and a
 * job that BullMQ takes for stalled is not started a second time while the first run holds it.
 *
 * @param keyOf - The key of a job, a text of up to 512 bytes or a number: what it must not share at a time.
 * @param handler - Gets the job, its lock, and a signal: aborted when the lock is lost, or the job is cancelled.
 * @returns The processor. Its promise rejects, so that the job fails, with the handler's error; with `LockLostError` if the
 *   lock was lost while the handler ran; and as `tryAcquire` does.
 * @throws TypeError for wrong arguments.
 *
 * @example
 * ```ts
 * import { Queue, Worker } from 'bullmq'
 * import { oneAtATime } from 'holdfast/bullmq'
 *
 * const { hostname: host, port } = new URL(process.env.REDIS_URL ?? 'redis://127.0.0.1:6379')
 * const connection = { host, port: Number(port), maxRetriesPerRequest: null }
 * const queue = new Queue('invoices', { connection })
 * await queue.add('invoice', { customer: 'ada' })
 * const invoice = async (job, lock, signal) => fetch(shop, { method: 'POST', body: job.data.customer, signal })
 * const worker = new Worker('invoices', oneAtATime(locks, (job) => job.data.customer, invoice), { connection })
 *
 * // When the service ends: the jobs first, then the locks.
 * await worker.close()
 * await queue.close()
 * ```
 */
// biome-ignore lint/suspicious/noExplicitAny: the types that BullMQ gives a job by default
export function oneAtATime<Data = any, Result = any, Name extends string = string>(
  locks: LockManager,
  keyOf: (job: Job<Data, Result, Name>) => string | number,
  handler: KeyedHandler<Data, Result, Name>,
  options?: OneAtATimeOptions,
): JobProcessor<Data, Result, Name> {
  checkFunction(keyOf, 'keyOf');
  checkFunction(handler, 'handler');
  const settings = checkSettings(options);
  const waiting = new Set<string>();
  const lookout = new Lookout(locks, settings);
  // BullMQ gives a signal only to a function with three parameters.
  return async (job, token, signal) => {
    const keyed = { job: job as Job, keyOf: keyOf as Keyed['keyOf'], settings, waiting };
    const turn = await Turn.of(keyed.job, keyIn(keyed, keyed.job), settings.limit, token);
    const delay = await delayOf(keyed, turn);
    lookout.watch(turn.orders);
    if (delay !== undefined) return setAside(keyed, turn, token, delay);
    const run = (lock: Lock) => handler(job, lock, eitherOf(signal, lock.signal));
    const result = await runNow(locks, keyed, turn, run);
    if (result !== BUSY) return result as Result;
    try {
      await park(keyed, token, LOOK_AGAIN_MS);
    } finally {
      // If the answer is lost, the job may be set aside all the same.
      void wakeWhenFree(locks, keyed, turn);
    }
    throw delayed();
  };
}

/** A job, and how its key is told. */
interface Keyed {
  readonly job: Job;
  readonly keyOf: (job: Job) => unknown;
  readonly settings: Settings;
  /** The jobs for whose lock this process waits, by their queues and ids. */
  readonly waiting: Set<string>;
}

/** How long a job has to be set aside before it looks again; undefined if its turn has come. */
async function delayOf(keyed: Keyed, turn: Turn): Promise<number | undefined> {
  const { limit } = keyed.settings;
  for (;;) {
    const standing = await turn.enter();
    const { before, idle } = standing;
    if (before >= limit) {
      if (await turn.removeFinished(idle)) continue;
      return before === limit ? NEXT_MS : Math.min(LOOK_AGAIN_MS_MAX, LOOK_AGAIN_MS * before);
    }
    const preceding = await precedingOf(keyed, turn, standing);
    if (before + preceding.length >= limit) return SOON_MS;
    // If this job ends its process, and every other, nobody else would look at the one behind it.
    if (standing.next !== undefined)
      void turn.orders.hasten(standing.next, NEXT_MS).catch(() => {});
    return undefined;
  }
}

/** The active jobs with the same key and an earlier place that are not in the order yet. */
async function precedingOf(keyed: Keyed, turn: Turn, { unknown, later }: Standing): Promise<Job[]> {
  const { job } = keyed;
  const key = keyIn(keyed, job);
  const jobs = await Promise.all(unknown.map((id) => turn.orders.find(id)));
  return jobs.filter((other, i): other is Job => {
    if (other === undefined || placeOf(other) > placeOf(job)) return false;
    // BullMQ starts jobs that were added in one ms in the order of their addition.
    if (placeOf(other) === placeOf(job) && i < later) return false;
    try {
      return keyIn(keyed, other) === key;
    } catch {
      return false;
    }
  });
}

/** Runs the job if its lock is free, and then lets the next go ahead. */
async function runNow(
  locks: LockManager,
  keyed: Keyed,
  turn: Turn,
  run: (lock: Lock) => unknown,
): Promise<unknown> {
  let isBusy = false;
  try {
    return await locks.request(
      turn.lock,
      { ...holdOf(keyed.settings), ifAvailable: true },
      (lock) => {
        isBusy = lock === null;
        return lock === null ? BUSY : run(lock);
      },
    );
  } finally {
    // The job is done or failed, whatever becomes of its place: a job that looks again removes it.
    if (!isBusy) await turn.leave().catch(() => {});
  }
}

/** Sets a job aside whose turn has not come. */
async function setAside(
  { job }: Keyed,
  turn: Turn,
  token: string | undefined,
  delay: number,
): Promise<never> {
  await park({ job }, token, delay);
  // The one before it may have ended a moment ago, when there was nobody to wake.
  if (delay !== SOON_MS && (await turn.isFirst())) await turn.wake();
  throw delayed();
}

function park(
  { job }: Pick<Keyed, 'job'>,
  token: string | undefined,
  delay: number,
): Promise<void> {
  return job.moveToDelayed(Date.now() + delay, token);
}

/** Wakes a job whose turn it is, when whoever has its lock releases it: other code, or a run that BullMQ has given up. */
async function wakeWhenFree(locks: LockManager, keyed: Keyed, turn: Turn): Promise<void> {
  const job = `${turn.orders.name}${keyed.job.id}`;
  if (keyed.waiting.has(job)) return;
  keyed.waiting.add(job);
  try {
    const lock = await locks.acquire(turn.lock, {
      ...holdOf(keyed.settings),
      wait: LOOK_AGAIN_MS,
    });
    await lock.release();
    keyed.waiting.delete(job);
    await turn.wake();
  } catch {
    // It looks again by itself.
    keyed.waiting.delete(job);
  }
}

function keyIn({ keyOf }: Pick<Keyed, 'keyOf'>, job: Job): string {
  const key = keyOf(job);
  if (typeof key === 'number') return `${key}`;
  checkText(key, 'the key of a job');
  if (key !== '') return key;
  const message = `the key of a job must not be empty, got ${show(key)} for job ${job.id}`;
  throw argumentError('ERR_INVALID_ARG_VALUE', message);
}

function eitherOf(cancelled: AbortSignal | undefined, lost: AbortSignal): AbortSignal {
  if (cancelled === undefined) return lost;
  return noticing(AbortSignal.any([cancelled, lost]), () => void lost.aborted);
}

/** The error by which a processor tells its worker that the job is delayed. BullMQ goes by its name, also across its two builds. */
function delayed(): Error {
  return Object.assign(new Error('the job is set aside until its turn'), { name: 'DelayedError' });
}
