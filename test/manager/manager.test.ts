/** What a manager keeps, gives back and tells, also when something happens in the moment of a grant. */

import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, beforeEach, test } from 'node:test';
import type { LockWarning } from 'holdfast';
import { closeManagers, isFree, type LockManager, openPair } from '../support/holdfast.js';
import { until } from '../support/wait.js';

const BOUND = { timeout: 15_000 };

let a: LockManager;
let b: LockManager;

beforeEach(async () => {
  [a, b] = await openPair();
});

afterEach(closeManagers);

/** Aborts once the grant of a call has arrived, and before the call has read it: an earlier grant is read first. */
async function abortWithGrant(begin: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
  const controller = new AbortController();
  const { signal } = controller;
  const first = a.acquire('first').then((lock) => {
    controller.abort();
    return lock.release();
  });
  const call = begin(signal);
  await assert.rejects(call, (error) => error === signal.reason);
  await first;
}

test('what is granted in the moment of an abort is released: one lock', BOUND, async () => {
  await abortWithGrant((signal) => a.acquire('x', { signal }));
  assert.equal(a.stats().held, 0);
  assert.ok(await isFree(b, 'x'));
});

test('what is granted in the moment of an abort is released: several locks', BOUND, async () => {
  await abortWithGrant((signal) => a.acquire(['x', 'y'], { signal }));
  assert.equal(a.stats().held, 0);
  assert.ok(await isFree(b, 'x', 'y'));
});

test(
  'what is granted in the moment of an abort is released: a lock of runOnce',
  BOUND,
  async () => {
    await abortWithGrant((signal) =>
      a.runOnce('x', { every: 60_000, signal }, () => assert.fail('it was cancelled')),
    );
    assert.equal(a.stats().held, 0);
    assert.ok(await isFree(b, 'x'));
  },
);

test(
  'several: the list of names may be changed while its locks are waited for',
  BOUND,
  async () => {
    const names = ['x', 'y'];
    const held = await b.acquire('x');
    const waiting = a.acquire(names);
    names.push('z');
    names[0] = 'other';
    await until(() => a.stats().waiting === 1, 'the caller to wait');
    await held.release();
    const set = await waiting;
    assert.deepEqual(
      [set.names, Object.keys(set.fences)],
      [
        ['x', 'y'],
        ['x', 'y'],
      ],
    );
    assert.ok(await isFree(b, 'other', 'z'));
  },
);

test('several: a call that may not wait answers null, and takes none', BOUND, async () => {
  await b.acquire('y');
  assert.equal(await a.tryAcquire(['x', 'y']), null);
  assert.ok(await isFree(b, 'x'));
  const impatient = a.acquire(['x', 'y'], { wait: 0 });
  await assert.rejects(impatient, { code: 'ERR_LOCK_TIMEOUT', lock: 'y' });
  assert.ok(await isFree(b, 'x'));
});

test('close may be called again, and is told once', BOUND, async () => {
  let closes = 0;
  a.on('close', () => {
    closes += 1;
  });
  const lock = await a.acquire('x');
  const { signal } = lock;
  const losses: unknown[] = [];
  a.on('lost', () => losses.push('lost'));
  const closing = a.close();
  assert.equal(lock.held, false, 'from the call on');
  await Promise.all([closing, a.close()]);
  await a.close();
  assert.equal(closes, 1);
  assert.deepEqual([signal.aborted, signal.reason.reason], [true, 'closed']);
  assert.deepEqual(losses, []);
  assert.ok(await isFree(b, 'x'));
  await assert.rejects(a.acquire('x'), { name: 'LockClosedError', lock: 'x' });
});

test(
  'a loss is an event and a message, with the lock, the error and its manager',
  BOUND,
  async () => {
    const messages: Record<string, unknown>[] = [];
    const note = (message: unknown) => void messages.push(message as Record<string, unknown>);
    subscribe('holdfast:lost', note);
    const events: unknown[][] = [];
    a.on('lost', (...event) => events.push(event));
    const lock = await a.acquire('x');
    assert.equal(await b.forceRelease('x'), true);
    await until(() => events.length > 0, 'the loss');
    unsubscribe('holdfast:lost', note);
    const [[lost, error]] = events as [[unknown, Error & { reason: string }]];
    assert.deepEqual([lost, error.name, error.reason], [lock, 'LockLostError', 'stolen']);
    assert.equal(messages.length, 1);
    const [message] = messages as [Record<string, unknown>];
    assert.deepEqual(
      ['lock', 'error', 'holder', 'clientId'].map((key) => message[key]),
      ['x', error, lock, a.clientId],
    );
    assert.equal(await b.forceRelease('x'), false, 'nobody holds it');
  },
);

test('adopt: a token that holds no lock is told as a loss', BOUND, async () => {
  const lock = await b.acquire('x');
  const given = lock.toJSON();
  await b.forceRelease('x');
  const expected = { name: 'LockLostError', code: 'ERR_LOCK_LOST', reason: 'expired', lock: 'x' };
  await assert.rejects(a.adopt(given), expected);
  assert.equal(a.stats().held, 0);
});

/** A call that waits for the lock of the request around it, for which it is warned of. */
function nested(name: string): Promise<unknown> {
  return a.request(name, async () => {
    const waiting = a.acquire(name, { wait: 1_100 });
    await assert.rejects(waiting, { code: 'ERR_LOCK_TIMEOUT' });
  });
}

test(
  'a warning is an event, once for its subject, and none of the process then',
  BOUND,
  async () => {
    const ofProcess: Error[] = [];
    const note = (warning: Error) => void ofProcess.push(warning);
    process.on('warning', note);
    const warnings: LockWarning[] = [];
    a.on('warning', (warning) => warnings.push(warning));
    await Promise.all(['x', 'y'].map(nested));
    await new Promise(setImmediate);
    process.off('warning', note);
    assert.deepEqual(
      warnings.map(({ code, lock, name }) => [code, lock, name]),
      [['WARN_LOCK_NESTED', 'x', 'LockError']],
    );
    assert.deepEqual(ofProcess, []);
  },
);

test('a warning that nobody listens to is one of the process, with its code', BOUND, async () => {
  const warnings: (Error & { code?: string })[] = [];
  const note = (warning: Error) => void warnings.push(warning);
  process.on('warning', note);
  await nested('x');
  await until(() => warnings.length > 0, 'the warning');
  process.off('warning', note);
  assert.deepEqual(
    warnings.map(({ name, code }) => [name, code]),
    [['HoldfastWarning', 'WARN_LOCK_NESTED']],
  );
});

test('stats: what is held, since when, and the bounds of the handoffs', BOUND, async () => {
  assert.deepEqual([a.stats().held, a.stats().oldestHold, a.stats().abandoned], [0, 0, 0]);
  const lock = await a.acquire('x');
  await until(() => a.stats().oldestHold > 0, 'the hold to have an age');
  assert.equal(a.stats().held, 1);
  await lock.release();
  assert.deepEqual([a.stats().held, a.stats().oldestHold], [0, 0]);
  const bounds = a.stats().handOffs.map(({ upTo }) => upTo);
  assert.deepEqual(bounds.slice(0, 3), [0.001, 0.002, 0.004]);
  assert.equal(bounds.at(-1), Number.POSITIVE_INFINITY);
  assert.equal(bounds.filter((upTo) => !Number.isFinite(upTo)).length, 1);
});

test(
  'the timeout knows for how long a caller of the same manager has held the lock',
  BOUND,
  async () => {
    await a.acquire('x');
    await until(() => a.stats().oldestHold > 5, 'the hold to have an age');
    const own = await a.acquire('x', { wait: 0 }).catch((error) => error);
    assert.ok(own.heldFor > 5, `${own.heldFor}`);
    const other = await b.acquire('x', { wait: 0 }).catch((error) => error);
    assert.equal(other.heldFor, undefined);
  },
);

test('query: every page, in order, with the names as they were given', BOUND, async () => {
  const names = Array.from({ length: 30 }, (_, i) => `n:${String(i).padStart(2, '0')}`);
  await a.acquire([...names].reverse());
  const waiting = b.acquire('n:07').catch((error) => error.code);
  await until(async () => (await a.query()).pending.length === 1, 'the waiter');
  const { held, pending } = await a.query({ count: 1 });
  assert.deepEqual(
    held.map(({ name }) => name),
    names,
  );
  assert.deepEqual(
    pending.map(({ name, clientId, mode, position }) => [name, clientId, mode, position]),
    [['n:07', b.clientId, 'exclusive', 1]],
  );
  await b.close();
  assert.equal(await waiting, 'ERR_LOCK_CLOSED');
});
