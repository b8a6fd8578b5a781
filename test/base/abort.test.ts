/** One signal for many calls: each is ended by it, and nothing is left on it. */

import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { afterEach, beforeEach, test } from 'node:test';
import { connect, type Lock, type LockManager } from '../support/holdfast.js';
import { until } from '../support/wait.js';

/** Ends a test whose cancel does not come. */
const BOUND = { timeout: 10_000 };
/** As long as a wait may be, so that only its signal ends it in time. */
const LONG = 60_000;

let locks: LockManager;
let visits = 0;

beforeEach(async () => {
  visits += 1;
  locks = await connect(`memory:abort-${visits}`);
});

afterEach(() => locks.close());

const listenersOf = (signal: AbortSignal) => getEventListeners(signal, 'abort').length;

test('a signal that served before ends a later wait', BOUND, async () => {
  const controller = new AbortController();
  const { signal } = controller;
  for (const name of ['a', 'b']) await (await locks.acquire(name, { signal })).release();
  await locks.acquire('x');
  const waiting = locks.acquire('x', { wait: LONG, signal });
  const rejected = assert.rejects(waiting, (error) => error === signal.reason);
  await until(() => locks.stats().waiting === 1, 'the caller to wait');
  controller.abort();
  await rejected;
});

test('a signal has one listener during its calls, and none after them', BOUND, async () => {
  const { signal } = new AbortController();
  for (let round = 0; round < 3; round++) {
    const calls = ['a', 'b', 'c'].map((name) => locks.acquire(name, { signal }));
    assert.equal(listenersOf(signal), 1);
    for (const lock of await Promise.all(calls)) await lock.release();
    assert.equal(listenersOf(signal), 0);
    const several = locks.acquire(['a', 'b'], { signal });
    assert.equal(listenersOf(signal), 1);
    await (await several).release();
    assert.equal(listenersOf(signal), 0);
  }
  await locks.acquire('x');
  await assert.rejects(locks.acquire('x', { wait: 0, signal }), { code: 'ERR_LOCK_TIMEOUT' });
  assert.equal(listenersOf(signal), 0);
});

test('the end of one of two calls leaves the other with its signal', BOUND, async () => {
  const controller = new AbortController();
  const { signal } = controller;
  await locks.acquire('x');
  const waiting = locks.acquire('x', { wait: LONG, signal });
  const rejected = assert.rejects(waiting, (error) => error === signal.reason);
  await (await locks.acquire('a', { signal })).release();
  await until(() => locks.stats().waiting === 1, 'the caller to wait');
  controller.abort();
  await rejected;
});

test('an abort reaches every call that waits, and none that has its lock', BOUND, async () => {
  const controller = new AbortController();
  const { signal } = controller;
  await locks.acquire('x');
  const waits = { wait: LONG, signal };
  const waiting = Promise.allSettled([locks.acquire('x', waits), locks.acquire('x', waits)]);
  const granted: Lock = await locks.acquire('a', { signal });
  await until(() => locks.stats().waiting === 2, 'both callers to wait');
  controller.abort();
  for (const end of await waiting) {
    assert.equal(end.status === 'rejected' && end.reason, signal.reason);
  }
  assert.equal(granted.held, true);
});
