/** Locks whose server dies, stops or loses its slots: holders and waiters go on at the next server. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { Cluster } from '../../support/cluster.js';
import { connect, type Lock, type LockManager, openOperations } from '../../support/holdfast.js';
import type { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

const COUNT = 100;
const TAG = '{shop}';

let cluster: Cluster;
let holder: LockManager;
let waiter: LockManager;

beforeEach(async () => {
  cluster = await Cluster.start({ replicas: 1 });
  const target = { cluster: cluster.urls };
  [holder, waiter] = await Promise.all([connect(target), connect(target)]);
});

afterEach(async () => {
  await Promise.all([holder.close(), waiter.close()]);
  assert.equal(openOperations(), 0);
  await cluster.stop();
});

const names = Array.from({ length: COUNT }, (_, index) => `stock:${TAG}:${index}`);

interface Scene {
  readonly primary: RedisServer;
  readonly slot: number;
  readonly held: readonly Lock[];
  readonly waiting: readonly Promise<Lock | 'timed out'>[];
}

/** One manager holds all locks, on one server, and another waits for each. */
async function setScene(): Promise<Scene> {
  const held = await Promise.all(
    names.map((name) => holder.acquire(name, { ttl: 20_000, wait: 60_000 })),
  );
  const waiting = names.map((name) =>
    waiter.acquire(name, { ttl: 20_000, wait: 60_000 }).catch((error: Error & { code: string }) => {
      // Whatever goes wrong meanwhile, a retry within its wait would cure it.
      assert.equal(error.code, 'ERR_LOCK_TIMEOUT', error.message);
      return 'timed out' as const;
    }),
  );
  const slot = await cluster.slotOf(TAG);
  const primary = await cluster.primaryOf(slot);
  await until(
    async () => (await primary.admin.zcard(`lock:${names.at(-1)}::queue`)) === 1,
    'the last waiter',
  );
  await cluster.inSync(primary);
  return { primary, slot, held, waiting };
}

/** Every hold goes on or is told lost, every waiter gets the lock, and no fence repeats. */
async function checkEnd({ held, waiting }: Scene): Promise<void> {
  let renewed = 0;
  for (const lock of held) {
    if (lock.signal.aborted) continue;
    await lock.extend();
    assert.ok(lock.held);
    renewed += 1;
  }
  assert.ok(renewed > 0, 'what the replica had is renewed there');
  const released = await Promise.all(held.map((lock) => lock.release()));
  assert.equal(released.filter(Boolean).length, renewed);
  const granted = await Promise.all(waiting);
  assert.ok(!granted.includes('timed out'));
  for (const [index, lock] of granted.entries()) {
    if (lock === 'timed out') continue;
    assert.ok(lock.fence > (held[index]?.fence ?? 0), 'fences rise');
    assert.ok(await lock.release());
  }
}

test('a primary that dies with a hundred locks and waiters is gone on from by its replica', async () => {
  const scene = await setScene();
  await scene.primary.kill();
  await cluster.failedOver(scene.slot, scene.primary);
  await checkEnd(scene);
});

test('a primary that hangs is replaced, and what it does when it wakes harms nobody', async () => {
  const scene = await setScene();
  scene.primary.pause();
  await cluster.failedOver(scene.slot, scene.primary);
  scene.primary.resume();
  await checkEnd(scene);
});

test('a planned failover costs nobody a lock', async () => {
  const scene = await setScene();
  await cluster.failOver(scene.slot);
  assert.ok(scene.held.every((lock) => lock.held));
  await checkEnd(scene);
  assert.equal(holder.stats().lost, 0);
});

test('a planned failover: readers do not overtake a writer, whoever connects first', async () => {
  const name = `read:${TAG}`;
  const options = { ttl: 20_000, wait: 60_000 };
  const shared = await holder.acquire(name, { ...options, mode: 'shared' });
  const crew = await Promise.all(
    Array.from({ length: 4 }, () => connect({ cluster: cluster.urls })),
  );
  try {
    const slot = await cluster.slotOf(TAG);
    const primary = await cluster.primaryOf(slot);
    const order: number[] = [];
    const done: Promise<void>[] = [];
    for (const [index, each] of crew.entries()) {
      const mode = index % 2 === 0 ? 'exclusive' : 'shared';
      const turn = each.acquire(name, { ...options, mode }).then(async (lock) => {
        order.push(index);
        await lock.release();
      });
      done.push(turn);
      await until(
        async () => (await primary.admin.zcard(`lock:${name}::queue`)) === index + 1,
        `waiter ${index}`,
      );
    }
    await cluster.inSync(primary);
    const next = await cluster.failOver(slot);
    await until(
      async () =>
        crew.every((each) => each.stats().waiting === 1) &&
        ((await next.admin.call('PUBSUB', 'SHARDCHANNELS', '*')) as unknown[]).length >=
          crew.length,
      'the waiters to listen again',
    );
    assert.deepEqual(order, [], 'nobody got a share meanwhile');
    assert.equal(await shared.release(), true);
    await Promise.all(done);
    assert.deepEqual(order, [0, 1, 2, 3]);
  } finally {
    await Promise.all(crew.map((each) => each.close()));
  }
});
