/** The manager tells why the renewal of `mayBlock` has ended while its job runs. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { type Job, Queue, Worker, type WorkerOptions } from 'bullmq';
import type { LockWarning } from 'holdfast';
import { mayBlock } from 'holdfast/bullmq';
import { connect, type LockManager } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { sleep, until } from '../../support/wait.js';

const LOCK_MS = 1_000;

let queue: Queue;
let workers: Worker[] = [];
let visits = 0;

const server = serverOfFile({ args: ['--maxmemory-policy', 'noeviction'] });

const connection = () => ({ host: '127.0.0.1', port: server.port, maxRetriesPerRequest: null });

beforeEach(() => {
  visits += 1;
  queue = new Queue(`ends-${visits}`, { connection: connection() });
});

afterEach(async () => {
  await Promise.all(workers.map((worker) => worker.close()));
  await queue.close();
  workers = [];
});

/** A manager, and the warnings that it emits about jobs. */
async function open(url = server.url): Promise<{ locks: LockManager; warnings: LockWarning[] }> {
  const locks = await connect(url);
  const warnings: LockWarning[] = [];
  locks.on('warning', (warning) => {
    if (warning.code === 'WARN_LOCK_UNKEPT') warnings.push(warning);
  });
  return { locks, warnings };
}

function start(
  processor: (job: Job) => Promise<void>,
  options: Partial<WorkerOptions> = {},
): Worker {
  const given = { connection: connection(), lockDuration: LOCK_MS, ...options };
  const worker = new Worker(queue.name, processor, given);
  worker.on('error', () => {});
  workers.push(worker);
  return worker;
}

const manual = () => start(null as never, { lockDuration: LOCK_MS });

/** Blocks the event loop of this process. */
function block(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

test('that a manager is closed while its job runs is told once', async () => {
  const { locks, warnings } = await open();
  start(
    mayBlock(locks, async () => {
      await locks.close();
      await sleep(LOCK_MS);
    }),
  );
  await queue.add('job', {});
  await until(async () => (await queue.getCompletedCount()) === 1, 'the job to be done');
  const lock = `bull:${queue.name}:1:lock`;
  assert.deepEqual(
    warnings.map(({ lock }) => lock),
    [lock],
  );
  assert.match(warnings[0]?.message ?? '', /^job 1 of the queue "ends-\d+" is kept no more while/);
  assert.match(warnings[0]?.message ?? '', /its manager was closed; close the workers first$/);
});

test('that the right to the key was taken away is told once, when the lease ends', async () => {
  const { admin, port } = server;
  await admin.call('ACL', 'SETUSER', 'keeper', 'on', '>secret', '~*', '&*', '+@all');
  const { locks, warnings } = await open(`redis://keeper:secret@127.0.0.1:${port}`);
  start(
    mayBlock(locks, async () => {
      await admin.call('ACL', 'SETUSER', 'keeper', 'resetkeys', '~lock:*', '~holdfast:*');
      await until(() => warnings.length > 0, 'the warning');
      await sleep(2 * LOCK_MS);
    }),
  );
  await queue.add('job', {});
  // BullMQ itself goes on renewing it, as long as the event loop turns.
  await until(async () => (await queue.getCompletedCount()) === 1, 'the job to be done');
  assert.deepEqual(
    warnings.map(({ code }) => code),
    ['WARN_LOCK_UNKEPT'],
  );
  assert.match(
    warnings[0]?.message ?? '',
    / has not renewed it in time; see to the connection, and /,
  );
});

test('that a job has blocked for longer than stallTimeout is told, once the event loop turns', async () => {
  const { locks, warnings } = await open();
  const processor = mayBlock(locks, async () => block(4 * LOCK_MS), { stallTimeout: LOCK_MS });
  start(processor, { maxStalledCount: 9 });
  await queue.add('job', {});
  await until(() => warnings.length > 0, 'the warning');
  assert.match(
    warnings[0]?.message ?? '',
    /has blocked the event loop for stallTimeout; allow it more/,
  );
});

test('a job that ends in time, or whose lock its worker gives up, is told of nowhere', async () => {
  const { locks, warnings } = await open();
  const worker = manual();
  const kept = mayBlock(locks, async (job) => {
    if (job.data.moves) await job.moveToDelayed(Date.now() + 60_000, job.token);
    await sleep(2 * LOCK_MS);
  });
  await queue.addBulk([false, true].map((moves) => ({ name: 'job', data: { moves } })));
  for (const token of ['one', 'two']) {
    const job = (await worker.getNextJob(token)) as Job;
    await kept(job, token, undefined);
    if (!job.data.moves) await job.moveToCompleted('done', token, false);
  }
  await until(() => locks.stats().held === 0, 'the end of the renewal');
  await locks.close();
  assert.deepEqual(warnings, []);
});
