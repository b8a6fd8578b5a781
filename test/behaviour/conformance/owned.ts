/** Locks of an owner whom the caller names. */

import assert from 'node:assert/strict';
import { until } from '../../support/wait.js';
import { aborted, type Behaviours, enqueue, LONG, openSeveral, takeWhenFree } from './behaviour.js';

const OWNER = { owner: 'checkout-7' } as const;
const OTHER = { owner: 'checkout-8' } as const;

export const OWNED: Behaviours = {
  'owner: gets the lock again, in another process too, and nobody else does': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const first = await a.acquire('x', { ...OWNER, ttl: 60_000 });
    assert.equal(await b.tryAcquire('x'), null);
    assert.equal(await b.tryAcquire('x', OTHER), null);
    await assert.rejects(b.acquire('x', { ...OTHER, wait: 50 }), {
      code: 'ERR_LOCK_TIMEOUT',
      holderLabel: 'checkout-7',
    });
    const second = await b.acquire('x', { ...OWNER, ttl: 60_000, wait: 0 });
    const third = await a.tryAcquire('x', OWNER);
    assert.ok(third !== null && first.fence < second.fence && second.fence < third.fence);
    assert.equal(new Set([first.token, second.token, third.token]).size, 3);
    assert.equal((await aborted(second)).reason, 'adopted');
    assert.match((await aborted(first)).message, /or its owner has acquired it again/);
    assert.equal(third.held, true);
    assert.deepEqual([await first.release(), await second.release()], [false, false]);
    assert.equal(await b.tryAcquire('x'), null, 'an earlier hold frees no later one');
    assert.equal(await third.release(), true);
    const next = await b.acquire('x', { ...OTHER, wait: 0 });
    assert.ok(next.fence > third.fence);
    assert.equal(await next.release(), true);
  },

  'owner: a lock is released by its name and its owner alone': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const former = await a.acquire('x', { ...OWNER, ttl: 60_000 });
    const lock = await a.acquire('x', { ...OWNER, ttl: 60_000 });
    assert.equal((await aborted(former)).reason, 'adopted');
    a.on('lost', () => assert.fail('this process has released it'));
    assert.equal(await b.release('x', OTHER), false);
    assert.equal(await a.release('y', OWNER), false);
    assert.equal(lock.held, true);
    assert.equal(await a.release('x', OWNER), true);
    assert.equal(lock.held, false);
    assert.equal(await b.release('x', OWNER), false);
    assert.equal(await (await b.tryAcquire('x'))?.release(), true);
    const plain = await a.acquire('x');
    assert.equal(await b.release('x', OWNER), false, 'it has no owner');
    assert.equal(await plain.release(), true);
  },

  'owner: a release elsewhere serves who waits, and is noticed by the handle': async (place) => {
    const [a, b, c] = await openSeveral(place, 'a', 'b', 'c');
    const lock = await a.acquire('x', { ...OWNER, ttl: 60_000 });
    const { granted } = await enqueue(b, 'x');
    assert.equal(await c.release('x', OWNER), true);
    const next = await granted;
    const { reason, message } = await aborted(lock);
    assert.equal(reason, 'stolen');
    assert.match(message, /or its owner has released it elsewhere/);
    assert.ok(next.fence > lock.fence);
    assert.equal(await next.release(), true);
  },

  'owner: the end of a manager leaves the lock to its owner': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const first = await a.acquire('x', { ...OWNER, ttl: 60_000 });
    await a.acquire('y', { ...OWNER, ttl: 60_000, renew: false });
    await a.close();
    assert.equal(first.held, false);
    assert.equal(await b.tryAcquire('x'), null);
    const again = await b.adopt({ name: 'x', ...OWNER }, { ttl: 60_000 });
    assert.ok(again.fence > first.fence);
    assert.equal(await again.release(), true);
    await assert.rejects(b.adopt({ name: 'x', ...OWNER }), {
      code: 'ERR_LOCK_LOST',
      message: /the owner "checkout-7" does not hold it/,
    });
    assert.equal(await b.release('y', OWNER), true);
  },

  'owner: a lock that is not renewed ends by itself, which is no loss': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    a.on('lost', () => assert.fail('it was to end'));
    const lock = await a.acquire('x', { ...OWNER, ttl: 200, renew: false });
    assert.equal((await aborted(lock)).reason, 'expired');
    await (await takeWhenFree(b, 'x')).release();
    assert.equal(a.stats().lost, 0);
  },

  'owner: one that waits gets the lock when its owner has it elsewhere': async (place) => {
    const [a, b, c] = await openSeveral(place, 'a', 'b', 'c');
    const held = await a.acquire('x', LONG);
    const waiting = [b, c].map((each) => each.acquire('x', { ...LONG, ...OWNER }));
    await until(async () => b.stats().waiting + c.stats().waiting === 2, 'both to wait');
    await held.release();
    const both = (await Promise.all(waiting)).sort((one, two) => one.fence - two.fence);
    const [former, latter] = both;
    assert.ok(former !== undefined && latter !== undefined);
    assert.equal((await aborted(former)).reason, 'adopted');
    assert.equal(latter.held, true);
    assert.equal(await a.release('x', OWNER), true);
    assert.deepEqual([b.stats().waiting, c.stats().waiting], [0, 0]);
  },

  'owner: callers that ask at the same time all get the lock, the last one to keep it': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    for (const wait of [0, 500, LONG.wait]) {
      const asked = [a, b, a].map((each) => each.acquire('x', { ...OWNER, ttl: 60_000, wait }));
      const locks = (await Promise.all(asked)).sort((one, two) => one.fence - two.fence);
      const last = locks.pop();
      for (const lock of locks) await aborted(lock);
      assert.equal(last?.held, true);
      assert.equal(await last.release(), true);
    }
    const tried = await Promise.all([a, b, a].map((each) => each.tryAcquire('x', OWNER)));
    assert.ok(tried.every((lock) => lock !== null));
    assert.equal(await b.release('x', OWNER), true);
    assert.deepEqual([a.stats().waiting, b.stats().waiting], [0, 0]);
  },

  'owner: it is in the queue as others are, and no other caller gets its hold': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const held = await a.acquire('x', LONG);
    const first = a.acquire('x', { ...LONG, ...OWNER });
    await until(
      async () => (await b.query({ name: 'x' })).pending.length === 1,
      'the owner to wait',
    );
    const then = a.acquire('x', LONG);
    const order: string[] = [];
    const noted = [first.then(() => order.push('owner')), then.then(() => order.push('other'))];
    await held.release();
    const owned = await first;
    assert.deepEqual([owned.held, order], [true, ['owner']]);
    assert.equal(await owned.release(), true);
    await Promise.all(noted);
    const other = await then;
    assert.equal((await b.query({ name: 'x' })).held[0]?.owner, null);
    assert.equal(await other.release(), true);
  },

  'owner: a request releases it, steal takes it, and a signal ends the wait': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    await a.request('x', OWNER, async (lock) => assert.equal(lock.held, true));
    const held = await a.acquire('x', { ttl: 900 });
    const stolen = await b.acquire('x', { ...OWNER, steal: true, ttl: 60_000 });
    await aborted(held);
    const gone = new AbortController();
    const waiting = a.acquire('x', { ...OTHER, signal: gone.signal });
    await until(() => a.stats().waiting === 1, 'the caller to wait');
    gone.abort(new Error('hung up'));
    await assert.rejects(waiting, { message: 'hung up' });
    assert.equal(await stolen.release(), true);
    assert.equal(await (await a.tryAcquire('x'))?.release(), true);
  },

  'owner: query and toJSON name it, and adopt keeps it': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const owner = 'Bestellung Nr. 7 ✓';
    const lock = await a.acquire('x', { owner, ttl: 60_000 });
    const [info] = (await b.query({ name: 'x' })).held;
    assert.deepEqual(
      [info?.owner, info?.label, info?.clientId, info?.token, info?.askedAt !== null],
      [owner, owner, a.clientId, lock.token, true],
    );
    const json = JSON.parse(JSON.stringify(lock));
    assert.equal(json.owner, owner);
    const adopted = await b.adopt(json);
    assert.equal((await aborted(lock)).reason, 'adopted');
    const again = await b.adopt(json);
    assert.ok(again.fence > adopted.fence, 'the owner has it, though not under this token');
    assert.equal(await b.release('x', { owner: 'another' }), false);
    assert.equal(await b.release('x', { owner }), true);
    const plain = await a.acquire('y', { ttl: 60_000 });
    assert.equal('owner' in plain.toJSON(), false);
    assert.equal((await b.query({ name: 'y' })).held[0]?.owner, null);
    const given = await b.adopt({ ...plain.toJSON(), owner });
    assert.equal((await a.query({ name: 'y' })).held[0]?.owner, owner);
    await aborted(plain);
    assert.equal(await given.release(), true);
  },

  'owner: its lock stays exclusive': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const first = await a.acquire('x', { ...OWNER, ttl: 60_000, renew: false });
    const plain = await a.acquire('y', { ttl: 60_000 });
    const given = await b.adopt({ ...plain.toJSON(), owner: OWNER.owner });
    // Until then `a` may still ask for what became of it, and that would be counted.
    await aborted(plain);
    for (const [locks, lock] of [
      [a, first],
      [b, given],
    ] as const) {
      const { requests } = locks.stats();
      await assert.rejects(lock.downgrade(), {
        name: 'TypeError',
        code: 'ERR_INVALID_ARG_VALUE',
        message: /"checkout-7".*no single owner; release it and acquire it with mode 'shared'/,
      });
      assert.equal(locks.stats().requests, requests);
      assert.deepEqual([lock.held, lock.mode], [true, 'exclusive']);
    }
    assert.equal(await (await b.acquire('x', OWNER)).release(), true);
    assert.equal(await given.release(), true);
    await aborted(first);
    assert.equal(await first.downgrade(), false, 'it is over');
  },

  'owner: what it excludes is refused before anything is sent': async (place) => {
    const locks = await place.open();
    const { requests } = locks.stats();
    const refused = { name: 'TypeError' };
    const tooLong = { name: 'RangeError', code: 'ERR_OUT_OF_RANGE' };
    for (const owner of ['x'.repeat(257), 'é'.repeat(129)]) {
      await assert.rejects(locks.acquire('x', { owner }), tooLong);
      await assert.rejects(locks.release('x', { owner }), tooLong);
      await assert.rejects(locks.adopt({ name: 'x', owner }), tooLong);
    }
    for (const owner of ['', '\ud800', 7, null]) {
      await assert.rejects(locks.acquire('x', { owner: owner as string }), refused);
      await assert.rejects(locks.release('x', { owner: owner as string }), refused);
      await assert.rejects(locks.adopt({ name: 'x', owner: owner as string }), refused);
    }
    await assert.rejects(locks.acquire('x', { ...OWNER, mode: 'shared' }), /single owner/);
    await assert.rejects(locks.tryAcquire('x', { ...OWNER, label: 'y' }), /exclude each other/);
    await assert.rejects(locks.adopt({ name: 'x', ...OWNER }, { label: 'y' }), /exclude/);
    await assert.rejects(locks.acquire(['x', 'y'], OWNER), /for one name/);
    await assert.rejects(locks.release('x', undefined as never), refused);
    assert.equal(locks.stats().requests, requests);
  },
};
