/** The fence: a number that is larger for every later owner. */

import assert from 'node:assert/strict';
import {
  type Behaviours,
  hasCounterOfItsOwn,
  openSeveral,
  runOut,
  takeWhenFree,
} from './behaviour.js';

export const FENCES: Behaviours = {
  'fences rise by one across release, between managers too': async (place) => {
    const managers = await openSeveral(place, 'a', 'b');
    // Should something have left a counter behind, each lifts it above the moment of its connection.
    for (const manager of managers) await (await manager.acquire('x')).release();
    const fences: number[] = [];
    for (const manager of [...managers, ...managers, ...managers]) {
      const lock = await manager.acquire('x');
      fences.push(lock.fence);
      await lock.release();
    }
    const [first = 0] = fences;
    assert.deepEqual(
      fences,
      fences.map((_, i) => first + i),
    );
  },

  'fences rise across the end of a lease': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lost = await a.acquire('x', { ttl: 50, renew: false });
    await runOut(lost);
    const next = await takeWhenFree(b, 'x');
    assert.ok(next.fence > lost.fence);
  },

  'fences do not change while a lock is held': async (place) => {
    const locks = await place.open();
    const lock = await locks.acquire('x', { ttl: 20_000 });
    const { fence } = lock;
    await lock.extend(30_000);
    assert.equal(await locks.tryAcquire('x'), null);
    await lock.release();
    const next = await locks.acquire('x');
    assert.equal(lock.fence, fence);
    assert.ok(next.fence > fence);
  },

  'fences of locks that take turns rise for each of them': async (place) => {
    const managers = await openSeveral(place, 'a', 'b');
    // A quorum has no shared locks.
    const names = ['x', 'y', '{x}', ...(hasCounterOfItsOwn(place) ? [] : ['shared'])];
    const last = new Map<string, number>();
    for (let round = 0; round < 20; round++) {
      for (const name of names) {
        const mode = name === 'shared' ? 'shared' : 'exclusive';
        const lock = await managers[round % 2]?.acquire(name, { mode });
        const fence = lock?.fence ?? 0;
        assert.ok(fence > (last.get(name) ?? 0), `${fence} of ${name} after ${last.get(name)}`);
        last.set(name, fence);
        await lock?.release();
      }
    }
  },

  'fences are of the size of the µs since 1970': async (place) => {
    const locks = await place.open();
    const { fence } = await locks.acquire('x');
    const dayUs = 86_400_000_000;
    assert.ok(Math.abs(fence - Date.now() * 1_000) < dayUs, String(fence));
  },
};
