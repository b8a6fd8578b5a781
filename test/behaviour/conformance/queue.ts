/** The order of the wait queue, between processes and within one. */

import assert from 'node:assert/strict';
import type { AcquireOptions, LockTimeoutError } from 'holdfast';
import type { Lock, LockManager } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';
import { type Behaviours, enqueue, LONG, openSeveral, queued, turns } from './behaviour.js';

/** The position of a newcomer. The store may answer after the newcomer's wait has ended. */
async function placeOfNewcomer(manager: LockManager, name: string): Promise<number> {
  let position: number | undefined;
  await until(async () => {
    const failure: LockTimeoutError = await manager.acquire(name, { wait: 100 }).then(
      () => assert.fail(`${name} was free`),
      (error) => error,
    );
    position = failure.position;
    return position !== undefined;
  }, 'a queue entry');
  return position ?? 0;
}

export const QUEUE: Behaviours = {
  'queue: first come, first served, between managers': async (place) => {
    const names = ['w1', 'w2', 'w3', 'w4', 'w5'] as const;
    const [holder, ...waiters] = await openSeveral(place, 'holder', ...names);
    const lock = await (holder as LockManager).acquire('x', LONG);
    const waiting: Record<string, Promise<Lock>> = {};
    // The reverse order, so that an order that follows the opening by chance fails.
    for (const [i, who] of [...names.entries()].reverse()) {
      const { granted } = await enqueue(waiters[i] as LockManager, 'x');
      waiting[who] = granted;
    }
    const order = turns(waiting);
    assert.equal(await lock.release(), true);
    assert.deepEqual(await order, [...names].reverse());
  },

  'queue: a newcomer stands behind all others, and those of one manager count as one': async (
    place,
  ) => {
    const [holder, a, b, newcomer] = await openSeveral(place, 'holder', 'a', 'b', 'newcomer');
    await holder.acquire('x', LONG);
    assert.equal(await placeOfNewcomer(newcomer, 'x'), 1);
    await enqueue(a, 'x');
    await enqueue(a, 'x');
    assert.equal(await placeOfNewcomer(newcomer, 'x'), 2);
    await enqueue(b, 'x');
    assert.equal(await placeOfNewcomer(newcomer, 'x'), 3);
    await a.close();
    assert.equal(await placeOfNewcomer(newcomer, 'x'), 2);
  },

  'queue: the callers of one manager are served in the order in which they came': async (place) => {
    const [holder, waiter] = await openSeveral(place, 'holder', 'waiter');
    const lock = await holder.acquire('x', LONG);
    const waiting: Record<string, Promise<Lock>> = {};
    const names = Array.from({ length: 8 }, (_, i) => `task ${i}`);
    for (const name of names) waiting[name] = (await enqueue(waiter, 'x')).granted;
    const order = turns(waiting);
    await lock.release();
    assert.deepEqual(await order, names);
  },

  'queue: within a process the lock is handed off at most 15 times while others wait': async (
    place,
  ) => {
    const [holder, many, one] = await openSeveral(place, 'holder', 'many', 'one');
    const first = await holder.acquire('x', LONG);
    const served: string[] = [];
    const task = async (name: string) => {
      const lock = await many.acquire('x', LONG);
      served.push(name);
      await lock.release();
    };
    const earlier = Array.from({ length: 3 }, () => task('earlier'));
    await queued(many, 'x');
    const { granted } = await enqueue(one, 'x');
    const later = Array.from({ length: 60 }, () => task('later'));
    await queued(many, 'x');
    await first.release();
    const lock = await granted;
    const before = served.filter((name) => name === 'later').length;
    assert.equal(served.length - before, 3, 'those who came before are served before');
    assert.equal(await lock.release(), true);
    assert.ok(before <= 15, `${before} of 60 later tasks came before`);
    await Promise.all([...earlier, ...later]);
    assert.ok(many.stats().handedOff > 0);
  },

  'queue: callers of one manager are not overtaken by those who came later elsewhere': async (
    place,
  ) => {
    const [holder, a, b] = await openSeveral(place, 'holder', 'a', 'b');
    const first = await holder.acquire('x', LONG);
    const served: string[] = [];
    const call = async (manager: LockManager, name: string, options: AcquireOptions) => {
      const lock = await manager.acquire('x', { ...LONG, ...options });
      served.push(name);
      await lock.release();
    };
    const calls = [call(a, 'first', {}), call(a, 'second', { mode: 'shared' })];
    calls.push(call(a, 'third', {}));
    await queued(a, 'x');
    // The clocks of two managers differ by half a round trip.
    await new Promise((resolve) => setTimeout(resolve, 20));
    calls.push(...Array.from({ length: 10 }, (_, i) => call(b, `later ${i}`, {})));
    await queued(b, 'x');
    await first.release();
    await Promise.all(calls);
    assert.deepEqual(served.slice(0, 3), ['first', 'second', 'third']);
  },

  'queue: fences rise with every hand-off, and no two hold at once': async (place) => {
    const managers = await openSeveral(place, 'a', 'b', 'c');
    const fences: number[] = [];
    let inside = 0;
    const rounds = managers.flatMap((manager) =>
      Array.from({ length: 30 }, () =>
        manager.request('x', LONG, async (lock) => {
          inside += 1;
          assert.equal(inside, 1);
          fences.push(lock.fence);
          await new Promise(setImmediate);
          inside -= 1;
        }),
      ),
    );
    await Promise.all(rounds);
    assert.equal(fences.length, 90);
    assert.ok(fences.every((fence, i) => i === 0 || fence > (fences[i - 1] ?? 0)));
  },

  'queue: tryAcquire does not overtake those who wait': async (place) => {
    const [holder, waiter, passerBy] = await openSeveral(place, 'holder', 'waiter', 'passer-by');
    const first = await holder.acquire('x', LONG);
    const { granted } = await enqueue(waiter, 'x');
    let done = false;
    const second = granted.finally(() => {
      done = true;
    });
    const freed = first.release();
    while (!done) assert.equal(await passerBy.tryAcquire('x'), null);
    assert.equal(await freed, true);
    assert.equal(await (await second).release(), true);
    assert.equal(await (await passerBy.tryAcquire('x'))?.release(), true);
  },

  'queue: nor does it when a lease runs out': async (place) => {
    const [holder, waiter, passerBy] = await openSeveral(place, 'holder', 'waiter', 'passer-by');
    const first = await holder.acquire('x', { ttl: 1_000, renew: false });
    const { granted } = await enqueue(waiter, 'x');
    let done = false;
    const second = granted.finally(() => {
      done = true;
    });
    while (!done) assert.equal(await passerBy.tryAcquire('x'), null);
    assert.equal(first.held, false);
    assert.equal(await (await second).release(), true);
  },

  'queue: a manager that closes passes its locks on': async (place) => {
    const [holder, waiter] = await openSeveral(place, 'holder', 'waiter');
    await holder.acquire('x', LONG);
    const { granted } = await enqueue(waiter, 'x');
    await holder.close();
    assert.equal(await (await granted).release(), true);
  },

  'queue: a granted lock lasts as long as its waiter asked for, and is renewed': async (place) => {
    const [holder, waiter] = await openSeveral(place, 'holder', 'waiter');
    const first = await holder.acquire('x', LONG);
    const brief = await enqueue(waiter, 'x', { ttl: 1_500, wait: 60_000 });
    await first.release();
    const lock = await brief.granted;
    assert.ok(lock.remaining <= 1_500, String(lock.remaining));
    await until(() => waiter.stats().renewals > 0, 'a renewal');
    assert.equal(lock.held, true);
    const next = await enqueue(holder, 'x', { ttl: 60_000, wait: 60_000 });
    await lock.release();
    const long = await next.granted;
    await until(() => long.remaining > 30_000, 'the whole lease, once the grant is claimed');
    assert.equal(await long.release(), true);
  },
};
