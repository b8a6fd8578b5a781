/** A processor of BullMQ whose jobs stay its worker's while they block the event loop. */

import type { Job, MinimalQueue } from 'bullmq';
import { checkFunction, show } from '../../base/checks.js';
import { argumentError, LockConnectionError } from '../../base/errors.js';
import type { LockManager } from '../../manager/manager.js';
import { unkeptJobWarning } from '../../manager/warnings.js';
import { AgeOf } from './age-of.js';
import {
  checkMayBlock,
  type JobProcessor,
  type MayBlockOptions,
  type StallTimeoutOf,
} from './options.js';
import { clientOf, lockKeyOf, notActive, type QueueOfJob, queueOf } from './queue-of.js';

/** A part of the lease is over when it is renewed. A job that begins later is asked about before it runs. */
const LATE_PART = 3;

/** BullMQ's lease of a job, which a manager renews. */
type ForeignLease = Awaited<ReturnType<LockManager['keepForeign']>>;

/** The timer of the process: the fake one that a test puts in its place may never call. */
const { setImmediate } = globalThis;

/**
 * Makes a processor for a `Worker` of BullMQ whose jobs may block the event loop: a native thread renews BullMQ's lock of a job
 * while the job runs, so that no other worker takes it for stalled and runs it a second time. A job that ends within a third of
 * the worker's `lockDuration` costs no request, but for the first one of a worker. The renewal ends when the job does, when the
 * process does, when the job is no longer the worker's, or when the event loop was blocked for `stallTimeout`.
 *
 * @param locks - A manager that is connected to the Redis of BullMQ, and to the same database.
 * @param processor - The processor to be wrapped; for one job at a time of a key, what `oneAtATime` answers.
 * @returns The processor. Its promise rejects, so that the job fails, with the error of `processor`; with a `TypeError` if
 *   `locks` is connected to another server or database; and as `acquire` does if the server refuses the renewal of the first
 *   job. A job that BullMQ has given to another worker before it could begin does not run.
 * @throws TypeError for wrong arguments, also for the name of a file: a sandboxed processor does not block its worker.
 *
 * @example
 * ```ts
 * import { Queue, Worker } from 'bullmq'
 * import { mayBlock } from 'holdfast/bullmq'
 *
 * const { hostname: host, port } = new URL(process.env.REDIS_URL ?? 'redis://127.0.0.1:6379')
 * const connection = { host, port: Number(port), maxRetriesPerRequest: null }
 * const queue = new Queue('reports', { connection })
 * await queue.add('report', { month: '2026-01' })
 * const worker = new Worker('reports', mayBlock(locks, async (job) => job.data.month), { connection })
 *
 * // When the service ends: the jobs first, then the locks.
 * await worker.close()
 * await queue.close()
 * ```
 */
// biome-ignore lint/suspicious/noExplicitAny: the types that BullMQ gives a job by default
export function mayBlock<Data = any, Result = any, Name extends string = string>(
  locks: LockManager,
  processor: JobProcessor<Data, Result, Name>,
  options?: MayBlockOptions<Data, Result, Name>,
): JobProcessor<Data, Result, Name> {
  if (typeof (locks as Partial<LockManager> | null)?.keepForeign !== 'function') {
    const message = `mayBlock needs a manager that connect or connectLazily has made, got ${show(locks)}`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  checkProcessor(processor);
  const keeping: Keeping = {
    stallTimeoutOf: checkMayBlock(options) as StallTimeoutOf,
    known: new WeakSet(),
    ages: new AgeOf(),
  };
  const kept: JobProcessor<Data, Result, Name> = async (job, token, signal) => {
    const lease = await begin(locks, job as Job, token, keeping);
    try {
      return await processor(job, token, signal);
    } finally {
      // BullMQ ends the job in this turn of the event loop, in which another job may begin to block it.
      setImmediate(() => lease.end());
    }
  };
  // BullMQ gives a signal only to a function with three parameters.
  return Object.defineProperty(kept, 'length', { value: processor.length });
}

interface Keeping {
  readonly stallTimeoutOf: StallTimeoutOf;
  /** The workers that are known to have their locks where `locks` looks for them. */
  readonly known: WeakSet<MinimalQueue>;
  readonly ages: AgeOf;
}

/** Begins to keep a job, unless it is another worker's by now. */
async function begin(
  locks: LockManager,
  job: Job,
  given: unknown,
  { stallTimeoutOf, known, ages }: Keeping,
): Promise<ForeignLease> {
  const queue = queueOf(job);
  const ttl = queue.opts.lockDuration;
  if (given !== undefined && typeof given !== 'string') {
    // The handler of oneAtATime gets a lock in place of the token.
    const message =
      'mayBlock wraps the processor of a Worker: write mayBlock(locks, oneAtATime(…)), not the reverse';
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  const value = given ?? job.token;
  if (ttl === undefined || value === undefined) {
    const message = `mayBlock needs a job that a Worker of BullMQ has started; job ${job.id} has no lock`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  const key = lockKeyOf(queue, job);
  const age = ages.of(job.processedOn ?? 0);
  const lease = await locks.keepForeign({
    key,
    value,
    ttl,
    age,
    stallTimeout: stallTimeoutOf(job),
  });
  try {
    if (!known.has(queue) || age > ttl / LATE_PART)
      await confirm(lease, job, queue, { key, value, ttl });
    known.add(queue);
  } catch (error) {
    // A worker that cannot reach the server for a moment still runs a job that is surely its own. Without an answer it may
    // have been stopped for longer than its lock lasted.
    const isOwn = error instanceof LockConnectionError && ages.of(job.processedOn ?? 0) < ttl;
    if (!isOwn) {
      lease.end();
      throw error;
    }
  }
  lease.onUnkept((reason) => {
    const what = `job ${job.id} of the queue "${queue.name}"`;
    locks.warn(unkeptJobWarning({ what, lock: key, run: value }, reason, lease.server));
  });
  return lease;
}

/** Renews the lock of a job. Rejects if the job is another worker's by now, or if the lock is not where it is looked for. */
async function confirm(
  lease: ForeignLease,
  job: Job,
  queue: QueueOfJob,
  { key, value, ttl }: { readonly key: string; readonly value: string; readonly ttl: number },
): Promise<void> {
  const asked = performance.now();
  if (await lease.renew()) return;
  // The lease has ended here before an answer came, so its end says nothing about the server.
  const isUnanswered = performance.now() - asked >= ttl / 2;
  const client = await clientOf(queue);
  if ((await client?.get(key)) !== value) throw notActive(job);
  if (isUnanswered) {
    throw new Error(
      `mayBlock got no answer from ${lease.server} while the lock of job ${job.id} lasted: lockDuration, ${ttl} ms, is too short for this connection`,
    );
  }
  throw new TypeError(
    `mayBlock was given a manager of ${lease.server}, where the lock "${key}" of job ${job.id} is not: connect it to the server and the database of the queue "${queue.name}"`,
  );
}

function checkProcessor(processor: unknown): void {
  if (typeof processor === 'string' || processor instanceof URL) {
    const message = `mayBlock takes a function, and got the file ${show(`${processor}`)}: give it to the Worker as it is, for a sandboxed processor works in a process or thread of its own, and does not block the event loop that renews its lock`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  checkFunction(processor, 'processor');
}
