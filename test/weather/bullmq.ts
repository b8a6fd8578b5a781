/** `oneAtATime` of `holdfast/bullmq`. */

import assert from 'node:assert/strict';
import { type Job, Queue, Worker } from 'bullmq';
import { type KeyedHandler, type OneAtATimeOptions, oneAtATime } from 'holdfast/bullmq';
import type { LockManager } from '../support/holdfast.js';
import { sleep, until } from '../support/wait.js';
import type { Scene } from './scene.js';
import { weathered } from './survives.js';
import { type Adapter, not } from './weather.js';
import { gate } from './web.js';

interface Shop {
  readonly queue: Queue;
  readonly locks: LockManager;
  /** Adds jobs with these keys. */
  add(...keys: string[]): Promise<void>;
  /** The numbers of jobs that are completed and failed. */
  ended(): Promise<{ completed: number; failed: number }>;
  /** Why the last job failed. */
  reason(): Promise<string>;
}

interface Given {
  readonly handler: KeyedHandler;
  readonly keyOf?: (job: Job) => unknown;
  readonly options?: OneAtATimeOptions;
  readonly workers?: number;
  readonly concurrency?: number;
}

async function open(scene: Scene, given: Given, more = ''): Promise<Shop> {
  const name = `${scene.name}${more}`;
  const { port } = new URL(scene.url);
  const connection = { host: '127.0.0.1', port: Number(port), maxRetriesPerRequest: null };
  const queue = new Queue(name, { connection });
  queue.on('error', () => {});
  const locks = await scene.connect();
  const { handler, keyOf = ({ data }) => data.key, options, workers = 1, concurrency = 8 } = given;
  const all = Array.from({ length: workers }, () => {
    const processor = oneAtATime(locks, keyOf as never, handler, options);
    const worker = new Worker(name, processor, { connection, concurrency, stalledInterval: 500 });
    worker.on('error', () => {});
    return worker;
  });
  scene.after(() => queue.close());
  for (const worker of all) scene.after(() => worker.close());
  return {
    queue,
    locks,
    async add(...keys) {
      await queue.addBulk(keys.map((key) => ({ name: 'job', data: { key } })));
    },
    async ended() {
      const { completed = 0, failed = 0 } = await queue.getJobCounts('completed', 'failed');
      return { completed, failed };
    },
    async reason() {
      const [job] = await queue.getFailed(0, 0);
      return job?.failedReason ?? '';
    },
  };
}

async function allEnded({ ended }: Shop, completed: number, failed = 0): Promise<void> {
  const counts = async () => JSON.stringify(await ended());
  const wanted = JSON.stringify({ completed, failed });
  await until(async () => (await counts()) === wanted, `${wanted} jobs`, 40_000);
}

/** Waits until so many jobs have ended, completed or failed. */
async function eachEnded({ ended }: Shop, jobs: number): Promise<void> {
  const count = async () => {
    const { completed, failed } = await ended();
    return completed + failed;
  };
  await until(async () => (await count()) === jobs, `${jobs} jobs to end`, 40_000);
}

/** A handler that no two may be in at a time for one key. */
function alone(pause = 5) {
  const inside = new Set<string>();
  const seen = { overlaps: 0, runs: 0 };
  const handler: KeyedHandler = async ({ data: { key } }) => {
    seen.runs += 1;
    if (inside.has(key)) seen.overlaps += 1;
    inside.add(key);
    await sleep(pause);
    inside.delete(key);
  };
  return { handler, seen };
}

export const adapters: readonly Adapter[] = [
  {
    name: 'bullmq',
    cells: {
      answered: not('it answers no request'),
      async left(scene) {
        // A job that is removed while it waits for its turn.
        const [entered, goOn] = [gate(), gate()];
        const shop = await open(scene, {
          async handler() {
            entered.open();
            await goOn.opened;
          },
        });
        await shop.add('a', 'a', 'a');
        await entered.opened;
        await until(
          async () => (await shop.queue.getDelayedCount()) === 2,
          'the others to be set aside',
        );
        const [second] = await shop.queue.getDelayed();
        await second?.remove();
        goOn.open();
        await allEnded(shop, 2);
      },
      async throws(scene) {
        const shop = await open(scene, {
          handler: async ({ data: { key } }) => assert.fail(`handler of ${key}`),
        });
        await shop.add('a', 'a', 'b');
        await allEnded(shop, 0, 3);
        assert.match(await shop.reason(), /handler of/);
        const keyless = await open(
          scene,
          {
            handler: () => assert.fail('not to run'),
            keyOf: () => assert.fail('no key'),
          },
          'k',
        );
        await keyless.add('a');
        await allEnded(keyless, 0, 1);
        assert.match(await keyless.reason(), /no key/);
      },
      async refused(scene) {
        const { handler, seen } = alone();
        const shop = await open(scene, { handler });
        await shop.add('a');
        await allEnded(shop, 1);
        // BullMQ itself refuses to go on without memory: what has begun must not be lost.
        const [entered, goOn] = [gate(), gate()];
        const other = await open(
          scene,
          {
            async handler() {
              entered.open();
              await goOn.opened;
            },
          },
          'r',
        );
        await other.add('a', 'a');
        await entered.opened;
        await weathered.refuse();
        goOn.open();
        await sleep(200);
        await weathered.takeAgain();
        await eachEnded(other, 2);
        assert.equal(seen.overlaps, 0);
      },
      async hung(scene) {
        const { handler, seen } = alone(50);
        const shop = await open(scene, { handler });
        await shop.add('a', 'a', 'a');
        await until(() => seen.runs > 0, 'the first to run');
        weathered.server.pause();
        await sleep(1_500);
        weathered.server.resume();
        await eachEnded(shop, 3);
        assert.equal(seen.overlaps, 0);
      },
      async twice(scene) {
        const { handler, seen } = alone(20);
        const shop = await open(scene, { handler, workers: 2 });
        await shop.add('a', 'a', 'b', 'b');
        await allEnded(shop, 4);
        assert.deepEqual(seen, { overlaps: 0, runs: 4 });
      },
      async rubbish(scene) {
        const values = [undefined, null, 7, { a: 1 }];
        const shop = await open(scene, { handler: async () => values.pop() });
        await shop.add('a', 'a', 'a', 'a');
        await allEnded(shop, 4);
        for (const [i, [key, cause]] of [
          [undefined, /the key of a job must be a string, got undefined/],
          ['', /the key of a job must not be empty/],
          [{}, /the key of a job must be a string, got an object/],
          [Promise.resolve('a'), /the key of a job must be a string/],
        ].entries()) {
          const keyed = await open(
            scene,
            {
              handler: () => assert.fail('not to run'),
              keyOf: () => key,
            },
            `k${i}`,
          );
          await keyed.add('a');
          await allEnded(keyed, 0, 1);
          assert.match(await keyed.reason(), cause as RegExp);
        }
      },
      stream: not('it has no streams'),
      stopped: {
        async first(scene) {
          const journal = scene.client();
          const shop = await open(scene, {
            options: { ttl: 500 },
            async handler({ id, attemptsStarted }, lock) {
              await journal.rpush(`journal:${scene.name}`, `${id} ${lock.held} ${attemptsStarted}`);
            },
          });
          await shop.add('a');
          await until(
            async () => {
              const { completed, failed } = await shop.ended();
              return completed + failed > 0;
            },
            'the job to end',
            40_000,
          );
          return shop.ended();
        },
        async meanwhile(scene) {
          const lock = await (await scene.connect()).acquire(`${scene.name}:a`, { wait: 5_000 });
          await lock.release();
        },
        async judge(returned, scene) {
          const journal = await weathered.server.admin.lrange(`journal:${scene.name}`, 0, -1);
          // What begins without its lock is told so at once, and fails.
          assert.ok(journal.length <= 1, journal.join());
          assert.ok(
            journal.every((line) => line.includes('false')),
            journal.join(),
          );
          assert.deepEqual(returned, { completed: 0, failed: 1 });
        },
      },
      async separator(scene) {
        const { handler, seen } = alone(10);
        const shop = await open(scene, { handler });
        const keys = ['a:b', 'a', 'b', '{a}', 'queue', 'waiting', 'shared%', 'a%', 'a\nb', 'é'];
        await shop.add(...keys, ...keys);
        await allEnded(shop, 2 * keys.length);
        assert.deepEqual(seen, { overlaps: 0, runs: 2 * keys.length });
      },
      async thousand(scene) {
        const { handler, seen } = alone(0);
        const shop = await open(scene, { handler, concurrency: 100 });
        await shop.add(...Array.from({ length: 1_000 }, (_, i) => `k${i % 997}`));
        await allEnded(shop, 1_000);
        assert.deepEqual(seen, { overlaps: 0, runs: 1_000 });
      },
      async options(scene) {
        const { handler, seen } = alone(50);
        const shop = await open(scene, { handler });
        await shop.add('a', 'a');
        await allEnded(shop, 2);
        assert.deepEqual(seen, { overlaps: 0, runs: 2 });
      },
    },
  },
];
