/**
 * Two versions of the package on one Redis, as during a rolling deploy: each waits for, gets, extends and releases what the
 * other has. `HOLDFAST_BEFORE` is the folder of an installed package, such as `node_modules/holdfast` of the version before;
 * without it both are this one.
 */

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { ROOT } from '../support/child.js';
import { holdfast, type LockManager } from '../support/holdfast.js';
import { serverOfFile } from '../support/server-of-file.js';
import { until } from '../support/wait.js';

const folder = process.env['HOLDFAST_BEFORE'] ?? ROOT;
const earlier = createRequire(join(folder, 'package.json'))(folder) as typeof holdfast;

const server = serverOfFile();
let managers: LockManager[];

beforeEach(async () => {
  managers = [await earlier.connect(server.url), await holdfast.connect(server.url)];
});

afterEach(async () => {
  await Promise.all(managers.map((each) => each.close()));
  const left = (await server.admin.keys('*')).filter((key) => !/fence$|^lock:once:job@/.test(key));
  assert.deepEqual(left, []);
  await server.admin.flushall();
});

for (const [way, order] of [
  ['the earlier version first', (all: LockManager[]) => all],
  ['this version first', (all: LockManager[]) => [...all].reverse()],
] as const) {
  const both = () => order(managers) as [LockManager, LockManager];

  test(`${way}: a lock excludes, is handed over in the order of the queue, and fences rise`, async () => {
    const [a, b] = both();
    const fences: number[] = [];
    const lock = await a.acquire('item');
    assert.equal(await b.tryAcquire('item'), null);
    const waiting = [];
    for (const [count, locks] of [b, a, b, a].entries()) {
      waiting.push(
        locks.acquire('item').then(async (next) => {
          fences.push(next.fence);
          assert.equal(await next.release(), true);
        }),
      );
      await until(() => a.stats().waiting + b.stats().waiting === count + 1, 'the waiter');
    }
    assert.equal(await lock.release(), true);
    await Promise.all(waiting);
    assert.equal(fences.length, 4);
    for (const fence of fences) assert.ok(fence > lock.fence);
    assert.equal(new Set(fences).size, 4);
  });

  test(`${way}: shares and permits are counted together, and a writer waits for all`, async () => {
    const [a, b] = both();
    const held = [
      await a.acquire('many', { mode: 'shared', limit: 2 }),
      await b.acquire('many', { mode: 'shared', limit: 2 }),
    ];
    assert.equal(await a.tryAcquire('many', { mode: 'shared', limit: 2 }), null);
    const writer = b.acquire('many');
    await until(() => b.stats().waiting === 1, 'the writer');
    for (const share of held) assert.equal(await share.release(), true);
    assert.equal(await (await writer).release(), true);
  });

  test(`${way}: a lock is taken over by its token, and shown`, async () => {
    const [a, b] = both();
    const lock = await a.acquire('moved', { label: 'here', ttl: 60_000 });
    const [shown] = (await b.query()).held;
    assert.deepEqual([shown?.name, shown?.label], ['moved', 'here']);
    const adopted = await b.adopt(lock.toJSON());
    assert.equal(adopted.name, 'moved');
    await until(() => !lock.held, 'the loss');
    assert.equal(await adopted.release(), true);
  });

  test(`${way}: a slot runs once`, async () => {
    const [a, b] = both();
    const first = await a.runOnce('job', { slot: 's', keepResult: true }, async () => 42);
    const second = await b.runOnce('job', { slot: 's', keepResult: true }, async () => 43);
    assert.deepEqual([first.ran, second.ran, second.value], [true, false, 42]);
  });

  test(`${way}: what a version that ends leaves is released`, async () => {
    const [a, b] = both();
    await a.acquire('left');
    const waiting = b.acquire('left');
    await until(() => b.stats().waiting === 1, 'the waiter');
    await a.close();
    assert.equal(await (await waiting).release(), true);
  });
}
