/** Locks after a loss, a close, a failure among several, or a release that was shared: what is held, and what is told. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import {
  closeManagers,
  isFree,
  type Lock,
  type LockManager,
  openPair,
} from '../support/holdfast.js';
import { until } from '../support/wait.js';

const BOUND = { timeout: 15_000 };
const SHARED = { mode: 'shared' } as const;
const AGAIN = { reentrant: true } as const;

let a: LockManager;
let b: LockManager;

beforeEach(async () => {
  [a, b] = await openPair();
});

afterEach(closeManagers);

test('several shared: the second of two that fails leaves none taken', BOUND, async () => {
  await b.acquire('y');
  assert.equal(await a.tryAcquire(['x', 'y'], SHARED), null);
  assert.ok(await isFree(b, 'x'));
  const failing = a.acquire(['x', 'y'], { ...SHARED, wait: 0 });
  await assert.rejects(failing, { code: 'ERR_LOCK_TIMEOUT', lock: 'y' });
  assert.ok(await isFree(b, 'x'));
  assert.equal(a.stats().held, 0);
});

test('several: one that was lost while another was waited for is not held', BOUND, async () => {
  const held = await b.acquire('y');
  const waiting = a.acquire(['x', 'y'], { wait: 10_000 });
  const rejected = assert.rejects(waiting, { code: 'ERR_LOCK_LOST', lock: 'x', reason: 'stolen' });
  await until(async () => (await b.query()).pending.length === 1, 'the caller to wait');
  await b.forceRelease('x');
  await until(() => a.stats().lost === 1, 'the loss');
  await held.release();
  await rejected;
  assert.ok(await isFree(b, 'y'));
});

test('several: a signal that is first read after a loss is aborted', BOUND, async () => {
  const set = await a.acquire(['x', 'y']);
  await b.forceRelease('y');
  await until(() => !set.held, 'the loss');
  assert.equal(set.signal.aborted, true);
  assert.equal(set.signal.reason.reason, 'stolen');
  assert.equal(await set.release(), false, 'one was not freed by it');
  assert.ok((await isFree(b, 'x')) && (await isFree(b, 'y')));
});

test('several: an extension that fails for one is told', BOUND, async () => {
  const set = await a.acquire(['x', 'y']);
  await b.forceRelease('x');
  await until(() => !set.held, 'the loss');
  await assert.rejects(set.extend(60_000), { code: 'ERR_LOCK_LOST', lock: 'x' });
  assert.equal(await set.release(), false);
});

test('a release counts from its call, and once', BOUND, async () => {
  const lock = await a.acquire('x');
  const { signal, token } = lock;
  const released = lock.release();
  assert.deepEqual([lock.held, lock.remaining, lock.token], [false, 0, '']);
  assert.deepEqual([await released, await lock.release(), signal.aborted], [true, false, false]);
  assert.equal(a.stats().oldestHold, 0);
  assert.notEqual((await a.acquire('x')).token, token);
});

test('a token that was read is not that of the next caller', BOUND, async () => {
  const first = await a.acquire('x');
  const { token } = first;
  const next = a.acquire('x');
  await until(() => a.stats().waiting === 1, 'the next caller');
  await first.release();
  assert.notEqual((await next).token, token);
});

test('each loss has its reason', BOUND, async () => {
  const reasons: Record<string, unknown> = {};
  a.on('lost', ({ name }, { reason }) => {
    reasons[name] = reason;
  });
  await a.acquire('maxHold', { maxHold: 50 });
  await a.acquire('expired', { ttl: 50, renew: false });
  await a.acquire('stolen');
  await b.forceRelease('stolen');
  await b.adopt((await a.acquire('adopted')).toJSON());
  await until(() => Object.keys(reasons).length === 4, 'all losses');
  for (const [name, reason] of Object.entries(reasons)) assert.equal(reason, name);
});

test('a close aborts the signals, and a lock tells it', BOUND, async () => {
  const lock = await a.acquire('x');
  const { signal } = lock;
  await a.close();
  assert.deepEqual([signal.aborted, signal.reason?.reason], [true, 'closed']);
  assert.throws(() => lock.assertHeld(), { name: 'LockLostError', reason: 'closed' });
});

test('a downgraded lock is shared, and can be shared', BOUND, async () => {
  const lock: Lock = await a.acquire('x');
  assert.deepEqual([await lock.downgrade(), lock.mode], [true, 'shared']);
  assert.equal(await (await b.tryAcquire('x', SHARED))?.release(), true);
  await lock.release();
  assert.equal(await lock.downgrade(), false);
});

test('a nested request cannot stop the renewal on which the outer one relies', BOUND, async () => {
  await a.request('x', async (outer) => {
    await a.request('x', AGAIN, async (inner) => {
      await assert.rejects(inner.stopRenewing(), {
        code: 'ERR_LOCK_NESTED',
        message: /left to expire by a nested request/,
      });
      await inner.release();
      assert.equal(await inner.stopRenewing(), false);
    });
    assert.equal(await outer.stopRenewing(), true);
  });
  assert.ok(await isFree(b, 'x'), 'the end of the request releases it');
});

test('a nested release counts once, and the last to leave frees the lock', BOUND, async () => {
  await a.request('x', async (outer) => {
    await a.request('x', AGAIN, async (inner) => {
      assert.deepEqual([await inner.release(), await inner.release()], [true, false]);
      assert.deepEqual([inner.held, outer.held], [false, true]);
    });
    assert.equal(outer.held, true);
    assert.equal(await isFree(b, 'x'), false);
  });
  assert.ok(await isFree(b, 'x'));
});
