/** Callers of a manager with `besideOldCode`: they poll, and everything else is as with the queue. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect, holdfast, type LockManager } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

const LONG_MS = 60_000;
const besideOldCode = { retryDelay: 40 };

let locks: LockManager;

const server = serverOfFile({}, async () => {
  locks = await connect(server.url, { prefix: '', besideOldCode });
});

/** Old code takes a lock. */
async function hold(name: string): Promise<void> {
  assert.equal(await server.admin.set(name, 'old code', 'PX', LONG_MS, 'NX'), 'OK');
}

/** Until the manager's callers have been refused: they ask in the order of their calls. */
async function untilWaiting(count: number): Promise<void> {
  await until(() => locks.stats().waiting === count, `${count} waiters`);
  await locks.tryAcquire('another').then((lock) => lock?.release());
}

test('a waiter leaves no trace on the server, and gets the lock that old code frees', async () => {
  await hold('a');
  const waiting = locks.acquire('a', { wait: LONG_MS });
  await untilWaiting(1);
  assert.deepEqual(
    (await server.admin.keys('*')).filter((key) => key.includes('{a}')),
    [],
  );
  await server.admin.del('a');
  const lock = await waiting;
  assert.equal(await server.admin.get('a'), lock.token);
  assert.equal(await lock.release(), true);
});

test('no lock is kept for the next caller: old code finds only a free one', async () => {
  const lock = await locks.acquire('idle', { linger: 3_000 });
  assert.equal(await lock.release(), true);
  assert.equal(await server.admin.exists('idle'), 0);
});

test('a release leaves the lock free, though a caller of the same manager waits', async () => {
  const lock = await locks.acquire('b');
  const waiting = locks.acquire('b', { wait: LONG_MS });
  await untilWaiting(1);
  const handedOff = () => locks.stats().handedOff;
  const before = handedOff();
  assert.equal(await lock.release(), true);
  assert.equal(await (await waiting).release(), true);
  assert.deepEqual(handedOff(), before);
});

test('timeouts, signals, request, runOnce and reentrant', async () => {
  await hold('c');
  await assert.rejects(locks.acquire('c', { wait: 150 }), (error) => {
    assert.ok(error instanceof holdfast.LockTimeoutError);
    assert.match(error.message, /it is held by other code, and its lease ends in [\d.]+m?s$/);
    assert.ok(error.waited >= 150);
    return true;
  });
  assert.equal(locks.stats().timedOut, 1);

  const controller = new AbortController();
  const aborted = locks.acquire('c', { wait: LONG_MS, signal: controller.signal });
  await untilWaiting(1);
  controller.abort(new Error('enough'));
  await assert.rejects(aborted, /enough/);
  assert.equal(locks.stats().waiting, 0);

  assert.equal(await locks.request('c', { ifAvailable: true }, (lock) => lock), null);
  const running = locks.request('c', { reentrant: true }, async () =>
    locks.request('c', { reentrant: true }, async (inner) => inner.held),
  );
  await untilWaiting(1);
  await server.admin.del('c');
  assert.equal(await running, true);

  const once = { slot: 'one', ttl: 1_000, wait: LONG_MS };
  const ran = await Promise.all([1, 2].map(() => locks.runOnce('d', once, () => {})));
  assert.deepEqual(ran.map((each) => each.ran).sort(), [false, true]);
});

test('several names, and a shared lock, which waits in the queue', async () => {
  await hold('e');
  const set = locks.acquire(['e', 'f'], { wait: LONG_MS });
  await untilWaiting(1);
  await server.admin.del('e');
  await (await set).release();

  const lock = await locks.acquire('g');
  const share = locks.acquire('g', { mode: 'shared', wait: LONG_MS });
  await until(async () => (await server.admin.exists('{g}:queue')) === 1, 'its entry');
  assert.equal(await lock.release(), true);
  assert.equal(await (await share).release(), true);
});

test('a waiter that meets the queue again and again joins it', async () => {
  const others = await connect(server.url, { prefix: '' });
  const lock = await others.acquire('h');
  const next = others.acquire('h', { wait: LONG_MS, label: 'next' });
  await until(async () => (await server.admin.zcard('{h}:queue')) === 1, 'the other waiter');
  const waiting = locks.acquire('h', { wait: LONG_MS, label: 'here' });
  await until(async () => (await server.admin.zcard('{h}:queue')) === 2, 'that it joins');
  await lock.release();
  await (await next).release();
  assert.equal(await (await waiting).release(), true);
  await others.close();
});

test('close rejects the waiters', async () => {
  await hold('i');
  const closing = await connect(server.url, { prefix: '', besideOldCode });
  const waiting = closing.acquire('i', { wait: LONG_MS });
  await until(() => closing.stats().waiting === 1, 'the waiter');
  const refused = assert.rejects(waiting, holdfast.LockClosedError);
  await closing.close();
  await refused;
});

test('on memory:, too', async () => {
  const memory = await connect('memory:', { besideOldCode });
  const lock = await memory.acquire('a');
  const waiting = memory.acquire('a', { wait: LONG_MS });
  await lock.release();
  assert.equal(await (await waiting).release(), true);
  await memory.close();
});
