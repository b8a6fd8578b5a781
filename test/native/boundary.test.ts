/** Calls of the addon that throw, as one that panics does: once, after which they are made again, or each time. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, type TestContext, test } from 'node:test';
import { closeManagers, type LockManager, openPair } from '../support/holdfast.js';

type Methods = Record<string, (...args: never[]) => unknown>;

// They are internal: they are reached by path, past the package's exports.
const { native } = require('../../../dist/internals.js') as {
  readonly native: Readonly<Record<'Bridge' | 'NativeManager', { prototype: Methods }>>;
};

const INTERNAL = { code: 'ERR_INTERNAL' } as const;
const ALWAYS = Number.POSITIVE_INFINITY;

let a: LockManager;
let b: LockManager;

beforeEach(async () => {
  [a, b] = await openPair();
});

afterEach(closeManagers);

/** Has a call of the addon throw so many times, until it is restored. */
function breaking(t: TestContext, method: string, times: number) {
  const owner = method.startsWith('take') ? native.Bridge : native.NativeManager;
  const own = owner.prototype[method] as (...args: unknown[]) => unknown;
  let left = times;
  return t.mock.method(owner.prototype, method, function (this: unknown, ...args: unknown[]) {
    left -= 1;
    if (left >= 0) throw new Error('panicked');
    return own.apply(this, args);
  });
}

test('what a call that throws once has to tell is not lost', async (t) => {
  const broken = breaking(t, 'takeText', 1);
  const both = await a.acquire(['x', 'y']);
  broken.mock.restore();
  assert.ok(Object.values(both.fences).every((fence) => fence > 0));
  breaking(t, 'takeText', 1);
  await assert.rejects(b.acquire('x', { wait: 10 }), ({ code, remaining }: never) => {
    assert.equal(code, 'ERR_LOCK_TIMEOUT');
    return remaining > 0;
  });
  await both.release();
  for (const method of ['stats', 'serverTime', 'clock']) {
    const once = breaking(t, method, 1);
    const { ran } = await a.runOnce('job', { every: '1h', keep: '2h', slot: undefined }, () => 1);
    assert.equal(ran, method === 'stats');
    assert.equal(a.stats().held, 0);
    assert.ok(once.mock.callCount() > 1, method);
    once.mock.restore();
  }
});

test('locks whose fences cannot be had are given back before their caller is told', async (t) => {
  const broken = breaking(t, 'takeText', ALWAYS);
  await assert.rejects(a.acquire(['x', 'y']), { ...INTERNAL, message: /"x", "y"/ });
  assert.equal(a.stats().held, 0);
  broken.mock.restore();
  await (await b.acquire(['x', 'y'], { wait: 0 })).release();
});

test('an outcome that cannot be had is a defect, and ends its operation', async (t) => {
  const lock = await a.acquire('x');
  const broken = breaking(t, 'takeText', ALWAYS);
  await assert.rejects(b.acquire('x', { wait: 10 }), INTERNAL);
  await assert.rejects(b.query(), INTERNAL);
  broken.mock.restore();
  assert.equal((await b.query()).held.length, 1);
  await lock.release();
});

test('counters that cannot be had throw, and a clock of the server that cannot is unknown', async (t) => {
  const counters = breaking(t, 'stats', ALWAYS);
  assert.throws(() => a.stats(), /panicked/);
  counters.mock.restore();
  breaking(t, 'serverTime', ALWAYS);
  const unknown = a.runOnce('job', { every: '1h' }, () => assert.fail());
  await assert.rejects(unknown, { code: 'ERR_LOCK_CONNECTION', message: /the slot of "job"/ });
  assert.ok(await b.tryAcquire('job'));
});
