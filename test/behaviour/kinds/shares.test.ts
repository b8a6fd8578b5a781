/** Many callers of one process that share a lock: their requests leave together, and each has what it would have alone. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { connect, holdfast, type Lock, type LockManager } from '../../support/holdfast.js';
import { FaultProxy } from '../../support/proxy.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

const SHARED = { mode: 'shared' } as const;
const CALLERS = 64;

const server = serverOfFile();
let proxy: FaultProxy;
let here: LockManager;
let there: LockManager;

beforeEach(async () => {
  proxy = await FaultProxy.start(server.port);
  [here, there] = [await connect(proxy.url), await connect(server.url)];
});

afterEach(async () => {
  await Promise.all([here.close(), there.close()]);
  await proxy.stop();
  // The counter and nothing else.
  const left = (await server.admin.keys('*')).filter((key) => !/fence$/.test(key));
  assert.deepEqual(left, []);
});

const taken = (count = CALLERS, locks = here) =>
  Promise.all(Array.from({ length: count }, () => locks.acquire('a', SHARED)));

async function scripts(work: () => Promise<unknown>): Promise<number> {
  await server.admin.config('RESETSTAT');
  await work();
  const stats = await server.admin.info('commandstats');
  const calls = stats.matchAll(/^cmdstat_eval(?:sha)?:calls=(\d+)/gm);
  return Array.from(calls, ([, count]) => Number(count)).reduce((sum, count) => sum + count, 0);
}

test('callers that share a lock cost the server a few scripts, and each has a fence of its own', async () => {
  const held = await there.acquire('a', SHARED);
  let locks: Lock[] = [];
  const count = await scripts(async () => {
    locks = await taken();
    const released = await Promise.all(locks.map((lock) => lock.release()));
    assert.deepEqual(new Set(released), new Set([true]));
  });
  assert.ok(count < CALLERS, `${count} scripts for ${2 * CALLERS} requests`);
  assert.equal(new Set(locks.map(({ fence }) => fence)).size, CALLERS);
  for (const { fence } of locks) assert.ok(fence > held.fence);
  assert.equal(await held.release(), true);
  const later = await there.acquire('a');
  for (const { fence } of locks) assert.ok(later.fence > fence);
  await later.release();
});

test('each share ends by itself: a writer waits for the last of them', async () => {
  const locks = await taken();
  let done = false;
  const writer = there.acquire('a').then((lock) => {
    done = true;
    return lock.release();
  });
  const last = locks.pop();
  await Promise.all(locks.map((lock) => lock.release()));
  assert.equal(await here.tryAcquire('a'), null);
  assert.equal(done, false);
  await last?.release();
  assert.equal(await writer, true);
});

test('nobody shares beside a writer, and nobody overtakes one', async () => {
  const inside = { readers: 0, writers: 0, read: 0 };
  let over = false;
  const reading = async (locks: LockManager) => {
    while (!over) {
      await locks.request('a', SHARED, async (lock) => {
        inside.readers++;
        assert.equal(inside.writers, 0);
        assert.ok(lock.held);
        await new Promise(setImmediate);
        inside.readers--;
        inside.read++;
      });
    }
  };
  const writing = async (locks: LockManager) => {
    for (let turn = 0; turn < 20; turn++) {
      await locks.request('a', async () => {
        inside.writers++;
        assert.deepEqual([inside.readers, inside.writers], [0, 1]);
        await new Promise(setImmediate);
        inside.writers--;
      });
    }
  };
  const readers = [here, there].flatMap((locks) =>
    Array.from({ length: 16 }, () => reading(locks)),
  );
  await Promise.all([writing(here), writing(there)]);
  over = true;
  await Promise.all(readers);
  assert.ok(inside.read > 0);
});

test('a server that forgets its scripts is told them again', async () => {
  const held = await there.acquire('a', SHARED);
  for (let round = 0; round < 3; round++) {
    const locks = await taken();
    await server.admin.script('FLUSH');
    const released = await Promise.all(locks.map((lock) => lock.release()));
    assert.deepEqual(new Set(released), new Set([true]));
  }
  await held.release();
});

/** What 64 callers get whose requests meet a fault; whatever they have got is released. */
async function outcomes(fault: () => Promise<void>): Promise<void> {
  // The script is known from here on.
  const held = await there.acquire('a', SHARED);
  await Promise.all((await taken()).map((lock) => lock.release()));
  const asked = Array.from({ length: CALLERS }, () =>
    here.acquire('a', { ...SHARED, wait: 20_000, ttl: 3_000 }),
  );
  const all = Promise.allSettled(asked);
  await fault();
  for (const outcome of await all) {
    if (outcome.status === 'fulfilled') assert.equal(await outcome.value.release(), true);
    else assert.ok(outcome.reason instanceof holdfast.LockConnectionError, `${outcome.reason}`);
  }
  await held.release();
  const writer = await there.acquire('a', { wait: 20_000 });
  await writer.release();
}

const shares = async () => (await there.query()).held.length;

test('a lost answer leaves no share', () =>
  outcomes(async () => {
    proxy.loseReplies = true;
    await until(async () => (await shares()) > 1, 'the shares');
    proxy.loseReplies = false;
    proxy.cut();
  }));

test('a request that is executed late leaves no share', () =>
  outcomes(async () => {
    proxy.hold();
    proxy.cut();
    await until(() => proxy.open > 0, 'another connection');
    proxy.deliver();
  }));
