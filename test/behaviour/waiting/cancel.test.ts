/** A waiter that stops waiting leaves nothing behind, also when it gets its grant in the same instant. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { quiet, untilQueued } from '../../support/crew.js';
import { connect, type Lock, type LockManager, openOperations } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

let server: RedisServer;
let a: LockManager;
let b: LockManager;

beforeEach(async () => {
  server = await RedisServer.start();
  [a, b] = await Promise.all([connect(server.url), connect(server.url)]);
});

afterEach(async () => {
  await Promise.all([a.close(), b.close()]);
  assert.equal(openOperations(), 0);
  await quiet(server);
  await server.stop();
});

const LONG = { ttl: 60_000, wait: 60_000 };

/** Lets the native thread and the server go on for a moment while this thread does not. */
function spin(us: number): void {
  const end = process.hrtime.bigint() + BigInt(Math.round(us * 1000));
  while (process.hrtime.bigint() < end);
}

/** How the rounds of a race ended. */
interface Score {
  granted: number;
  cancelled: number;
}

/** The holder releases, and the waiter is cancelled a moment before or after. */
async function race(name: string, score: Score, handOn: boolean): Promise<void> {
  const held = await a.acquire(name, LONG);
  const cancel = new AbortController();
  const reason = new Error('enough');
  const waiting: Promise<Lock | undefined> = (handOn ? a : b)
    .acquire(name, { ...LONG, signal: cancel.signal })
    .catch((error: unknown) => {
      assert.equal(error, reason);
      return undefined;
    });
  await until(async () => (await server.admin.zcard(`{lock:${name}}:queue`)) === 1, 'the waiter');
  const released = held.release();
  // From before the release leaves to after the grant arrives.
  switch (Math.floor(Math.random() * 5)) {
    case 0:
      break;
    case 1:
      await Promise.resolve();
      spin(Math.random() * 400);
      break;
    case 2:
      await new Promise((resolve) => setImmediate(resolve));
      break;
    case 3:
      await released;
      break;
    default:
      await released;
      await new Promise((resolve) => setImmediate(resolve));
  }
  cancel.abort(reason);
  const lock = await waiting;
  assert.equal(await released, true);
  if (lock === undefined) score.cancelled += 1;
  else {
    score.granted += 1;
    assert.equal(await lock.release(), true);
  }
  // Far less than the claim of a grant without a waiter.
  await until(
    async () => (await server.admin.exists(`lock:${name}`, `{lock:${name}}:queue`)) === 0,
    `${name} to be free`,
    2_000,
  );
}

for (const [how, handOn] of [
  ['by the server', false],
  ['inside of one manager', true],
] as const) {
  test(`cancelled in the instant of a grant ${how}: nobody keeps the lock`, async () => {
    const score = { granted: 0, cancelled: 0 };
    const lanes = Array.from({ length: 10 }, async (_, lane) => {
      for (let round = 0; round < 30; round++) await race(`${lane}`, score, handOn);
    });
    await Promise.all(lanes);
    assert.equal(score.granted + score.cancelled, 300);
    assert.ok(score.granted > 10 && score.cancelled > 10, JSON.stringify(score));
  });
}

test('one of many in the wait queue is cancelled: the others keep their order', async () => {
  const held = await a.acquire('x', LONG);
  const order: number[] = [];
  const cancels = Array.from({ length: 9 }, () => new AbortController());
  const all = cancels.map(async ({ signal }, i) => {
    const lock = await b.acquire('x', { ...LONG, label: 'b', signal });
    order.push(i);
    await lock.release();
  });
  await untilQueued(server, 'x', ['b']);
  for (const i of [0, 4, 8]) {
    cancels[i]?.abort();
    await assert.rejects(all[i] as Promise<void>, { name: 'AbortError' });
  }
  await held.release();
  await Promise.allSettled(all);
  assert.deepEqual(order, [1, 2, 3, 5, 6, 7]);
});

test('close in the instant of a grant: nobody keeps the lock', async () => {
  for (let round = 0; round < 40; round++) {
    const c = await connect(server.url);
    const held = await a.acquire('x', LONG);
    const waiting = c.acquire('x', LONG).then(
      () => 'granted',
      (error: { code: string }) => error.code,
    );
    await until(async () => (await server.admin.zcard('{lock:x}:queue')) === 1, 'the waiter');
    const released = held.release();
    if (round % 2 === 0) spin(Math.random() * 300);
    else await Promise.resolve();
    await c.close();
    assert.match(await waiting, /granted|ERR_LOCK_CLOSED/);
    await released;
    await until(
      async () => (await server.admin.exists('lock:x', '{lock:x}:queue')) === 0,
      'the lock to be free',
      2_000,
    );
  }
});

test('signal: one ends any number of waits, and Node takes them for no leak', async () => {
  const warnings: Error[] = [];
  const listen = (warning: Error) => warnings.push(warning);
  process.on('warning', listen);
  const holder = await a.acquire('besieged');
  const controller = new AbortController();
  const wait = { wait: Number.POSITIVE_INFINITY, signal: controller.signal };
  const waiting = Array.from({ length: 30 }, () => a.acquire('besieged', wait));
  const ended = Promise.allSettled(waiting);
  // One more that has its lock: it is not one of those that wait.
  const other = await a.acquire('beside', wait);
  controller.abort();
  for (const end of await ended) {
    assert.equal(end.status, 'rejected');
    assert.equal(end.reason, controller.signal.reason);
  }
  assert.equal(openOperations(), 0);
  assert.equal(other.held, true);
  await Promise.all([holder.release(), other.release()]);
  process.off('warning', listen);
  assert.deepEqual(warnings, []);
});

test('signal: an abort never ends another operation, whatever happens in the same turn', async () => {
  const controller = new AbortController();
  const lossy = await a.acquire('lossy', { ttl: 500, renew: false });
  let fresh: Promise<Lock> | undefined;
  lossy.signal.addEventListener('abort', () => {
    // The acquire below has just ended, and its name is free for this one.
    fresh = a.acquire('fresh');
    controller.abort();
  });
  const ended = a.acquire('ended', { signal: controller.signal }).catch(() => undefined);
  await Promise.resolve();
  await Promise.resolve();
  spin(800_000);
  await until(() => fresh !== undefined, 'the loss');
  assert.equal(await (await fresh)?.release(), true);
  await (await ended)?.release();
});
