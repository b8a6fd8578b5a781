/**
 * `oneAtATime` of holdfast/bullmq: docs/jobs.md. The steps are all requests of a worker, also BullMQ's own: it hands a job out,
 * the job enters the order of its key and takes the lock, or is set aside, and at its end leaves the order and is recorded.
 */

import { type Job, Queue, Worker } from 'bullmq';
import { oneAtATime } from 'holdfast/bullmq';
import { Redis } from 'ioredis';
import { connect, type LockManager } from '../support/holdfast.js';
import { until } from '../support/wait.js';
import { FAULTS } from './faults.js';
import type { Feature, Preparation, Promised, Scene } from './feature.js';
import { COMMAND_MS, warmUp } from './holding.js';

const KEY = 'ada';
const STALLS = { lockDuration: 1_500, stalledInterval: 300 };
/** The longest sleep that the page tells, and time for a busy machine and for BullMQ to find out that a job has stalled. */
const ENDED_MS = 10_000 + 10_000;
/** How long the end of a worker and a manager may take that cannot reach their server. */
const CLOSED_MS = 10_000;

/** What becomes of the first job while its worker is not heard of, and the jobs that run all the same. */
const FATES = {
  'run by another worker': [1, 2, 3],
  removed: [2, 3],
  // BullMQ may fail the second as stalled, too.
  'failed as stalled': [3],
} as const;

type Fate = keyof typeof FATES;

interface Client {
  readonly locks: LockManager;
  readonly worker: Worker;
}

type Processor = ReturnType<typeof processorOf>;

function connectionAt(url: string, who: string) {
  const { hostname: host, port, pathname } = new URL(url);
  const impatient = who === 'first' ? { commandTimeout: COMMAND_MS } : {};
  const db = Number(pathname.slice(1));
  return { host, port: Number(port), db, maxRetriesPerRequest: null, ...impatient };
}

const lockOf = (scene: Scene) => `${scene.name}:${KEY}`;

function processorOf(
  scene: Scene,
  locks: LockManager,
  during: () => Promise<unknown> = async () => {},
) {
  return oneAtATime(
    locks,
    () => KEY,
    async ({ data: { number } }: Job, lock) => {
      scene.note(`begins ${number} ${scene.who} ${lock.held ? lock.fence : 'lost'}`);
      await during();
      scene.note(`ends ${number} ${scene.who}`);
    },
    { ttl: scene.ttl },
  );
}

/** Runs the next job as a worker does; answers whether there was one. */
async function runBy({ worker }: Client, processor: Processor, token: string): Promise<boolean> {
  const job = (await worker.getNextJob(token, { block: false })) as Job | undefined;
  if (job === undefined) return false;
  try {
    await processor(job, token, undefined);
    await job.moveToCompleted(null, token, false);
  } catch (error) {
    if ((error as Error).name !== 'DelayedError')
      await job.moveToFailed(error as Error, token, false);
  }
  return true;
}

async function open(scene: Scene): Promise<Client> {
  const timeout = scene.who === 'first' ? { commandTimeout: COMMAND_MS } : {};
  const locks = await connect(scene.url, timeout);
  await warmUp(locks);
  const connection = connectionAt(scene.url, scene.who);
  const worker = new Worker(scene.name, null, { connection, ...STALLS });
  worker.on('error', () => {});
  await worker.waitUntilReady();
  return { locks, worker };
}

async function close({ worker, locks }: Client, scene: Scene): Promise<void> {
  const late = setTimeout(() => scene.note(`hangs ${scene.who}`), CLOSED_MS);
  await worker.close();
  await locks.close();
  clearTimeout(late);
}

function queueOf(scene: Scene): Queue {
  const connection = connectionAt(scene.servers['redis'] ?? '', 'any');
  return new Queue(scene.name, { connection });
}

async function add(queue: Queue, numbers: readonly number[]): Promise<void> {
  const opts = { attempts: 5, backoff: 100 };
  await queue.addBulk(numbers.map((number) => ({ name: 'job', data: { number }, opts })));
}

/** Removes the first job as soon as no worker has it. */
async function removeFirst(queue: Queue): Promise<void> {
  await until(async () => {
    const isGone = (await queue.getJob('1')) === undefined;
    return isGone || (await queue.remove('1')) === 1;
  }, 'the job to be removed');
}

/** A worker that goes on until all jobs have ended, and then says what is left of the order. */
async function rest(client: Client, scene: Scene, fate: Fate): Promise<unknown> {
  const queue = queueOf(scene);
  if (scene.who === 'again') await add(queue, [3]);
  else if (fate === 'removed') await removeFirst(queue);
  const connection = connectionAt(scene.servers['redis'] ?? '', scene.who);
  const maxStalledCount = fate === 'failed as stalled' ? 0 : 20;
  const options = { connection, concurrency: 2, maxStalledCount, ...STALLS };
  const worker = new Worker(scene.name, processorOf(scene, client.locks), options);
  worker.on('error', () => {});
  const redis = new Redis(scene.servers['redis'] ?? '');
  try {
    const open = async () =>
      await queue.getJobCountByTypes('active', 'delayed', 'prioritized', 'wait', 'waiting');
    await until(async () => (await open()) === 0, 'all jobs to end', ENDED_MS);
    const [jobs, look] = await Promise.all([
      redis.zcard(queue.toKey(`holdfast:order:${KEY}`)),
      redis.zscore(queue.toKey('holdfast:keys'), KEY),
    ]);
    return jobs > 0 && look === null ? 'forgets the order' : 'ended';
  } finally {
    redis.disconnect();
    await worker.close();
    await queue.close();
  }
}

/** While one runs, no other begins. A later one has a greater fence, also if the former was killed or stopped. */
const alone: Promised<unknown> = ({ fault, effects }) => {
  let [running, last] = ['', 0];
  return effects.every((effect) => {
    const [what, number = '', , fence] = effect.split(' ');
    if (what === 'ends') running = '';
    if (what !== 'begins' || fence === 'lost') return true;
    const isAlone = (running === '' || fault.startsWith('process')) && Number(fence) > last;
    [running, last] = [number, Number(fence)];
    return isAlone;
  });
};

function promisesOf(fate: Fate): Feature<Client>['promises'] {
  return {
    'a call ends': ({ first, second, again }) =>
      [first, second, again].every(({ error }) => error?.name !== 'Never'),
    'no process ends by an unhandled rejection': ({ fault, first }) =>
      fault === 'process killed' || first.killed === undefined,
    'every job ends, and none sleeps longer than the page says': ({ second, again }) =>
      [second, again].every(({ error }) => error === undefined),
    'an order that has jobs left is looked at': ({ second, again }) =>
      [second, again].every(({ value }) => value !== 'forgets the order'),
    'no two jobs run at a time': alone,
    'each job has run': ({ effects }) =>
      FATES[fate].every((number) => effects.some((effect) => effect.startsWith(`ends ${number}`))),
    'nothing of the key is left when a later job has ended': ({ store }) =>
      Object.keys(store).every(
        (key) =>
          (!/^lock:/.test(key) || /:(queue|waiting|waiters|shared)$/.test(key)) &&
          !/:holdfast:(order:|keys$)/.test(key),
      ),
    'the worker and the manager close': ({ effects }) =>
      !effects.some((effect) => effect.startsWith('hangs')),
  };
}

/** Two jobs of one key: while the first runs, the second is started and set aside. */
const oneKey = (fate: Fate, faults?: Feature['faults']): Feature<Client> => ({
  ...(faults && { faults }),
  name: `oneAtATime: a job that runs, and is then ${fate}, and one that is set aside`,
  page: 'docs/jobs.md',
  prepare: async (scene: Scene): Promise<Preparation> => {
    const queue = queueOf(scene);
    await add(queue, [1, 2]);
    await queue.close();
    return {};
  },
  open,
  close,
  first: async (client, scene) => {
    const second = processorOf(scene, client.locks);
    const processor = processorOf(scene, client.locks, () =>
      runBy(client, second, 'two').catch(() => {}),
    );
    await runBy(client, processor, 'one');
    return 'ran';
  },
  second: (client, scene) => rest(client, scene, fate),
  promises: promisesOf(fate),
});

/** A job whose lock other code has: it is set aside, and the release wakes it. */
const busy: Feature<Client> = {
  ...oneKey('run by another worker'),
  name: 'oneAtATime: a job whose lock other code has',
  // A process that is stopped is broken off in the other lists: here half of the cases would take ten seconds more.
  faults: FAULTS.map(({ name }) => name).filter(
    (name) => name !== 'process stopped past its lease',
  ),
  first: async (client, scene) => {
    const others = await connect(scene.servers['redis'] ?? '');
    const held = await others.acquire(lockOf(scene), { ttl: scene.ttl });
    try {
      const processor = processorOf(scene, client.locks);
      await runBy(client, processor, 'one');
      await until(() => client.locks.stats().waiting === 1, 'the wait for the lock', 500).catch(
        () => {},
      );
      await held.release();
      await until(() => runBy(client, processor, 'again'), 'the job to be woken', 2_000);
      return 'ran';
    } finally {
      await others.close();
    }
  },
};

export const features: readonly Feature[] = [
  oneKey('run by another worker'),
  oneKey('removed', ['process stopped past its lease']),
  oneKey('failed as stalled', ['process killed']),
  busy,
];
