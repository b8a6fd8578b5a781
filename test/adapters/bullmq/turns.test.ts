/** The turns of jobs, started by hand: what happens between the steps of two of them. */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { type Job, Queue, Worker } from 'bullmq';
import { type OneAtATimeOptions, oneAtATime } from 'holdfast/bullmq';
import { connect, type LockManager } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

let locks: LockManager;
let others: LockManager;
let queue: Queue;
let worker: Worker;
let visits = 0;

const server = serverOfFile({ args: ['--maxmemory-policy', 'noeviction'] }, async () => {
  [locks, others] = [await connect(server.url), await connect(server.url)];
});

afterEach(async () => {
  await worker?.close();
  await queue?.close();
});

/** Adds jobs of one key, and starts them as a worker does, without a processor. */
async function started(jobs: number, names: readonly string[] = []): Promise<Job[]> {
  const connection = { host: '127.0.0.1', port: server.port, maxRetriesPerRequest: null };
  visits += 1;
  queue = new Queue(`turns-${visits}`, { connection });
  worker = new Worker(queue.name, null, { connection });
  await queue.addBulk(
    Array.from({ length: jobs }, (_, i) => {
      const jobId = names[i];
      // All are added in one ms.
      return {
        name: 'job',
        data: {},
        opts: { timestamp: 1_700_000_000_000, ...(jobId && { jobId }) },
      };
    }),
  );
  const active: Job[] = [];
  for (let each = 0; each < jobs; each++) {
    active.push((await worker.getNextJob(`token ${each}`, { block: false })) as Job);
  }
  return active;
}

interface Run {
  readonly ended: Promise<unknown>;
  readonly begun: Promise<void>;
  end(): void;
}

/** Runs the processor for a job, whose handler lasts until it is told to end. */
function run(job: Job, options: OneAtATimeOptions = {}): Run {
  let [begin, end] = [() => {}, () => {}];
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const over = new Promise<void>((resolve) => {
    end = resolve;
  });
  const handler = () => {
    begin();
    return over;
  };
  const ended = oneAtATime(locks, () => 'key', handler, options)(job, job.token, undefined);
  ended.catch(() => {});
  return { begun, end: () => end(), ended };
}

const stateOf = async (job: Job | undefined) => (await queue.getJob(job?.id ?? ''))?.getState();
const setAside = { name: 'DelayedError' };

test('a job waits for an earlier one that was started, and is not in the order yet', async () => {
  const [first, second] = (await started(2)) as [Job, Job];
  await assert.rejects(run(second).ended, setAside);
  assert.equal(await stateOf(second), 'delayed');
  const one = run(first);
  await one.begun;
  one.end();
  await one.ended;
  assert.equal(await stateOf(second), 'waiting', 'it was woken');
});

test('a job does not wait for one that has run, and is still among the active jobs', async () => {
  const [first, second] = (await started(2)) as [Job, Job];
  const one = run(first);
  one.end();
  await one.ended;
  assert.equal(await stateOf(first), 'active');
  const two = run(second);
  await Promise.race([two.begun, two.ended]);
  two.end();
  await two.ended;
});

test('a job that ends while the next is set aside wakes it all the same', async () => {
  const [first, second] = (await started(2)) as [Job, Job];
  const one = run(first);
  await one.begun;
  const moveToDelayed = second.moveToDelayed.bind(second);
  second.moveToDelayed = async (...args) => {
    one.end();
    await one.ended;
    return moveToDelayed(...args);
  };
  await assert.rejects(run(second).ended, setAside);
  assert.equal(await stateOf(second), 'waiting');
});

test('a job whose lock is held elsewhere is woken, though the answer that set it aside was lost', async () => {
  const [first] = (await started(1)) as [Job];
  const held = await others.acquire(`${queue.name}:key`);
  const moveToDelayed = first.moveToDelayed.bind(first);
  first.moveToDelayed = async (...args) => {
    await moveToDelayed(...args);
    throw new Error('the answer is lost');
  };
  await assert.rejects(run(first).ended, /the answer is lost/);
  assert.equal(await stateOf(first), 'delayed');
  await held.release();
  await until(async () => (await stateOf(first)) === 'waiting', 'the job to be woken');
});

test('jobs of several queues that have the same id wait for their locks, each for its own', async () => {
  const processor = oneAtATime(
    locks,
    () => 'key',
    () => {},
  );
  const [one] = (await started(1)) as [Job];
  const former = [worker, queue] as const;
  const [other] = (await started(1)) as [Job];
  try {
    assert.equal(one.id, other.id);
    for (const job of [one, other]) {
      const held = await others.acquire(`${job.queueName}:key`);
      await assert.rejects(processor(job, job.token, undefined), setAside);
      assert.ok(held.held);
    }
    await until(() => locks.stats().waiting === 2, 'both to wait');
    for (const { queueName } of [one, other]) await others.forceRelease(`${queueName}:key`);
    for (const job of [one, other]) {
      await until(async () => (await job.getState()) === 'waiting', 'the job to be woken');
    }
  } finally {
    await Promise.all(former.map((each) => each.close()));
  }
});

test('of several jobs that run at a time, each that ends wakes one', async () => {
  const jobs = await started(6);
  const options = { limit: 2 };
  const runs: Run[] = [];
  for (const job of jobs.slice(0, 2)) {
    const each = run(job, options);
    await each.begun;
    runs.push(each);
  }
  for (const job of jobs.slice(2)) await assert.rejects(run(job, options).ended, setAside);
  const states = () => Promise.all(jobs.slice(2).map(stateOf));
  assert.deepEqual(await states(), ['delayed', 'delayed', 'delayed', 'delayed']);
  runs[0]?.end();
  await runs[0]?.ended;
  assert.deepEqual(await states(), ['waiting', 'delayed', 'delayed', 'delayed']);
  runs[1]?.end();
  await runs[1]?.ended;
  assert.deepEqual(await states(), ['waiting', 'waiting', 'delayed', 'delayed']);
});

test('a worker that comes late does not enter a job that another worker has completed', async () => {
  const [first, second] = (await started(2)) as [Job, Job];
  const order = `${queue.toKey('holdfast:order:key')}`;
  // Another worker has got it since, and completed it.
  await server.admin.set(queue.toKey(`${first.id}:lock`), 'another');
  await assert.rejects(run(first).ended, /not active under this worker's token any more/);
  assert.deepEqual(await server.admin.zrange(order, '0', '-1'), []);
  await first.moveToCompleted(null, 'another', false);
  await assert.rejects(run(first).ended, /not active under this worker's token any more/);
  assert.deepEqual(await server.admin.zrange(order, '0', '-1'), []);
  const two = run(second);
  await Promise.race([two.begun, two.ended]);
  two.end();
  await two.ended;
});

test('jobs that were added in one ms run in the order of their addition', async () => {
  const jobs = await started(4, ['d', 'c', 'b', 'a']);
  // Those that were started later come first to the order.
  for (const job of jobs.slice(1).reverse()) await assert.rejects(run(job).ended, setAside);
  const begun: (string | undefined)[] = [];
  for (let i = 0; i < jobs.length; i++) {
    const job = i === 0 ? jobs[0] : await again();
    const each = run(job as Job);
    await Promise.race([each.begun, each.ended]);
    begun.push(job?.id);
    each.end();
    await each.ended;
    await job?.moveToCompleted(null, `${job?.token}`, false);
  }
  assert.deepEqual(begun, ['d', 'c', 'b', 'a']);
});

test('a job that begins has the one behind it look again soon, should every process end', async () => {
  const jobs = await started(4);
  const one = run(jobs[0] as Job);
  await one.begun;
  for (const job of jobs.slice(1)) await assert.rejects(run(job).ended, setAside);
  const delayOf = async (job: Job | undefined) => (await queue.getJob(job?.id ?? ''))?.delay ?? 0;
  assert.ok((await delayOf(jobs[1])) <= 2_000);
  assert.ok((await delayOf(jobs[2])) >= 10_000);
  one.end();
  await one.ended;
  const two = run((await again()) as Job);
  await two.begun;
  await until(async () => (await delayOf(jobs[2])) <= 2_000, 'the next to be told');
  assert.ok((await delayOf(jobs[3])) >= 10_000);
  two.end();
  await two.ended;
});

/** Starts the next job that is due. */
async function again(): Promise<Job> {
  let job: Job | undefined;
  await until(async () => {
    job = (await worker.getNextJob('again', { block: false })) as Job | undefined;
    return job !== undefined;
  }, 'a job to be due');
  return job as Job;
}
