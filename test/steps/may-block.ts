/**
 * `mayBlock` of holdfast/bullmq: docs/jobs.md. The steps are all requests of a worker: BullMQ hands a job out, its lock is
 * looked for, renewed while the job runs, and deleted as its end is recorded. BullMQ does not renew it here.
 */

import { type Job, Queue, Worker } from 'bullmq';
import { mayBlock } from 'holdfast/bullmq';
import { connect, type LockManager } from '../support/holdfast.js';
import { sleep, until } from '../support/wait.js';
import type { Feature, Preparation, Promised, Scene } from './feature.js';
import { COMMAND_MS, warmUp } from './holding.js';

/** Ten round trips of a busy machine, whose proxy has one thread for sixteen cases, and the patience of a command. */
const LOCK_MS = 6_000;
const STALLS = { lockDuration: LOCK_MS, stalledInterval: 300, skipLockRenewal: true };
/** Longer than the lock, so that the job is lost without a renewal. */
const JOB_MS = 6_600;
const ENDED_MS = 25_000;

interface Client {
  readonly locks: LockManager;
  readonly worker: Worker;
}

function connectionAt(url: string, isImpatient = false) {
  const { hostname: host, port, pathname } = new URL(url);
  const db = Number(pathname.slice(1));
  const impatient = isImpatient ? { commandTimeout: COMMAND_MS } : {};
  return { host, port: Number(port), db, maxRetriesPerRequest: null, ...impatient };
}

const direct = (scene: Scene) => connectionAt(scene.servers['redis'] ?? '');

function workerOf(
  scene: Scene,
  processor: ConstructorParameters<typeof Worker>[1],
  connection = direct(scene),
): Worker {
  const worker = new Worker(scene.name, processor, { connection, maxStalledCount: 20, ...STALLS });
  worker.on('error', () => {});
  return worker;
}

function processorOf(scene: Scene, locks: LockManager) {
  return mayBlock(locks, async ({ id }: Job) => {
    scene.note(`begins ${id} ${scene.who}`);
    await sleep(scene.who === 'first' ? JOB_MS : 1);
    scene.note(`ends ${id} ${scene.who}`);
  });
}

async function add(scene: Scene): Promise<void> {
  const queue = new Queue(scene.name, { connection: direct(scene) });
  await queue.add('job', {}, { attempts: 5, backoff: 100 });
  await queue.close();
}

/** A job, and a worker that runs none, and sets those back that have stalled. */
async function prepare(scene: Scene): Promise<Preparation> {
  await add(scene);
  const checker = workerOf(scene, null);
  checker.on('stalled', (id) => scene.note(`stalled ${id}`));
  await checker.startStalledCheckTimer();
  return { close: () => checker.close() };
}

async function open(scene: Scene): Promise<Client> {
  const isFirst = scene.who === 'first';
  const locks = await connect(scene.url, isFirst ? { commandTimeout: COMMAND_MS } : {});
  await warmUp(locks);
  const worker = workerOf(scene, null, connectionAt(scene.url, isFirst));
  await worker.waitUntilReady();
  return { locks, worker };
}

async function close({ worker, locks }: Client): Promise<void> {
  await worker.close();
  await locks.close();
}

/** Runs the job as a worker does. */
async function first({ locks, worker }: Client, scene: Scene): Promise<unknown> {
  const token = scene.who;
  const job = (await worker.getNextJob(token, { block: false })) as Job | undefined;
  if (job === undefined) return 'none';
  try {
    await processorOf(scene, locks)(job, token, undefined);
    await job.moveToCompleted(null, token, false);
  } catch (error) {
    await job.moveToFailed(error as Error, token, false);
  }
  return 'ran';
}

/** A worker that goes on until all jobs have ended. */
async function rest({ locks }: Client, scene: Scene): Promise<unknown> {
  const queue = new Queue(scene.name, { connection: direct(scene) });
  if (scene.who === 'again') await add(scene);
  const worker = workerOf(scene, processorOf(scene, locks));
  try {
    const open = () => queue.getJobCountByTypes('active', 'delayed', 'prioritized', 'wait');
    await until(async () => (await open()) === 0, 'all jobs to end', ENDED_MS);
    return (await queue.getFailedCount()) === 0 ? 'done' : 'failed';
  } finally {
    await worker.close();
    await queue.close();
  }
}

/** While a process and its manager go on and reach the server, their job is not set back, nor run elsewhere. */
const kept: Promised<unknown> = ({ fault, effects }) => {
  if (/^(process|manager)|away/.test(fault)) return true;
  const begin = effects.indexOf('begins 1 first');
  if (begin === -1) return true;
  const end = effects.indexOf('ends 1 first');
  return end > begin && effects.slice(begin + 1, end).length === 0;
};

export const features: readonly Feature[] = [
  {
    name: 'mayBlock: a job that takes longer than its lock',
    page: 'docs/jobs.md',
    prepare,
    open,
    close,
    first,
    second: rest,
    promises: {
      'a call ends': ({ first, second, again }) =>
        [first, second, again].every(({ error }) => error?.name !== 'Never'),
      'no process ends by an unhandled rejection': ({ fault, first }) =>
        fault === 'process killed' || first.killed === undefined,
      'a job is its worker’s as long as that works on it': kept,
      'a process that was stopped does not begin a job that another has got': ({ effects }) => {
        const other = effects.findIndex((effect) => /^begins 1 (second|again)/.test(effect));
        return other === -1 || effects.indexOf('begins 1 first') < other;
      },
      'every job is done': ({ second, again, effects }) =>
        [second, again].every(({ value }) => value === 'done') &&
        [1, 2].every((id) => effects.some((effect) => effect.startsWith(`ends ${id} `))),
      'no lock of a job remains': ({ store }) =>
        Object.keys(store).every((key) => !key.endsWith(':lock')),
    },
  },
];
