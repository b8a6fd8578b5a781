/** How long at most, and of two of a thing only one: on a store whose clock the test moves, so the bounds are exact. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { closeManagers, connect, type LockManager, openPair } from '../support/holdfast.js';

const BOUND = { timeout: 15_000 };
const LONG = { ttl: 60_000 } as const;

let a: LockManager;
let b: LockManager;

beforeEach(async () => {
  [a, b] = await openPair();
  // From now on no time passes by itself.
  await a.advance(0);
});

afterEach(closeManagers);

/** The outcome of a promise, as far as it is there. */
function watched(promise: Promise<unknown>) {
  const seen: { outcome?: string; error?: Error & { waited?: number } } = {};
  promise.then(
    () => {
      seen.outcome = 'fulfilled';
    },
    (error: Error) => Object.assign(seen, { outcome: 'rejected', error }),
  );
  return seen;
}

test('several locks are waited for within `wait` in sum', BOUND, async () => {
  const [x] = [await b.acquire('x', LONG), await b.acquire('y', LONG)];
  const seen = watched(a.acquire(['x', 'y'], { wait: 1_000 }));
  await a.advance(700);
  await x.release();
  await a.advance(299);
  assert.equal(seen.outcome, undefined);
  await a.advance(1);
  assert.deepEqual([seen.outcome, seen.error?.name], ['rejected', 'LockTimeoutError']);
  assert.equal(seen.error?.waited, 1_000);
  assert.equal((await b.query({ name: 'x' })).held.length, 0);
});

test(
  'what remains of several locks is what remains of the one that ends first',
  BOUND,
  async () => {
    const [x, y] = [{ renew: false, ttl: 1_000 } as const, { renew: false, ttl: 60_000 } as const];
    const both = await a.request('x', x, () =>
      a.request(['x', 'y'], { ...y, reentrant: true }, async (set) => [set.remaining, set.held]),
    );
    assert.deepEqual([Number(both[0]) > 900 && Number(both[0]) <= 1_000, both[1]], [true, true]);
  },
);

test(
  'of two locks that a nested call asks for, the one that it does not share has its own ttl',
  BOUND,
  async () => {
    await a.request('x', { ttl: 10_000 }, () =>
      a.request(['x', 'y'], { reentrant: true, ttl: 60_000 }, async () => {
        const [held] = (await b.query({ name: 'y' })).held;
        assert.ok((held?.ttl ?? 0) > 50_000, `${held?.ttl}`);
      }),
    );
  },
);

test('a lock that is taken over keeps its lease if that is longer', BOUND, async () => {
  const lock = await a.acquire('x', LONG);
  const adopted = await b.adopt(lock.toJSON(), { ttl: 1_000, renew: false });
  const [held] = (await a.query({ name: 'x' })).held;
  assert.ok((held?.ttl ?? 0) > 50_000, `${held?.ttl}`);
  assert.equal(adopted.held, true);
});

test('a downgrade lets those that wait to share in at once', BOUND, async () => {
  const lock = await a.acquire('x', LONG);
  const seen = watched(b.acquire('x', { ...LONG, mode: 'shared', wait: 30_000 }));
  while ((await a.query({ name: 'x' })).pending.length === 0);
  await lock.downgrade();
  // Messages come, and no poll is due: the clock stands.
  await a.advance(0);
  assert.equal(seen.outcome, 'fulfilled');
});

test("an owner's release ends no lock of another owner", BOUND, async () => {
  const lock = await a.acquire('x', { ...LONG, owner: 'ada' });
  assert.equal(await a.release('x', { owner: 'grace' }), false);
  assert.equal(await b.release('x', { owner: 'grace' }), false);
  assert.deepEqual([lock.held, await b.tryAcquire('x')], [true, null]);
  assert.equal(await a.release('x', { owner: 'ada' }), true);
});

test(
  'a slot that is done is done for others at once, whatever the linger of its manager',
  BOUND,
  async () => {
    const options = { ttl: 30_000, linger: 10_000 };
    const [one, other] = [
      await connect('memory:linger', options),
      await connect('memory:linger', options),
    ];
    const once = (locks: LockManager) => locks.runOnce('job', { slot: 'a' }, () => {});
    await one.advance(0);
    assert.equal((await once(one)).ran, true);
    // Also when one that was refused has released the lock a moment ago.
    for (const locks of [other, one, other]) {
      assert.deepEqual(await once(locks), { ran: false, slot: 'a', reason: 'done' });
    }
  },
);
