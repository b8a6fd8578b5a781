/** Locks that change hands without their holder's doing: steal, forceRelease and adopt. */

import assert from 'node:assert/strict';
import { pastTheCheckOfKeys } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';
import { aborted, type Behaviours, enqueue, LONG, onTheCounter, openSeveral } from './behaviour.js';

/** Renewed so often that a holder soon learns that the lock is gone, even if the message is lost. */
const BRIEF = { ttl: 3_000, wait: 60_000 } as const;
const SHARED = { ...BRIEF, mode: 'shared' } as const;

export const TAKING_OVER: Behaviours = {
  'taken away: its holder is told at once, with the reason': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const shared = { ...LONG, mode: 'shared' } as const;
    const take = {
      stolen: (name: string) => b.acquire(name, { ttl: 60_000, steal: true }),
      freed: (name: string) => b.forceRelease(name),
    };
    for (const [how, takeAway] of Object.entries(take)) {
      for (const [mode, options] of Object.entries({ LONG, shared })) {
        const lock = await a.acquire(`${how} ${mode}`, options);
        await takeAway(lock.name);
        const { reason, message } = await aborted(lock);
        assert.equal(reason, 'stolen', lock.name);
        assert.match(message, /somebody has stolen it, or released it by force/);
      }
    }
    for (const options of [LONG, shared]) {
      const lock = await a.acquire('handed off', options);
      const mine = await b.adopt(lock.toJSON());
      const { reason, message } = await aborted(lock);
      assert.equal(reason, 'adopted');
      assert.match(message, /another process has adopted it/);
      await mine.release();
    }
  },

  'adopt: the lock keeps its label, unless the adopter has another': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    for (const options of [LONG, { ...LONG, mode: 'shared' }] as const) {
      const first = await a.acquire('x', { ...options, label: 'export' });
      const second = await b.adopt(first.toJSON());
      const holder = async () => (await a.query({ name: 'x' })).held[0];
      assert.equal((await holder())?.label, 'export');
      assert.equal((await holder())?.token, second.token);
      const error = await a.acquire('x', { wait: 0 }).catch((reason) => reason);
      assert.equal(error.holderLabel, 'export');
      const third = await a.adopt(second.toJSON(), { label: 'web' });
      assert.equal((await holder())?.label, 'web');
      assert.equal((await holder())?.token, third.token);
      assert.equal(await third.release(), true);
    }
  },

  'steal: takes the lock at once, and its holder is told': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const theirs = await a.acquire('x', BRIEF);
    const mine = await b.acquire('x', { ttl: 60_000, steal: true });
    await aborted(theirs);
    assert.ok(mine.fence > theirs.fence);
    assert.deepEqual([theirs.held, mine.held], [false, true]);
    assert.equal(await theirs.release(), false);
    assert.equal(mine.held, true);
    assert.equal(await a.tryAcquire('x'), null);
    assert.equal(await mine.release(), true);
  },

  'steal: takes a lock that is free, and one from all who share it': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    assert.equal(await (await a.acquire('x', { steal: true })).release(), true);
    const shared = [await a.acquire('x', SHARED), await b.acquire('x', SHARED)];
    const mine = await b.acquire('x', { ttl: 60_000, steal: true });
    for (const lock of shared) await aborted(lock);
    assert.ok(shared.every(({ fence }) => fence < mine.fence));
    assert.equal(await mine.release(), true);
  },

  'steal: those who wait keep their places': async (place) => {
    const [a, b, c] = await openSeveral(place, 'a', 'b', 'c');
    const theirs = await a.acquire('x', BRIEF);
    const { granted } = await enqueue(b, 'x');
    const mine = await c.acquire('x', { ttl: 60_000, steal: true });
    await aborted(theirs);
    assert.equal(b.stats().waiting, 1);
    assert.equal(await mine.release(), true);
    assert.equal(await (await granted).release(), true);
  },

  'steal: also from another caller of the same manager': async (place) => {
    const locks = await place.open();
    const first = await locks.acquire('x', BRIEF);
    const second = await locks.acquire('x', { ttl: 60_000, steal: true });
    await aborted(first);
    assert.equal(second.held, true);
    assert.equal(await second.release(), true);
  },

  'steal: a request whose lock is stolen rejects when its callback has ended': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const losing = a.request('x', BRIEF, async (lock) => {
      const thief = await b.acquire('x', { ttl: 60_000, steal: true });
      await aborted(lock);
      await thief.release();
      return 'too late';
    });
    await assert.rejects(losing, { code: 'ERR_LOCK_LOST', result: 'too late' });
  },

  'forceRelease: takes a lock from its holder, and tells the holder': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    assert.equal(await b.forceRelease('x'), false, 'nobody holds it');
    const lock = await a.acquire('x', BRIEF);
    assert.equal(await b.forceRelease('x'), true);
    await aborted(lock);
    const next = await b.acquire('x', { wait: 0 });
    assert.ok(next.fence > lock.fence);
    assert.equal(await lock.release(), false);
    assert.equal(await next.release(), true);
  },

  'forceRelease: hands the lock to the next waiter, and frees shared ones of all': async (
    place,
  ) => {
    const [a, b, c] = await openSeveral(place, 'a', 'b', 'c');
    const shared = [await a.acquire('x', SHARED), await b.acquire('x', SHARED)];
    const { granted } = await enqueue(c, 'x');
    assert.equal(await a.forceRelease('x'), true);
    assert.equal(await (await granted).release(), true);
    for (const lock of shared) await aborted(lock);
  },

  'forceRelease: with owners, takes the lock from nobody else': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const tokens = async () => (await a.query({ name: 'x' })).held.map(({ token }) => token);
    for (const options of [BRIEF, SHARED]) {
      const first = await a.acquire('x', options);
      const before = await tokens();
      await first.release();
      const second = await a.acquire('x', options);
      const beside = options === SHARED ? await b.acquire('x', options) : second;
      assert.equal(await b.forceRelease('x', { token: before }), false);
      assert.equal(await b.forceRelease('x', { token: before[0] }), false);
      assert.deepEqual([second.held, beside.held], [true, true]);
      const now = await tokens();
      if (beside !== second) {
        assert.equal(
          await b.forceRelease('x', { token: now.slice(0, 1) }),
          false,
          'there is another',
        );
      }
      assert.equal(await b.forceRelease('x', { token: [...before, ...now] }), true);
      await aborted(second);
      await aborted(beside);
    }
    assert.equal(await b.forceRelease('x', { token: 'hf1.c.1' }), false, 'nobody holds it');
  },

  'forceRelease and steal: leave the value of other code alone, unless told otherwise': async (
    place,
  ) => {
    await (await (await place.open()).acquire('{0}')).release();
    // Of the released lock a counter stays: a text that is no token.
    const { stray, name, mode } = await onTheCounter(place);
    const past = pastTheCheckOfKeys;
    assert.equal(await past(() => stray.forceRelease(name)), false);
    const stolen = past(() => stray.acquire(name, { steal: true }));
    await assert.rejects(stolen, { code: 'ERR_LOCK_TIMEOUT' });
    assert.equal(await past(() => stray.forceRelease(name, { foreign: true })), true);
    assert.equal(await (await past(() => stray.tryAcquire(name, { mode })))?.release(), true);
  },

  'adopt: takes a lock over, with a larger fence, and its former owner is told': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const theirs = await a.acquire('x', { ...BRIEF, label: 'first' });
    const message = JSON.stringify(theirs);
    const { token, fence } = theirs;
    assert.deepEqual(JSON.parse(message), { name: 'x', mode: 'exclusive', token, fence });
    const mine = await b.adopt(JSON.parse(message), { ttl: 30_000 });
    assert.deepEqual([mine.name, mine.mode], ['x', 'exclusive']);
    assert.ok(mine.fence > fence);
    assert.notEqual(mine.token, token);
    assert.ok(mine.remaining > 20_000);
    await aborted(theirs);
    assert.equal(await theirs.release(), false);
    assert.equal(mine.held, true);
    assert.equal(await a.tryAcquire('x'), null);
    assert.equal(await mine.release(), true);
    assert.equal(await (await a.tryAcquire('x'))?.release(), true);
  },

  'adopt: the lock is renewed, and goes on to the next waiter': async (place) => {
    const [a, b, c] = await openSeveral(place, 'a', 'b', 'c');
    const theirs = await a.acquire('x', BRIEF);
    const { granted } = await enqueue(c, 'x');
    const mine = await b.adopt(theirs.toJSON(), { ttl: 2_000 });
    await until(() => b.stats().renewals >= 4, 'renewals for longer than a lease');
    assert.equal(mine.held, true);
    assert.equal(await mine.release(), true);
    const next = await granted;
    assert.ok(next.fence > mine.fence);
  },

  'adopt: a shared lock stays one, beside the others': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const beside = await a.acquire('x', SHARED);
    const theirs = await a.acquire('x', SHARED);
    const mine = await b.adopt(theirs.toJSON());
    assert.equal(mine.mode, 'shared');
    assert.ok(mine.fence > theirs.fence);
    await aborted(theirs);
    assert.equal(beside.held, true);
    await beside.release();
    assert.equal(await a.tryAcquire('x'), null);
    assert.equal(await mine.release(), true);
    assert.equal(await (await a.tryAcquire('x'))?.release(), true);
  },

  'adopt: fails for a token that does not hold the lock, and changes nothing': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const released = await a.acquire('x');
    const gone = released.toJSON();
    await released.release();
    await assert.rejects(b.adopt(gone), { code: 'ERR_LOCK_LOST', lock: 'x' });
    const lock = await a.acquire('x', BRIEF);
    await assert.rejects(b.adopt(gone), { code: 'ERR_LOCK_LOST', lock: 'x' });
    assert.equal(lock.held, true);
    const handed = lock.toJSON();
    const mine = await b.adopt(handed);
    await assert.rejects(a.adopt(handed), { code: 'ERR_LOCK_LOST', lock: 'x' });
    assert.equal(await mine.release(), true);
  },
};
