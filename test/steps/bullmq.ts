/**
 * `oneAtATime` of holdfast/bullmq: docs/jobs.md. Two jobs of one key; while the first runs, the second is started and set
 * aside. The steps are those of the order and the lock: BullMQ's own requests do not name the case.
 */

import { type Job, Queue, Worker } from 'bullmq';
import { oneAtATime } from 'holdfast/bullmq';
import { connect, type LockManager } from '../support/holdfast.js';
import { until } from '../support/wait.js';
import type { Feature, Preparation, Promised, Scene } from './feature.js';
import { COMMAND_MS, warmUp } from './holding.js';

const NAME = 'jobs';
/** How long BullMQ takes a job that nobody renews for one that runs. */
const STALLS = { lockDuration: 1_500, stalledInterval: 300, maxStalledCount: 20 };
/** A job that was not woken looks again after ten seconds. */
const PATIENCE_MS = 28_000;

interface Client {
  readonly locks: LockManager;
  readonly worker: Worker;
  readonly running: Set<Promise<unknown>>;
}

function connectionAt(url: string, who: string) {
  const { hostname: host, port, pathname } = new URL(url);
  const impatient = who === 'first' ? { commandTimeout: COMMAND_MS } : {};
  return {
    host,
    port: Number(port),
    db: Number(pathname.slice(1)),
    maxRetriesPerRequest: null,
    ...impatient,
  };
}

function processorOf(
  scene: Scene,
  locks: LockManager,
  during: () => Promise<unknown> = async () => {},
) {
  return oneAtATime(
    locks,
    () => scene.name,
    async (job: Job) => {
      const number = `${job.data.number}`;
      scene.note(`begins ${number} ${scene.who}`);
      await during();
      scene.note(`ends ${number} ${scene.who}`);
    },
    { ttl: scene.ttl },
  );
}

/** Runs a job as a worker does. */
async function runBy({ worker }: Client, processor: ReturnType<typeof processorOf>, token: string) {
  const job = (await worker.getNextJob(token, { block: false })) as Job | undefined;
  if (job === undefined) return;
  try {
    await processor(job, token, undefined);
    await job.moveToCompleted(null, token, false);
  } catch (error) {
    if ((error as Error).name !== 'DelayedError')
      await job.moveToFailed(error as Error, token, false);
  }
}

async function first(client: Client, scene: Scene): Promise<string> {
  const second = processorOf(scene, client.locks);
  const processor = processorOf(scene, client.locks, () =>
    runBy(client, second, 'two').catch(() => {}),
  );
  await runBy(client, processor, 'one');
  return 'ran';
}

/** A worker that goes on until both jobs are done. */
async function rest(client: Client, scene: Scene): Promise<string> {
  const connection = connectionAt(scene.servers['redis'] ?? '', scene.who);
  const options = { connection, concurrency: 2, ...STALLS };
  const worker = new Worker(NAME, processorOf(scene, client.locks), options);
  worker.on('error', () => {});
  const queue = new Queue(NAME, { connection });
  try {
    await until(async () => (await queue.getCompletedCount()) === 2, 'both jobs', PATIENCE_MS);
    return 'done';
  } finally {
    await worker.close();
    await queue.close();
  }
}

const alone: Promised<unknown> = ({ fault, effects }) => {
  let running = '';
  return effects.every((effect) => {
    const [what, number = ''] = effect.split(' ');
    if (what === 'ends') {
      running = '';
      return true;
    }
    // One that was killed does not end, and one that was stopped past its lease may not have known.
    const isAlone = running === '' || fault.startsWith('process');
    running = number;
    return isAlone;
  });
};

const oneKey: Feature<Client> = {
  name: 'oneAtATime: a job that runs, and one that is set aside',
  page: 'docs/jobs.md',
  prepare: async (scene: Scene): Promise<Preparation> => {
    const queue = new Queue(NAME, {
      connection: connectionAt(scene.servers['redis'] ?? '', 'any'),
    });
    const attempts = { attempts: 5, backoff: 100 };
    await queue.addBulk(
      [1, 2].map((number) => ({ name: 'job', data: { number }, opts: attempts })),
    );
    await queue.close();
    return {};
  },
  open: async (scene) => {
    const timeout = scene.who === 'first' ? { commandTimeout: COMMAND_MS } : {};
    const locks = await connect(scene.url, timeout);
    await warmUp(locks);
    const worker = new Worker(NAME, null, {
      connection: connectionAt(scene.url, scene.who),
      ...STALLS,
    });
    worker.on('error', () => {});
    await worker.waitUntilReady();
    return { locks, worker, running: new Set() };
  },
  close: async ({ worker, locks }) => {
    await worker.close();
    await locks.close();
  },
  first,
  second: rest,
  promises: {
    'a call ends': ({ first: one, second, again }) =>
      [one, second, again].every(({ error }) => error?.name !== 'Never'),
    'all jobs are done': ({ second, again }) =>
      [second, again].every(({ value }) => value === 'done'),
    'no two jobs run at a time': alone,
    'each job has run': ({ effects }) =>
      [1, 2].every((number) => effects.some((effect) => effect.startsWith(`ends ${number}`))),
    'nothing of the key is left behind': ({ store }) =>
      Object.keys(store).every(
        (key) => !/^lock:/.test(key) || /:(queue|waiting|waiters|shared)$/.test(key),
      ),
  },
};

export const features: readonly Feature[] = [oneKey];
