/** Several names as one lock: all of them, or none. */

import assert from 'node:assert/strict';
import { sleep, until } from '../../support/wait.js';
import { type Behaviours, enqueue, LONG, openSeveral, queued } from './behaviour.js';

export const SEVERAL: Behaviours = {
  'several: are acquired, held and released as one': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const set = await a.acquire(['y', 'x', 'z'], LONG);
    assert.deepEqual(set.names, ['y', 'x', 'z']);
    assert.deepEqual(Object.keys(set.fences).sort(), ['x', 'y', 'z']);
    assert.ok(Object.values(set.fences).every(Number.isSafeInteger));
    assert.deepEqual([set.held, set.mode], [true, 'exclusive']);
    assert.ok(set.remaining > 50_000 && set.remaining <= 60_000);
    set.assertHeld();
    for (const name of set.names) assert.equal(await b.tryAcquire(name), null);
    assert.equal(await set.release(), true);
    assert.deepEqual([set.held, set.remaining], [false, 0]);
    assert.throws(() => set.assertHeld(), { code: 'ERR_LOCK_LOST', reason: 'released' });
    assert.equal(await set.release(), false);
    const again = await b.tryAcquire(['x', 'y', 'z']);
    assert.ok(again !== null && Number(again.fences['x']) > Number(set.fences['x']));
    assert.equal(await again.release(), true);
  },

  'several: one name or a list, as a wrapper gets it': async (place) => {
    const locks = await place.open();
    const take = (name: string | readonly string[]) => locks.acquire(name, LONG);
    for (const name of ['a', ['b', 'c']]) assert.equal(await (await take(name)).release(), true);
  },

  'several: tryAcquire takes all or none': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('m', LONG);
    assert.equal(await b.tryAcquire(['a', 'm', 'z']), null);
    for (const name of ['a', 'z']) assert.equal(await (await b.tryAcquire(name))?.release(), true);
    await lock.release();
    assert.equal(await (await b.tryAcquire(['a', 'm', 'z']))?.release(), true);
  },

  'several: one wait for all of them; who waits in vain leaves none taken': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const late = await a.acquire('a', LONG);
    await a.acquire('b', LONG);
    const began = performance.now();
    const refused = b.acquire(['a', 'b'], { wait: 1_500 }).catch((reason) => reason);
    await queued(b, 'a');
    await late.release();
    const error = await refused;
    const took = performance.now() - began;
    assert.deepEqual([error.code, error.lock], ['ERR_LOCK_TIMEOUT', 'b']);
    assert.ok(error.waited >= 1_495 && error.waited <= took, `${error.waited} of ${took}`);
    const told = /^lock "b" was not free within [\d.]+m?s for all 2 locks of the call: /;
    assert.match(error.message, told);
    assert.ok(took >= 1_495 && took < 5_000, String(took));
    assert.equal(await (await a.tryAcquire('a'))?.release(), true);
  },

  'several: a signal ends the wait, and leaves none taken': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('z', LONG);
    const signal = AbortSignal.timeout(100);
    await assert.rejects(b.acquire(['a', 'z'], { ...LONG, signal }), { name: 'TimeoutError' });
    assert.equal(await (await a.tryAcquire('a'))?.release(), true);
    assert.equal(await lock.release(), true);
  },

  'several: two callers that name them in different orders both get them, in turn': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    let inside = 0;
    let done = 0;
    const work = async () => {
      inside += 1;
      assert.equal(inside, 1);
      await new Promise(setImmediate);
      inside -= 1;
      done += 1;
    };
    const rounds = Array.from({ length: 20 }, () => [
      a.request(['x', 'y', 'z'], LONG, work),
      b.request(['z', 'y', 'x'], LONG, work),
      a.request(['y', 'z'], LONG, work),
    ]);
    await Promise.all(rounds.flat());
    assert.equal(done, 60);
  },

  'several: are waited for in the order of their bytes, in whatever order they are named': async (
    place,
  ) => {
    const [a, b, c] = await openSeveral(place, 'a', 'b', 'c');
    const [first, last] = [await a.acquire('é', LONG), await a.acquire('😀', LONG)];
    // Each would have one of them and wait for the other.
    const waiting = [b.acquire(['😀', 'é'], LONG), c.acquire(['é', '😀'], LONG)];
    await sleep(100);
    await last.release();
    await sleep(100);
    await first.release();
    const freed = waiting.map(async (set) => (await set).release());
    assert.deepEqual(await Promise.all(freed), [true, true]);
  },

  'several: those that are held already are renewed while one is waited for': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('z', LONG);
    const waiting = b.acquire(['a', 'z'], { ttl: 2_000, wait: 60_000 });
    // One comes in each third of a lease.
    await until(() => b.stats().renewals >= 4, 'renewals for longer than a lease');
    assert.equal(await a.tryAcquire('a'), null, 'held all the while');
    await lock.release();
    const set = await waiting;
    assert.equal(set.held, true);
    assert.equal(await set.release(), true);
  },

  'several: one that ran out while another was waited for is told, and none is kept': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('z', LONG);
    const waiting = b.acquire(['a', 'z'], { ttl: 200, renew: false, wait: 60_000 });
    setTimeout(() => void lock.release(), 500);
    await assert.rejects(waiting, {
      code: 'ERR_LOCK_LOST',
      lock: 'a',
      reason: 'expired',
      message: /while the caller waited for other locks of its set/,
    });
    assert.equal(await (await a.acquire('z', LONG)).release(), true);
  },

  'several: the loss of one is told, and the others stay held until release': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const set = await a.acquire(['x', 'y'], { ttl: 1_000, renew: false });
    const { signal } = set;
    const keep = setInterval(() => {}, 1_000);
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
    clearInterval(keep);
    assert.equal(signal.reason.code, 'ERR_LOCK_LOST');
    assert.equal(set.held, false);
    assert.throws(() => set.assertHeld(), { reason: 'expired' });
    assert.equal(await set.release(), false);
    assert.equal(await (await b.acquire(['x', 'y'], LONG)).release(), true);
  },

  'several: extend lengthens all of them': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const set = await a.acquire(['x', 'y'], { ttl: 1_500, renew: false });
    await set.extend(60_000);
    assert.ok(set.remaining > 50_000);
    await sleep(1_600);
    for (const name of ['x', 'y']) assert.equal(await b.tryAcquire(name), null);
    assert.equal(await set.release(), true);
  },

  'several: extend tells of the one that is lost': async (place) => {
    const locks = await place.open();
    // Long enough for a busy machine to take both.
    const set = await locks.acquire(['x', 'y'], { ttl: 1_000, renew: false });
    await until(() => !set.held, 'the leases to end');
    await assert.rejects(set.extend(), { code: 'ERR_LOCK_LOST' });
  },

  'several: request holds them while the callback runs': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const result = await a.request(['x', 'y'], async (set) => {
      assert.equal(set.held, true);
      assert.equal(await b.tryAcquire('y'), null);
      const missed = await b.request(['w', 'y'], { ifAvailable: true }, (none) => none);
      assert.equal(missed, null);
      return set.names.length;
    });
    assert.equal(result, 2);
    assert.equal(await (await b.tryAcquire(['w', 'x', 'y']))?.release(), true);
  },

  'several: await using, and one line in the way of another waiter': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    let waiting: Awaited<ReturnType<typeof enqueue>>;
    {
      await using set = await a.acquire(['x', 'y'], LONG);
      waiting = await enqueue(b, 'y');
      assert.equal(set.held, true);
    }
    assert.equal(await (await waiting.granted).release(), true);
  },

  'several: an empty list and a name twice are refused, and nothing is sent': async (place) => {
    const locks = await place.open();
    const { requests } = locks.stats();
    for (const names of [[], ['a', 'a']]) {
      const refused = { name: 'TypeError', code: 'ERR_INVALID_ARG_VALUE' };
      await assert.rejects(locks.acquire(names), refused);
      await assert.rejects(locks.tryAcquire(names), refused);
      await assert.rejects(
        locks.request(names, () => assert.fail('it was refused')),
        refused,
      );
    }
    const many = Array.from({ length: 1_001 }, (_, i) => `${i}`);
    await assert.rejects(locks.acquire(many), { name: 'RangeError', code: 'ERR_OUT_OF_RANGE' });
    await assert.rejects(locks.acquire(['a', 5] as never), { code: 'ERR_INVALID_ARG_TYPE' });
    assert.equal(locks.stats().requests, requests);
  },
};
