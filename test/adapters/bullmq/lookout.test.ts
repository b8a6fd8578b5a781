/** How workers look at the first jobs of keys: no process is told that a job was removed, or failed by BullMQ. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { type Job, Queue, Worker } from 'bullmq';
import { type KeyedHandler, oneAtATime } from 'holdfast/bullmq';
import { connect, type LockManager } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

const KEY = 'ada';
/** How long a key that is due stays so only if none looks: each process asks every second. */
const OVERDUE_MS = 1_500;

let locks: LockManager;
let others: LockManager;
let queue: Queue;
let workers: Worker[] = [];
let visits = 0;

const server = serverOfFile({ args: ['--maxmemory-policy', 'noeviction'] }, async () => {
  [locks, others] = [await connect(server.url), await connect(server.url)];
});

beforeEach(() => {
  visits += 1;
  queue = new Queue(`looks-${visits}`, { connection: connection() });
});

afterEach(async () => {
  await Promise.all(workers.map((worker) => worker.close()));
  await queue.close();
  workers = [];
});

/** The client of a worker. The property is protected. */
interface Behind {
  readonly backend: {
    readonly client: Promise<{ runCommand(name: string, args: unknown[]): Promise<unknown> }>;
  };
}

const connection = () => ({ host: '127.0.0.1', port: server.port, maxRetriesPerRequest: null });
const jobs = (count: number) => Array.from({ length: count }, () => ({ name: 'job', data: {} }));
const processorOf = (by: LockManager, handler: KeyedHandler = () => {}) =>
  oneAtATime(by, () => KEY, handler);
const orderOf = () => server.admin.zrange(queue.toKey(`holdfast:order:${KEY}`), '0', '-1');
/** When the first jobs of the key are looked at next. */
const lookAt = () => server.admin.zscore(queue.toKey('holdfast:keys'), KEY);

function start(processor: ReturnType<typeof processorOf> | null): Worker {
  const worker = new Worker(queue.name, processor, { connection: connection(), concurrency: 4 });
  worker.on('error', () => {});
  workers.push(worker);
  return worker;
}

/** Starts the next job, as a worker without a processor does. */
async function next(worker: Worker, token: string): Promise<Job> {
  return (await worker.getNextJob(token, { block: false })) as Job;
}

test('a job that could not leave is forgotten in a minute, though no other waits', async () => {
  const processor = processorOf(locks, () => new Promise<void>(() => {}));
  await queue.addBulk(jobs(1));
  const job = await next(start(null), 'one');
  processor(job, 'one', undefined).catch(() => {});
  await until(async () => (await orderOf()).length === 1, 'the job to be in its order');
  // As if its process had been killed, and BullMQ had failed what has stalled too often.
  await server.admin.lrem(queue.toKey('active'), 0, `${job.id}`);
  await server.admin.zadd(queue.toKey('failed'), Date.now(), `${job.id}`);
  const planned = Number(await lookAt());
  assert.ok(planned > 0 && planned <= Date.now() + 60_000, `the look is planned for ${planned}`);
  // As if a minute had passed.
  await server.admin.zadd(queue.toKey('holdfast:keys'), 'XX', 0, KEY);
  await until(async () => (await orderOf()).length === 0, 'the job to leave its order');
  await until(async () => (await lookAt()) === null, 'the key to be forgotten');
});

test('a key is forgotten with its last job', async () => {
  await queue.addBulk(jobs(3));
  const worker = start(processorOf(locks));
  await until(async () => (await queue.getCompletedCount()) === 3, 'all jobs to be done');
  await worker.close();
  assert.equal(await lookAt(), null);
});

test('the looks go on when the worker is closed whose job was the last to be set aside', async () => {
  const held = await others.acquire(`${queue.name}:${KEY}`);
  const processor = processorOf(locks);
  const [one, other] = [start(null), start(null)];
  await queue.addBulk(jobs(2));
  const first = await next(one, 'one');
  await assert.rejects(processor(first, 'one', undefined), { name: 'DelayedError' });
  const second = await next(other, 'two');
  await assert.rejects(processor(second, 'two', undefined), { name: 'DelayedError' });
  await other.close();
  await queue.remove(`${first.id}`);
  await held.release();
  const state = async () => (await queue.getJob(`${second.id}`))?.getState();
  await until(async () => (await state()) === 'waiting', 'the second to be woken');
});

test('a process that cannot take locks leaves the looks to others', async () => {
  const failing = await connect(server.url);
  const held = await others.acquire(`${queue.name}:${KEY}`);
  await queue.addBulk(jobs(2));
  const worker = start(null);
  const processor = processorOf(failing);
  for (const token of ['one', 'two']) {
    const job = await next(worker, token);
    await assert.rejects(processor(job, token, undefined), { name: 'DelayedError' });
  }
  await failing.close();
  const overdue = async () => Date.now() - Number(await lookAt());
  await until(async () => (await overdue()) > OVERDUE_MS, 'a time for others to look');
  await held.release();
  start(processorOf(locks));
  await until(async () => (await queue.getCompletedCount()) === 2, 'all jobs to be done');
});

test('a job that enters while a process finds no key with jobs is looked at', async () => {
  let isOver = false;
  const processor = processorOf(locks, () => until(() => isOver, 'the end of the first'));
  const worker = start(null);
  const client = await (worker as unknown as Behind).backend.client;
  const { runCommand } = client;
  let entered: Job[] | undefined;
  let running: Promise<unknown> | undefined;
  client.runCommand = async function (name, args) {
    const answer = await runCommand.call(this, name, args);
    if (name === 'holdfastDue' && entered === undefined && (answer as [number])[0] === 0) {
      entered = [];
      isOver = false;
      await queue.addBulk(jobs(2));
      entered = [await next(worker, 'one'), await next(worker, 'two')];
      running = processor(entered[0] as Job, 'one', undefined);
      await until(async () => (await orderOf()).length === 1, 'the first to enter');
      await processor(entered[1] as Job, 'two', undefined).catch(() => {});
    }
    return answer;
  };
  await queue.addBulk(jobs(1));
  isOver = true;
  const job = await next(worker, 'zero');
  await processor(job, 'zero', undefined);
  await job.moveToCompleted(null, 'zero', false);
  await until(async () => (await queue.getDelayedCount()) === 1, 'the second to be set aside');
  await queue.remove(`${entered?.[1]?.id}`);
  isOver = true;
  await running;
  await until(async () => (await orderOf()).length === 0, 'the removed job to leave its order');
});
