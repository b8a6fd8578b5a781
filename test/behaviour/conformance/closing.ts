/** The end of a manager. */

import assert from 'node:assert/strict';
import { aborted, type Behaviours, enqueue, LONG, openSeveral } from './behaviour.js';

export const CLOSING: Behaviours = {
  'close: releases what is held, refuses what waits, and may be called again': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const held = await a.acquire('held', LONG);
    const blocker = await b.acquire('waiting', LONG);
    const { granted } = await enqueue(a, 'waiting');
    const refused = assert.rejects(granted, { code: 'ERR_LOCK_CLOSED', lock: 'waiting' });
    await Promise.all([a.close(), a.close()]);
    await refused;
    assert.equal(held.held, false);
    assert.equal(await held.release(), false);
    assert.equal(await (await b.tryAcquire('held'))?.release(), true);
    assert.equal(await blocker.release(), true);
    assert.equal(
      await (await b.tryAcquire('waiting'))?.release(),
      true,
      'nobody is in the wait queue',
    );
    await a.close();
  },

  'close: who still works under a lock is told before another is let in': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    a.on('lost', () => assert.fail('a close is no loss that anybody has to know of'));
    const set = await a.acquire(['x', 'y'], LONG);
    const unwatched = await a.acquire('z', LONG);
    let told = false;
    const work = a.request('work', LONG, async (lock) => {
      lock.signal.addEventListener('abort', () => {
        told = true;
      });
      const { granted } = await enqueue(b, 'work');
      const closing = a.close();
      assert.deepEqual([lock.held, lock.remaining], [false, 0], 'from the moment of the call');
      const next = await granted;
      assert.equal(told, true, 'before another is in');
      assert.equal((await aborted(lock)).reason, 'closed');
      await closing;
      assert.equal(await next.release(), true);
      return 'done';
    });
    const message = /lock "work" .*its manager was closed/;
    await assert.rejects(work, {
      code: 'ERR_LOCK_LOST',
      reason: 'closed',
      result: 'done',
      message,
    });
    assert.equal(set.signal.reason.reason, 'closed');
    assert.throws(() => unwatched.assertHeld(), { reason: 'closed' });
    assert.equal(a.stats().lost, 0);
  },

  'close: leaves a lock to expire that was acquired with leaveToExpire': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const options = { ttl: 3_000, renew: false, leaveToExpire: true } as const;
    await a.acquire('kept', options);
    await a.acquire(['kept:1', 'kept:2'], options);
    await a.close();
    const names = ['kept', 'kept:1', 'kept:2'];
    for (const name of names) assert.equal(await b.tryAcquire(name), null, name);
    const all = await b.acquire(names);
    assert.equal(await all.release(), true, 'their leases have ended');
  },

  'close: whatever is asked for afterwards is refused': async (place) => {
    const locks = await place.open();
    await locks.close();
    const closed = { name: 'LockClosedError', code: 'ERR_LOCK_CLOSED' };
    await assert.rejects(locks.acquire('x'), closed);
    await assert.rejects(locks.tryAcquire('x'), closed);
    await assert.rejects(
      locks.request('x', () => assert.fail('it was refused')),
      closed,
    );
  },

  'close: no promise stays open, whatever was under way': async (place) => {
    const [locks, other] = await openSeveral(place, 'locks', 'other');
    const some = await Promise.all([1, 2, 3].map((i) => locks.acquire(`open:${i}`)));
    const under = [
      ...some.map((lock) => lock.extend()),
      ...some.map((lock) => lock.release()),
      ...Array.from({ length: 50 }, (_, i) => locks.acquire(`open:${i % 5}`)),
      ...Array.from({ length: 50 }, (_, i) => locks.tryAcquire(`open:${i}`)),
    ];
    const results = Promise.allSettled(under);
    await locks.close();
    for (const result of await results) {
      if (result.status === 'rejected') assert.match(result.reason.code, /ERR_LOCK_(CLOSED|LOST)/);
    }
    const free = Array.from({ length: 50 }, (_, i) => other.acquire(`open:${i}`, LONG));
    const freed = (await Promise.all(free)).map((lock) => lock.release());
    assert.deepEqual(await Promise.all(freed), Array(50).fill(true));
  },
};
