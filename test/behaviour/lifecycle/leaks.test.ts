/** Memory, files and threads must not grow. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect, openOperations } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

const PAIRS = 200_000;
const IN_FLIGHT = 64;

async function pairs(locks: Awaited<ReturnType<typeof connect>>, count: number): Promise<void> {
  let left = count;
  const task = async (id: number) => {
    while (left-- > 0) {
      const lock = await locks.acquire(`leak:${id}`);
      assert.equal(await lock.release(), true);
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, (_, id) => task(id)));
}

/** Resident and heap memory in MB, after two collections. */
function memory(): { rss: number; heap: number } {
  const collect = globalThis.gc;
  assert.ok(collect !== undefined, 'run with --expose-gc');
  collect();
  collect();
  const { rss, heapUsed } = process.memoryUsage();
  return { rss: rss / 2 ** 20, heap: heapUsed / 2 ** 20 };
}

test(`memory stays flat over ${PAIRS} pairs of acquire and release`, async () => {
  const server = await RedisServer.start();
  const locks = await connect(server.url);
  await pairs(locks, PAIRS / 4);
  const before = memory();
  await pairs(locks, PAIRS);
  const after = memory();
  assert.ok(after.heap - before.heap < 2, `heap ${before.heap} → ${after.heap} MB`);
  // A lease alone is more than 150 bytes: one leaked per pair would be 30 MB.
  assert.ok(after.rss - before.rss < 25, `rss ${before.rss} → ${after.rss} MB`);
  await locks.close();
  assert.equal(openOperations(), 0);
  await server.stop();
});

test('nothing keeps the event loop alive after close', async () => {
  const server = await RedisServer.start();
  const before = process.getActiveResourcesInfo().sort();
  const locks = await connect(server.url);
  const lock = await locks.acquire('a');
  await lock.release();
  await locks.close();
  assert.equal(openOperations(), 0);
  const left = () => process.getActiveResourcesInfo().sort().join();
  // Callbacks that others have planned for this turn have run by the next.
  await until(() => left() === before.join(), 'nothing to be left');
  await server.stop();
});
