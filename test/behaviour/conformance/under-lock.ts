/** Working under a lock: `request` and `await using`. */

import assert from 'node:assert/strict';
import { aborted, type Behaviours, enqueue, openSeveral } from './behaviour.js';

export const UNDER_LOCK: Behaviours = {
  'request: holds the lock while the callback runs, and returns its result': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const length = await a.request('work', async (lock) => {
      assert.equal(lock.held, true);
      assert.equal(await b.tryAcquire('work'), null);
      return lock.name.length;
    });
    assert.equal(length, 4);
    assert.equal(await (await b.tryAcquire('work'))?.release(), true);
    assert.equal(await a.request('work', { ttl: 1_000 }, () => 'no promise'), 'no promise');
  },

  "request: the callback's own error wins, and the lock is released": async (place) => {
    const locks = await place.open();
    const failure = new Error('mine');
    const failing = locks.request('x', () => {
      throw failure;
    });
    await assert.rejects(failing, (error) => error === failure);
    const lost = locks.request('x', { maxHold: 100 }, async (lock) => {
      await aborted(lock);
      throw failure;
    });
    await assert.rejects(lost, (error) => error === failure);
    assert.equal(await (await locks.tryAcquire('x'))?.release(), true);
  },

  'request: a loss is reported with the result of the callback': async (place) => {
    const locks = await place.open();
    const lost = locks.request('x', { maxHold: 100 }, async (lock) => {
      await aborted(lock);
      return 42;
    });
    await assert.rejects(lost, { code: 'ERR_LOCK_LOST', reason: 'maxHold', result: 42 });
  },

  'request: a callback that releases the lock itself has lost nothing': async (place) => {
    const locks = await place.open();
    const result = await locks.request('x', async (lock) => {
      assert.equal(await lock.release(), true);
      return 'done';
    });
    assert.equal(result, 'done');
  },

  'request: waits for as long as it says, or else for as long as connect says': async (place) => {
    const [patient, brief] = await Promise.all([
      place.open({ wait: Number.POSITIVE_INFINITY }),
      place.open({ wait: 50 }),
    ]);
    const lock = await patient.acquire('x');
    const waiting = [
      patient.request('x', () => 'got it'),
      brief.request('x', { wait: Number.POSITIVE_INFINITY }, () => 'got it, too'),
    ];
    const impatient = [
      brief.request('x', () => assert.fail('it was held')),
      patient.request('x', { wait: 50 }, () => assert.fail('it was held')),
    ];
    const refused = { code: 'ERR_LOCK_TIMEOUT' };
    await Promise.all(impatient.map((request) => assert.rejects(request, refused)));
    await lock.release();
    assert.deepEqual(await Promise.all(waiting), ['got it', 'got it, too']);
  },

  'await using: releases at the end of the scope, and hands off to who waits': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    let waiting: Awaited<ReturnType<typeof enqueue>>;
    {
      await using lock = await a.acquire('x');
      waiting = await enqueue(b, 'x');
      assert.equal(lock.held, true);
    }
    assert.equal(await (await waiting.granted).release(), true);
  },

  'await using: a lock that was lost does not spoil the scope': async (place) => {
    const locks = await place.open();
    await using lock = await locks.acquire('x', { ttl: 50, renew: false });
    await aborted(lock);
  },

  'await using: a manager closes at the end of its scope': async (place) => {
    const other = await place.open();
    {
      await using locks = await place.open();
      await locks.acquire('x', { ttl: 60_000 });
    }
    assert.equal(await (await other.tryAcquire('x'))?.release(), true);
  },
};
