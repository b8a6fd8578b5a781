/** `oneAtATime` with real workers of BullMQ: order, fairness, limits, and what becomes of jobs whose worker fails. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { type Job, Queue, Worker, type WorkerOptions } from 'bullmq';
import * as bullmq5 from 'bullmq5';
import type { ConnectOptions } from 'holdfast';
import { type KeyedHandler, type OneAtATimeOptions, oneAtATime } from 'holdfast/bullmq';
import { connect, holdfast, type LockManager } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { sleep, until } from '../../support/wait.js';

const { LockLostError } = holdfast;

let queue: Queue;
let locks: LockManager;
let others: LockManager;
let workers: Worker[] = [];
let journal: string[] = [];
let visits = 0;

const server = serverOfFile({ args: ['--maxmemory-policy', 'noeviction'] }, async () => {
  [locks, others] = [await connect(server.url), await connect(server.url)];
});

// Each test has a queue of its own.
beforeEach(() => {
  visits += 1;
  queue = new Queue(`work-${visits}`, { connection: connection() });
});

afterEach(async () => {
  await Promise.all(workers.map((worker) => worker.close()));
  await queue.close();
  [workers, journal] = [[], []];
});

const connection = () => ({ host: '127.0.0.1', port: server.port, maxRetriesPerRequest: null });
const keyOf = (job: Job) => job.data.customer;
const count = (line: string) => journal.filter((each) => each === line).length;
const turn = () => new Promise((resolve) => setTimeout(resolve, 2));

function start(
  handler: KeyedHandler,
  given: OneAtATimeOptions &
    Pick<WorkerOptions, 'lockDuration' | 'skipLockRenewal' | 'stalledInterval'> & {
      readonly by?: LockManager;
    } = {},
): Worker {
  const {
    by = locks,
    lockDuration = 30_000,
    skipLockRenewal = false,
    stalledInterval = 30_000,
    ...options
  } = given;
  const worker = new Worker(queue.name, oneAtATime(by, keyOf, handler, options), {
    connection: connection(),
    concurrency: 4,
    lockDuration,
    skipLockRenewal,
    stalledInterval,
  });
  worker.on('error', () => {});
  workers.push(worker);
  return worker;
}

function jobsOf(customer: string, jobs: number) {
  return Array.from({ length: jobs }, (_, i) => ({ name: 'job', data: { customer, number: i } }));
}

/** A handler that waits for the end of one job, and the function that ends it. */
function gated(isHeldUp: (job: Job) => boolean) {
  let pass = () => {};
  const passed = new Promise<void>((resolve) => {
    pass = resolve;
  });
  const handler: KeyedHandler = async (job) => {
    journal.push(`${job.data.customer} ${job.data.number}`);
    if (isHeldUp(job)) await passed;
  };
  return { handler, pass };
}

/** Starts a worker and four jobs of a key: the first runs until `pass` is called, the others are set aside. */
async function firstOfFour() {
  const { handler, pass } = gated((job) => job.data.number === 0);
  start(handler);
  const jobs = (await queue.addBulk(jobsOf('ada', 4))) as [Job, Job, Job, Job];
  await until(async () => (await queue.getDelayedCount()) === 3, 'three to be set aside');
  return { jobs, pass };
}

const note: KeyedHandler = async (job) => {
  journal.push(`begin ${job.data.customer} ${job.data.number}`);
  await turn();
  journal.push(`end ${job.data.customer} ${job.data.number}`);
};

function linesOf(customer: string): string[] {
  return journal.filter((line) => line.split(' ')[1] === customer);
}

function inOrder(customer: string, jobs: number): string[] {
  return Array.from({ length: jobs }).flatMap((_, i) => [
    `begin ${customer} ${i}`,
    `end ${customer} ${i}`,
  ]);
}

test('the jobs of a key run one after the other, in order, in two workers', async () => {
  await queue.addBulk(['ada', 'bob', 'eve'].flatMap((customer) => jobsOf(customer, 20)));
  start(note);
  start(note, { by: others });
  await until(async () => (await queue.getCompletedCount()) === 60, 'all jobs to be done');
  for (const customer of ['ada', 'bob', 'eve'])
    assert.deepEqual(linesOf(customer), inOrder(customer, 20));
  const done = await queue.getCompleted();
  assert.ok(done.every(({ attemptsMade }) => attemptsMade === 1));
  const starts = done.reduce((sum, { attemptsStarted }) => sum + attemptsStarted, 0);
  // One to be set aside and one to run; few more where two workers start jobs of a key at the same time.
  assert.ok(starts <= 2 * 60 + 10, `${starts} starts of 60 jobs`);
  assert.deepEqual(await server.admin.keys('bull:*holdfast:order*'), []);
  assert.deepEqual((await locks.query()).held, []);
});

test('the same with BullMQ 5', async () => {
  const name = 'five';
  const five = new bullmq5.Queue(name, { connection: connection() });
  await five.addBulk(jobsOf('ada', 20));
  const started = [locks, others].map((by) => {
    // The classes of the versions have protected members, so their types differ.
    const processor = oneAtATime(by, keyOf, note) as never;
    return new bullmq5.Worker(name, processor, { connection: connection(), concurrency: 4 });
  });
  await until(async () => (await five.getCompletedCount()) === 20, 'all jobs to be done');
  assert.deepEqual(linesOf('ada'), inOrder('ada', 20));
  await Promise.all(started.map((worker) => worker.close()));
  await five.close();
});

test('a customer with many jobs keeps no other from the places of a worker', async () => {
  const { handler, pass } = gated((job) => job.data.customer === 'hot');
  start(handler);
  await queue.addBulk([
    ...jobsOf('hot', 20),
    ...['a', 'b', 'c', 'd'].flatMap((each) => jobsOf(each, 1)),
  ]);
  await until(async () => (await queue.getCompletedCount()) === 4, 'the others to be done');
  assert.deepEqual([...journal].sort(), ['a 0', 'b 0', 'c 0', 'd 0', 'hot 0']);
  await until(async () => (await queue.getActiveCount()) === 1, 'the rest to be set aside');
  pass();
  await until(async () => (await queue.getCompletedCount()) === 24, 'all to be done');
});

test('a job whose key cannot be told holds nobody up', async () => {
  let pass = () => {};
  const work = () =>
    new Promise<void>((resolve) => {
      pass = resolve;
    });
  workers.push(new Worker(queue.name, work, { connection: connection() }));
  await queue.add('job', { customer: '' });
  await until(async () => (await queue.getActiveCount()) === 1, 'the job without a key to run');
  start(note);
  await queue.addBulk(jobsOf('ada', 1));
  const isDone = async () => (await queue.getCompletedCount()) === 1;
  await until(isDone, 'the other to be done', 8_000).finally(() => pass());
});

test('limit jobs of a key run at a time, and never more', async () => {
  let [running, most] = [0, 0];
  const work: KeyedHandler = async () => {
    running += 1;
    most = Math.max(most, running);
    await new Promise((resolve) => setTimeout(resolve, 20));
    running -= 1;
  };
  await queue.addBulk(jobsOf('ada', 24));
  start(work, { limit: 3 });
  start(work, { limit: 3, by: others });
  await until(async () => (await queue.getCompletedCount()) === 24, 'all jobs to be done');
  assert.equal(most, 3);
});

test('who holds the lock elsewhere keeps the jobs out, and its release wakes the first', async () => {
  const held = await others.acquire(`${queue.name}:ada`);
  await queue.addBulk(jobsOf('ada', 5));
  start(note);
  await until(async () => (await queue.getDelayedCount()) === 5, 'all to be set aside');
  await until(() => locks.stats().waiting === 1, 'the first to wait for the lock');
  const delays = (await queue.getDelayed()).map(({ delay }) => delay);
  assert.ok(
    delays.every((delay) => delay >= 1_000),
    'it looks again after seconds',
  );
  await held.release();
  await until(async () => (await queue.getCompletedCount()) === 5, 'all jobs to be done', 8_000);
  assert.deepEqual(journal, inOrder('ada', 5));
});

test('a job that fails lets the others go ahead, and is first again at its next attempt', async () => {
  const again = () => locks.stats().waiting === 1 || count('begin ada 0') === 2;
  start(async (job) => {
    journal.push(`begin ada ${job.data.number}`);
    if (job.data.number === 3) await until(again, 'the next attempt');
    await turn();
    journal.push(`end ada ${job.data.number}`);
    if (job.data.number === 0 && job.attemptsMade === 0) throw new Error('the disk is full');
  });
  const [first] = await queue.addBulk(
    jobsOf('ada', 6).map((job) => ({ ...job, opts: { attempts: 2, backoff: 200 } })),
  );
  await until(async () => (await queue.getCompletedCount()) === 6, 'all jobs to be done');
  assert.deepEqual(journal.slice(0, 4), inOrder('ada', 2));
  assert.ok(journal.lastIndexOf('begin ada 0') < journal.indexOf('begin ada 4'), journal.join());
  assert.equal((await queue.getJob(first?.id ?? ''))?.attemptsMade, 2);
  // Never two at a time.
  assert.ok(journal.every((line, i) => line.startsWith(i % 2 === 0 ? 'begin' : 'end')));
});

test('a job that BullMQ takes for stalled does not run twice at once', async () => {
  let fences: number[] = [];
  const slow: KeyedHandler = async (job, lock) => {
    journal.push(`begin ${job.data.number}`);
    fences = [...fences, lock.fence];
    const begun = performance.now();
    await until(
      () => fences.length > 1 || performance.now() - begun > 2_500,
      'the time that it takes',
    );
    journal.push(`end ${job.data.number}`);
  };
  const stall = { lockDuration: 300, skipLockRenewal: true, stalledInterval: 200 };
  start(slow, stall);
  start(slow, { ...stall, by: others });
  await queue.addBulk(jobsOf('ada', 1));
  await until(() => journal.length >= 4, 'the second run', 40_000);
  assert.deepEqual(journal.slice(0, 4), ['begin 0', 'end 0', 'begin 0', 'end 0']);
  assert.ok((fences[1] ?? 0) > (fences[0] ?? 0));
});

test('the signal tells the loss of the lock, and the job fails', async () => {
  start(async (_job, lock, signal) => {
    assert.ok(await others.forceRelease(lock.name));
    await until(() => signal.aborted, 'the loss');
    journal.push((signal.reason as Error).name);
  });
  const [job] = await queue.addBulk(jobsOf('ada', 1));
  await until(async () => (await queue.getFailedCount()) === 1, 'the job to fail');
  assert.deepEqual(journal, [LockLostError.name]);
  assert.match((await queue.getJob(job?.id ?? ''))?.failedReason ?? '', /not held any more/);
});

test('the signal tells that the job was cancelled', async () => {
  const worker = start(async (_job, _lock, signal) => {
    journal.push('begin');
    await until(() => signal.aborted, 'the signal');
    throw new Error(`${signal.reason}`);
  });
  const [job] = await queue.addBulk(jobsOf('ada', 1));
  await until(() => journal.length === 1, 'the job to begin');
  assert.ok(worker.cancelJob(job?.id ?? '', 'not wanted'));
  await until(async () => (await queue.getFailedCount()) === 1, 'the job to fail');
  const [failed] = await queue.getFailed();
  assert.equal(failed?.failedReason, 'not wanted');
});

test('a job that was removed while it was set aside holds up no other', async () => {
  const {
    jobs: [, second, third],
    pass,
  } = await firstOfFour();
  await queue.remove(`${second.id}`);
  pass();
  await until(async () => (await queue.getCompletedCount()) === 1, 'the first to be done');
  assert.ok(((await queue.getJob(`${third.id}`))?.delay ?? 0) >= 9_000, 'it sleeps for long');
  await until(async () => (await queue.getCompletedCount()) === 3, 'the others to be done', 8_000);
  assert.deepEqual(journal, ['ada 0', 'ada 2', 'ada 3']);
});

test('a job that BullMQ itself has failed holds up no other', async () => {
  const {
    jobs: [, second, third],
    pass,
  } = await firstOfFour();
  // As BullMQ fails what has stalled too often: without its processor.
  const prefix = queue.toKey('');
  for (const job of [second, third]) {
    await server.admin.zrem(`${prefix}delayed`, `${job.id}`);
    await server.admin.zadd(`${prefix}failed`, Date.now(), `${job.id}`);
  }
  pass();
  await until(async () => (await queue.getCompletedCount()) === 2, 'the others to be done', 8_000);
  assert.deepEqual(journal, ['ada 0', 'ada 3']);
  await until(
    async () => (await server.admin.exists(`${prefix}holdfast:keys`)) === 0,
    'the keys to be forgotten',
    8_000,
  );
});

test('it works with locks in this process, and with ids that are names', async () => {
  const local = await connect('memory:');
  const jobs = jobsOf('ada', 8).map((job, i) => ({ ...job, opts: { jobId: `order-${i}` } }));
  await queue.addBulk(jobs);
  const worker = start(note, { by: local });
  await until(async () => (await queue.getCompletedCount()) === 8, 'all jobs to be done');
  await worker.close();
  await local.close();
  assert.deepEqual(journal, inOrder('ada', 8));
});

/** What managers may have for their locks otherwise, with a lease that is shorter than a job. */
const DEFAULTS: Readonly<Record<string, ConnectOptions>> = {
  linger: { linger: 100 },
  awaitRelease: { awaitRelease: false },
  besideOldCode: { besideOldCode: { retryDelay: 20 } },
  renew: { renew: false },
  'no wait': { wait: 0 },
  'an endless wait': { wait: Number.POSITIVE_INFINITY },
  maxHold: { maxHold: 60_000 },
  stallTimeout: { stallTimeout: 60_000 },
};

for (const [name, options] of Object.entries(DEFAULTS)) {
  test(`it works with the defaults of its manager: ${name}`, async () => {
    const own = await connect(server.url, { ttl: 300, ...options });
    const handler: KeyedHandler = async (job, lock, signal) => {
      // The first outlives a lease that is not renewed.
      if (job.data.number === 0) await sleep(600);
      assert.ok(lock.held && !signal.aborted);
      await note(job, lock, signal);
    };
    for (const limit of [1, 2]) {
      const held = await own.acquire(`${queue.name}:ada`);
      await queue.addBulk(jobsOf('ada', 6));
      const started = [start(handler, { by: own, limit }), start(handler, { by: own, limit })];
      await until(async () => (await queue.getDelayedCount()) === 6, 'all to be set aside');
      await held.release();
      const all = 6 * limit;
      await until(async () => (await queue.getCompletedCount()) === all, 'all jobs to be done');
      if (limit === 1) assert.deepEqual(journal, inOrder('ada', 6));
      await Promise.all(started.map((worker) => worker.close()));
    }
    await own.close();
  });
}

test('a job without a key fails', async () => {
  start(note);
  await queue.add('job', {});
  await until(async () => (await queue.getFailedCount()) === 1, 'the job to fail');
  const [failed] = await queue.getFailed();
  assert.match(failed?.failedReason ?? '', /the key of a job must be a string, got undefined/);
});

test('wrong arguments are refused', () => {
  const make = oneAtATime as (...args: unknown[]) => unknown;
  assert.throws(() => make(locks, 'customer', note), { code: 'ERR_INVALID_ARG_TYPE' });
  assert.throws(() => make(locks, keyOf), { code: 'ERR_INVALID_ARG_TYPE' });
  assert.throws(() => make(locks, keyOf, note, { limit: 0 }), { code: 'ERR_OUT_OF_RANGE' });
  assert.throws(() => make(locks, keyOf, note, { wait: 5 }), { code: 'ERR_INVALID_ARG_TYPE' });
});
