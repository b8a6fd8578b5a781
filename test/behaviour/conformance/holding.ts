/** Holding a lock: for how long, and how it ends. */

import assert from 'node:assert/strict';
import { sleep, until } from '../../support/wait.js';
import {
  aborted,
  type Behaviours,
  blockEventLoop,
  LONG,
  openSeveral,
  runOut,
  takeWhenFree,
} from './behaviour.js';

export const HOLDING: Behaviours = {
  'release: true for the call that freed it, false ever after': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x');
    assert.equal(lock.held, true);
    const both = [lock.release(), lock.release()];
    assert.equal(lock.held, false, 'from the moment of the call');
    assert.equal(lock.remaining, 0);
    assert.deepEqual(await Promise.all(both), [true, false]);
    assert.equal(await lock.release(), false);
    assert.equal(await (await b.tryAcquire('x'))?.release(), true);
  },

  'release: false once the lease has run out, and the next owner keeps the lock': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x', { ttl: 100, renew: false });
    await runOut(lock);
    const next = await takeWhenFree(b, 'x');
    assert.equal(await lock.release(), false);
    assert.equal(await a.tryAcquire('x'), null);
    assert.equal(next.held, true);
  },

  'remaining: less than the lease from the start, and falls to 0': async (place) => {
    const locks = await place.open();
    const lock = await locks.acquire('x', { ttl: 500, renew: false });
    const first = lock.remaining;
    assert.ok(first <= 500 - 5 - 2, String(first));
    await until(() => lock.remaining < first, 'time to pass');
    await runOut(lock);
    assert.equal(lock.remaining, 0);
  },

  'held: false in the first line after a blocked event loop, and before another is in': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x', { ttl: 200, renew: false });
    blockEventLoop(250);
    assert.equal(lock.held, false);
    assert.throws(() => lock.assertHeld(), { code: 'ERR_LOCK_LOST', reason: 'expired', lock: 'x' });

    const again = await takeWhenFree(a, 'x');
    await again.release();
    const seen = await a.acquire('x', { ttl: 200, renew: false });
    await takeWhenFree(b, 'x');
    assert.equal(seen.held, false);
  },

  'assertHeld: nothing while it is held, then says how it was lost': async (place) => {
    const locks = await place.open();
    const lock = await locks.acquire('x');
    lock.assertHeld();
    await lock.release();
    assert.throws(() => lock.assertHeld(), {
      name: 'LockLostError',
      code: 'ERR_LOCK_LOST',
      reason: 'released',
      lock: 'x',
    });
  },

  'extend: lengthens the lease, here and in the store': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x', { ttl: 1_000, renew: false });
    await lock.extend(60_000);
    assert.ok(lock.remaining > 50_000);
    await sleep(1_100);
    assert.equal(lock.held, true, 'past its first lease');
    assert.equal(await b.tryAcquire('x'), null);
    assert.equal(await lock.release(), true);
  },

  'extend: never shortens a lease': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x', { ttl: 60_000, renew: false });
    await lock.extend(50);
    assert.ok(lock.remaining > 50_000);
    await sleep(100);
    assert.equal(await b.tryAcquire('x'), null);
  },

  'extend: without a number gives the whole ttl': async (place) => {
    const locks = await place.open();
    const lock = await locks.acquire('x', { ttl: 30_000, renew: false });
    await until(() => lock.remaining < 29_500, 'some of the lease to pass');
    await until(async () => {
      await lock.extend();
      return lock.remaining > 29_500;
    }, 'all of the lease again');
    await lock.extend(60_000);
    await lock.extend();
    assert.ok(lock.remaining > 50_000, 'it never shortens');
  },

  'extend: lengthens a lease once, and renewals go on with the ttl': async (place) => {
    const locks = await place.open();
    const lock = await locks.acquire('x', { ttl: 1_200 });
    await lock.extend(4_000);
    const most = lock.remaining;
    assert.ok(most > 2_000);
    await until(() => lock.remaining < 1_000, 'the end of the extension');
    for (const end = performance.now() + 2_000; performance.now() < end; await sleep(10)) {
      assert.ok(lock.held && lock.remaining < 1_200, `${lock.remaining} ms are left`);
    }
    assert.equal(await lock.release(), true);
  },

  'extend: not past the end of maxHold': async (place) => {
    const locks = await place.open();
    const lock = await locks.acquire('x', { ttl: 1_500, maxHold: 5_000 });
    await lock.extend(60_000);
    assert.ok(lock.remaining > 1_500 && lock.remaining < 5_000, `${lock.remaining} ms are left`);
    assert.equal(await lock.release(), true);
  },

  'extend: fails once the lock is not held': async (place) => {
    const locks = await place.open();
    const lost = await locks.acquire('x', { ttl: 50, renew: false });
    await runOut(lost);
    await assert.rejects(lost.extend(), { code: 'ERR_LOCK_LOST', reason: 'expired', lock: 'x' });
    assert.equal(lost.held, false);
    const released = await locks.acquire('y');
    await released.release();
    await assert.rejects(released.extend(), { code: 'ERR_LOCK_LOST', reason: 'released' });
  },

  'renewal: a lock outlives its lease, also while the event loop is blocked': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x', { ttl: 1_000 });
    blockEventLoop(1_500);
    assert.equal(lock.held, true);
    assert.equal(await b.tryAcquire('x'), null);
    assert.ok(a.stats().renewals > 0);
    assert.equal(await lock.release(), true);
    assert.equal(lock.signal.aborted, false, 'a release is no loss');
  },

  'renewal: ends with the release': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x', { ttl: 1_200 });
    await until(() => a.stats().renewals > 0, 'a renewal');
    assert.equal(await lock.release(), true);
    const renewals = a.stats().renewals;
    const theirs = await b.acquire('x', { ttl: 60_000, renew: false });
    await sleep(500);
    assert.equal(a.stats().renewals, renewals);
    assert.equal(await theirs.release(), true);
  },

  'maxHold: the lock is given up, and its holder is told': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x', { ttl: 60_000, maxHold: 300 });
    const waiting = b.acquire('x', LONG);
    const { code, reason, message } = await aborted(lock);
    assert.deepEqual([code, reason], ['ERR_LOCK_LOST', 'maxHold']);
    assert.match(message, /lock "x".*maxHold/);
    assert.equal(lock.held, false);
    assert.throws(() => lock.assertHeld(), { reason: 'maxHold' });
    await waiting;
    assert.equal(await lock.release(), false);
  },

  'stallTimeout: a process that hangs does not hold for ever': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x', { ttl: 1_200, stallTimeout: 500 });
    const reason = aborted(lock);
    // Two renewals come before the limit, so the lease ends after 2.1 s at the latest.
    blockEventLoop(3_000);
    assert.equal(lock.held, false, 'in the first line after');
    assert.equal((await reason).reason, 'stalled');
    await takeWhenFree(b, 'x');
  },

  'stallTimeout: means nothing without renewal': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x', { ttl: 600, renew: false, stallTimeout: 1 });
    const reason = aborted(lock);
    blockEventLoop(700);
    assert.equal(lock.held, false, 'in the first line after');
    assert.equal((await reason).reason, 'expired');
    await takeWhenFree(b, 'x');
  },

  'lost: the event comes once, with the lock and the error that its signal has': async (place) => {
    const locks = await place.open();
    const losses: unknown[] = [];
    locks.on('lost', (lock, error) => losses.push(lock, error));
    const lock = await locks.acquire('x', { ttl: 200, renew: false });
    const error = await aborted(lock);
    assert.equal(error.reason, 'expired');
    await takeWhenFree(locks, 'x');
    assert.deepEqual(losses, [lock, error]);
    assert.equal(locks.stats().lost, 1);
  },

  'lost: a release is no loss': async (place) => {
    const locks = await place.open();
    locks.on('lost', () => assert.fail('nothing was lost'));
    const lock = await locks.acquire('x', { ttl: 300 });
    const { signal } = lock;
    await lock.release();
    await sleep(350);
    assert.equal(signal.aborted, false);
    assert.equal(locks.stats().lost, 0);
  },

  'lost: code that finds it out ahead of the event loop gets the reason, and all listeners are called':
    async (place) => {
      const locks = await place.open();
      const losses: string[] = [];
      locks.on('lost', (lock, { reason }) => losses.push(`${lock.name} ${reason}`));
      const [asserted, released, extended] = await Promise.all(
        ['asserted', 'released', 'extended'].map((name) => locks.acquire(name, { maxHold: 400 })),
      );
      const signal = released?.signal;
      blockEventLoop(600);
      assert.throws(() => asserted?.assertHeld(), { reason: 'maxHold' });
      assert.equal(asserted?.signal.aborted, true, 'as late as that, it is aborted from the start');
      assert.equal(signal?.aborted, true, 'also a signal that was read before');
      const done = released?.release();
      await assert.rejects(extended?.extend() ?? Promise.resolve(), { reason: 'maxHold' });
      assert.equal(await done, false);
      assert.equal(signal?.reason.reason, 'maxHold');
      assert.deepEqual(losses.sort(), ['asserted maxHold', 'extended maxHold', 'released maxHold']);
    },

  'lost: the end of a lock that is kept is none, but its signal tells': async (place) => {
    const locks = await place.open();
    locks.on('lost', () => assert.fail('it was to end'));
    const lock = await locks.acquire('x', { ttl: 200, renew: false, leaveToExpire: true });
    assert.equal((await aborted(lock)).reason, 'expired');
    assert.equal(locks.stats().lost, 0);
    assert.equal(await lock.release(), false);
  },

  'stopRenewing: the rest of the lease stays, and its end is no loss': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    a.on('lost', () => assert.fail('it was to end'));
    const lock = await a.acquire('x', { ttl: 2_000 });
    await until(() => a.stats().renewals > 0, 'a renewal');
    assert.equal(await lock.stopRenewing(), true);
    assert.equal(await lock.stopRenewing(), true, 'again');
    assert.equal(lock.held, true);
    assert.equal(await b.tryAcquire('x'), null);
    assert.equal((await aborted(lock)).reason, 'expired');
    assert.equal(await lock.stopRenewing(), false);
    assert.equal(await lock.release(), false);
    assert.equal(a.stats().lost, 0);
    await takeWhenFree(b, 'x');
  },

  'stopRenewing: an extension lengthens the lease once, and a release frees the lock': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x', { ttl: 60_000 });
    await lock.stopRenewing();
    await lock.extend(120_000);
    assert.ok(lock.remaining > 100_000, `${lock.remaining} ms are left`);
    assert.equal(await lock.release(), true);
    assert.equal(await lock.stopRenewing(), false);
    assert.equal(await (await b.tryAcquire('x'))?.release(), true);
  },

  'stopRenewing: the end of the manager leaves the rest of the lease': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const set = await a.acquire(['x', 'y'], { ttl: 3_000 });
    const other = await a.acquire('z', { ttl: 60_000 });
    assert.equal(await set.stopRenewing(), true);
    await a.close();
    assert.deepEqual([set.held, other.held], [false, false]);
    assert.equal(await b.tryAcquire('x'), null);
    assert.equal(await (await b.tryAcquire('z'))?.release(), true);
    for (const name of set.names) await (await takeWhenFree(b, name)).release();
  },

  'signal: tells of a loss also when asked for only afterwards': async (place) => {
    const locks = await place.open();
    const lock = await locks.acquire('x', { ttl: 50, renew: false });
    await runOut(lock);
    await until(() => lock.signal.aborted, 'the signal');
    assert.equal(lock.signal.reason.code, 'ERR_LOCK_LOST');
  },
};
