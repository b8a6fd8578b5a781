/** Shared locks: their holders, the order of grants, and the limit. */

import assert from 'node:assert/strict';
import { holdfast, type Lock, type LockManager } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';
import {
  aborted,
  type Behaviours,
  enqueue,
  LONG,
  openSeveral,
  runOut,
  TTL_MS_MAX,
} from './behaviour.js';

const SHARED = { ...LONG, mode: 'shared' } as const;
const two = { ...SHARED, limit: 2 } as const;
const ofTen = (permits: number) => ({ ...SHARED, limit: 10, permits }) as const;
/** The same, for a caller that does not wait. */
const now = (permits: number) => ({ mode: 'shared', limit: 10, permits }) as const;

/** How many permits of ten are free. */
async function freeOfTen(locks: LockManager): Promise<number> {
  for (let free = 10; free > 0; free--) {
    const all = await locks.tryAcquire('x', now(free));
    if (all !== null) {
      await all.release();
      return free;
    }
  }
  return 0;
}

export const SHARING: Behaviours = {
  'shared: several hold it together, and nobody has it exclusively meanwhile': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const first = await a.acquire('x', SHARED);
    const second = await b.acquire('x', SHARED);
    const third = await a.tryAcquire('x', { mode: 'shared' });
    assert.deepEqual([first.mode, second.mode, third?.mode], ['shared', 'shared', 'shared']);
    assert.equal(new Set([first.token, second.token, third?.token]).size, 3);
    assert.equal(await a.tryAcquire('x'), null);
    await assert.rejects(b.acquire('x', { wait: 50 }), { code: 'ERR_LOCK_TIMEOUT' });
    assert.equal(await first.release(), true);
    assert.equal(await third?.release(), true);
    assert.equal(await b.tryAcquire('x'), null, 'one is left');
    assert.equal(second.held, true);
    assert.equal(await second.release(), true);
    assert.equal(await second.release(), false);
    const alone = await a.acquire('x', LONG);
    assert.equal(alone.mode, 'exclusive');
    assert.ok(alone.fence > Math.max(first.fence, second.fence));
  },

  'shared: a timeout names the holder whose lease it tells, and how many there are': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const refused = async (manager: LockManager, name: string, options = {}) => {
      const error = await manager.acquire(name, { ...options, wait: 0 }).catch((each) => each);
      assert.ok(error instanceof holdfast.LockTimeoutError, String(error));
      return error;
    };
    await a.acquire('x', { ...two, label: 'long', ttl: 60_000 });
    const alone = await refused(b, 'x');
    assert.equal(alone.holderLabel, 'long');
    assert.match(
      alone.message,
      /it is held by "long", and its lease ends in (59\.\ds|1m00s), unless/,
    );
    await a.acquire('x', { ...two, label: 'short', ttl: 20_000 });
    // Another permit is free when the first share ends, the whole lock when the last does.
    const first = await refused(b, 'x', two);
    assert.match(
      first.message,
      /it is held by "short", one of 2 holders, and its lease ends in [12]\d\.\ds, unless/,
    );
    const last = await refused(b, 'x');
    assert.match(
      last.message,
      /it is held by "long", one of 2 holders, and its lease ends in (1m\d\ds|[3-5]\d\.\ds), unless/,
    );
    assert.deepEqual([first.holderLabel, last.holderLabel], ['short', 'long']);
    assert.ok((await refused(a, 'x')).heldFor !== undefined, 'one of its own');
    const downgraded = await a.acquire('y', { label: 'catalogue' });
    await downgraded.downgrade();
    assert.equal((await refused(b, 'y')).holderLabel, 'catalogue');
  },

  'shared: nobody shares what is held exclusively': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x', LONG);
    assert.equal(await b.tryAcquire('x', { mode: 'shared' }), null);
    const { granted } = await enqueue(b, 'x', SHARED);
    assert.equal(await lock.release(), true);
    const shared = await granted;
    assert.equal(shared.mode, 'shared');
    assert.ok(shared.fence > lock.fence);
  },

  'shared: a share may last for centuries': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const shares = { ttl: TTL_MS_MAX, mode: 'shared', limit: 2 } as const;
    const [one, two] = [await a.acquire('x', shares), await b.acquire('x', shares)];
    await one.extend(TTL_MS_MAX);
    assert.equal(await a.tryAcquire('x', shares), null);
    const third = a.acquire('x', shares);
    assert.equal(await two.release(), true);
    const last = await third;
    await until(() => last.remaining > TTL_MS_MAX * 0.98, 'the claim');
    assert.deepEqual([await one.release(), await last.release()], [true, true]);
  },

  'shared: who waits to share behind one who does not is not let past it': async (place) => {
    const [a, b, c, d] = await openSeveral(place, 'a', 'b', 'c', 'd');
    const reader = await a.acquire('x', SHARED);
    const writer = await enqueue(b, 'x');
    const order: string[] = [];
    const late = [await enqueue(c, 'x', SHARED), await enqueue(d, 'x', SHARED)];
    assert.equal(await a.tryAcquire('x', { mode: 'shared' }), null, 'not past the line');
    const readers = late.map(async ({ granted }) => {
      const lock = await granted;
      order.push('reader');
      return lock;
    });
    await reader.release();
    const alone = await writer.granted;
    order.push('writer');
    assert.equal(await alone.release(), true);
    const [third, fourth] = await Promise.all(readers);
    assert.deepEqual(order, ['writer', 'reader', 'reader']);
    assert.equal(third?.held && fourth?.held, true, 'those behind it share it');
  },

  'shared: waiters of one manager are let in together': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const writer = await a.acquire('x', LONG);
    const waiting = [];
    for (let i = 0; i < 5; i++) waiting.push(await enqueue(b, 'x', SHARED));
    await writer.release();
    const all = await Promise.all(waiting.map(({ granted }) => granted));
    assert.ok(all.every(({ held }) => held));
    assert.equal(new Set(all.map(({ token }) => token)).size, 5);
    assert.equal(await a.tryAcquire('x'), null);
    const freed = await Promise.all(all.map((lock) => lock.release()));
    assert.ok(freed.every(Boolean));
    assert.equal(await (await a.tryAcquire('x'))?.release(), true);
  },

  'shared: each holder has a lease of its own, renewed or run out': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const brief = await a.acquire('x', { ttl: 150, renew: false, mode: 'shared' });
    const kept = await b.acquire('x', { ttl: 3_000, mode: 'shared' });
    await runOut(brief);
    await until(() => b.stats().renewals > 0, 'a renewal');
    assert.equal(kept.held, true);
    assert.equal(await brief.release(), false);
    assert.equal(await a.tryAcquire('x'), null);
    await kept.extend(60_000);
    assert.ok(kept.remaining > 50_000);
    assert.equal(await kept.release(), true);
    assert.equal(await (await a.acquire('x')).release(), true);
  },

  'shared: an exclusive waiter gets the lock when the last lease has run out': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    await a.acquire('x', { ttl: 100, renew: false, mode: 'shared' });
    const last = await a.acquire('x', { ttl: 400, renew: false, mode: 'shared' });
    const lock = await b.acquire('x', LONG);
    assert.equal(last.held, false);
    assert.ok(lock.fence > last.fence);
  },

  'shared: a waiter that gives up leaves the line, and those behind it go on': async (place) => {
    const [a, b, c] = await openSeveral(place, 'a', 'b', 'c');
    const reader = await a.acquire('x', SHARED);
    const writer = await enqueue(b, 'x', { wait: 300 });
    const behind = await enqueue(c, 'x', SHARED);
    await assert.rejects(writer.granted, { code: 'ERR_LOCK_TIMEOUT' });
    const lock = await behind.granted;
    assert.equal(reader.held && lock.held, true);
  },

  'shared: a manager that closes gives its shares back': async (place) => {
    const [a, b, c] = await openSeveral(place, 'a', 'b', 'c');
    await a.acquire('x', SHARED);
    const kept = await b.acquire('x', SHARED);
    const { granted } = await enqueue(c, 'x');
    await a.close();
    assert.equal(await c.tryAcquire('x'), null);
    await kept.release();
    assert.equal(await (await granted).release(), true);
  },

  'limit: so many hold it at once, and the next one waits for any of them': async (place) => {
    const [a, b, c] = await openSeveral(place, 'a', 'b', 'c');
    const first = await a.acquire('x', two);
    const second = await b.acquire('x', two);
    assert.equal(await c.tryAcquire('x', { mode: 'shared', limit: 2 }), null);
    const { granted } = await enqueue(c, 'x', two);
    assert.equal(await second.release(), true);
    const third = await granted;
    assert.deepEqual([first.held, third.held], [true, true]);
    assert.equal(await b.tryAcquire('x', { mode: 'shared', limit: 2 }), null);
  },

  'limit: never more than that, however many want it': async (place) => {
    const managers = await openSeveral(place, 'a', 'b', 'c');
    let inside = 0;
    let most = 0;
    const tasks = managers.flatMap((manager) =>
      Array.from({ length: 12 }, () =>
        manager.request('x', { ...SHARED, limit: 3 }, async () => {
          inside += 1;
          most = Math.max(most, inside);
          await new Promise((resolve) => setTimeout(resolve, 5));
          inside -= 1;
        }),
      ),
    );
    await Promise.all(tasks);
    assert.equal(inside, 0);
    assert.equal(most, 3);
  },

  'limit: a permit that is not renewed is free when its lease has run out': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const one = { ...SHARED, limit: 1 };
    const first = await a.acquire('x', { ...one, ttl: 300, renew: false });
    const second = await b.acquire('x', one);
    assert.equal(first.held, false);
    assert.ok(second.fence > first.fence);
  },

  'limit: one that is lowered lets nobody in until so many are left': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const held = [];
    for (let i = 0; i < 3; i++) held.push(await a.acquire('x', { ...SHARED, limit: 3 }));
    const { granted } = await enqueue(b, 'x', two);
    let isIn = false;
    const entered = granted.then((lock) => {
      isIn = true;
      return lock;
    });
    await held[0]?.release();
    await (await b.acquire('beside')).release();
    assert.equal(isIn, false, 'two are left');
    await held[1]?.release();
    assert.equal((await entered).held, true);
  },

  'permits: several count as so many, and are given back together': async (place) => {
    const [a, b, c] = await openSeveral(place, 'a', 'b', 'c');
    const four = await a.acquire('x', ofTen(4));
    const three = await b.acquire('x', ofTen(3));
    assert.deepEqual([four.permits, three.permits], [4, 3]);
    assert.equal(await freeOfTen(c), 3);
    const one = await c.acquire('x', ofTen(1));
    assert.equal(one.permits, 1);
    assert.equal(await freeOfTen(c), 2);
    assert.equal(await c.tryAcquire('x'), null);
    assert.equal(await four.release(), true);
    assert.equal(await four.release(), false);
    assert.equal(await freeOfTen(b), 6);
    await three.extend(60_000);
    assert.equal(await three.release(), true);
    assert.equal(await one.release(), true);
    assert.equal(await freeOfTen(a), 10);
    assert.equal(await (await a.tryAcquire('x'))?.release(), true);
  },

  'permits: sums of large numbers are exact': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const gib = 2 ** 30;
    for (const [limit, part, parts] of [
      [16 * gib, 4 * gib, 4],
      [Number.MAX_SAFE_INTEGER, (Number.MAX_SAFE_INTEGER - 1) / 2, 2],
    ] as const) {
      const terms = { mode: 'shared', limit } as const;
      const held: Lock[] = [];
      for (let i = 0; i < parts; i++) {
        const lock = await (i % 2 === 0 ? a : b).tryAcquire('x', { ...terms, permits: part });
        assert.equal(lock?.permits, part);
        held.push(lock);
      }
      const rest = limit - parts * part;
      assert.equal(await b.tryAcquire('x', { ...terms, permits: rest + 1 }), null);
      assert.equal((await b.query({ name: 'x' })).held[0]?.limit, limit);
      await held.pop()?.release();
      const last = await b.tryAcquire('x', { ...terms, permits: part + rest });
      assert.equal(last?.permits, part + rest);
      for (const lock of [...held, last]) assert.equal(await lock?.release(), true);
    }
  },

  'permits: who waits for many gets all of them or none, and nobody passes it': async (place) => {
    const [a, b, c] = await openSeveral(place, 'a', 'b', 'c');
    const held = [];
    for (let i = 0; i < 5; i++) held.push(await a.acquire('x', ofTen(2)));
    let granted = 0;
    const many = await enqueue(b, 'x', ofTen(7));
    const few = await enqueue(c, 'x', ofTen(1));
    const both = [many.granted, few.granted].map(async (lock) => {
      await lock;
      granted += 1;
      return lock;
    });
    for (const lock of held.slice(0, 3)) await lock.release();
    await (await a.acquire('beside')).release();
    assert.equal(granted, 0, 'six are free, and seven wanted');
    assert.equal(await a.tryAcquire('x', now(1)), null, 'not past the line');
    await held[3]?.release();
    const [seven, one] = (await Promise.all(both)) as [Lock, Lock];
    assert.deepEqual([seven.permits, one.permits], [7, 1]);
    assert.ok(seven.fence < one.fence, 'in the order of the calls');
    assert.equal(await a.tryAcquire('x', now(1)), null);
  },

  'permits: a lease that has run out gives all of them back': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const kept = await a.acquire('x', ofTen(2));
    const brief = await a.acquire('x', { ...now(6), ttl: 300, renew: false });
    const { granted } = await enqueue(b, 'x', ofTen(8));
    const eight = await granted;
    assert.equal(brief.held, false);
    assert.ok(eight.fence > brief.fence);
    await kept.release();
    assert.equal(await freeOfTen(a), 2);
  },

  'permits: callers of one process get theirs one after the other, within the limit': async (
    place,
  ) => {
    const managers = await openSeveral(place, 'a', 'b');
    let [inside, most] = [0, 0];
    const tasks = managers.flatMap((manager) =>
      Array.from({ length: 16 }, (_, i) => {
        const permits = 1 + (i % 4);
        return manager.request('x', ofTen(permits), async () => {
          inside += permits;
          most = Math.max(most, inside);
          await new Promise((resolve) => setTimeout(resolve, 3));
          inside -= permits;
        });
      }),
    );
    await Promise.all(tasks);
    assert.equal(inside, 0);
    assert.ok(most > 4 && most <= 10, `${most} at once`);
  },

  'permits: whoever adopts a share has its permits': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const owner = await a.acquire('x', { ...ofTen(4), label: 'import' });
    const beside = await b.acquire('x', ofTen(1));
    const adopted = await b.adopt(JSON.parse(JSON.stringify(owner)));
    assert.deepEqual([adopted.permits, adopted.mode], [4, 'shared']);
    assert.equal(await freeOfTen(a), 5);
    assert.equal(await adopted.release(), true);
    assert.equal(await freeOfTen(a), 9);
    const again = await a.acquire('x', ofTen(9));
    assert.equal(await (await b.adopt(again.toJSON())).release(), true);
    assert.equal(await beside.release(), true);
  },

  'permits: one forced release takes all of them': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    await a.acquire('x', ofTen(4));
    await b.acquire('x', ofTen(3));
    const { granted } = await enqueue(b, 'x', ofTen(10));
    assert.equal(await a.forceRelease('x'), true);
    assert.equal((await granted).permits, 10);
  },

  'permits: a query tells them, and the limit': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    await a.acquire('x', { ...ofTen(4), label: 'import' });
    await a.acquire('x', { ...ofTen(1), label: '' });
    await a.acquire('y', { label: '' });
    await a.acquire('z', { ...SHARED, label: '' });
    await enqueue(b, 'x', { ...ofTen(7), label: 'export' });
    const { held, pending } = await b.query();
    const told = held.map(({ name, permits, limit, label }) => [name, permits, limit, label]);
    assert.deepEqual(told, [
      ['x', 4, 10, 'import'],
      ['x', 1, 10, null],
      ['y', 1, null, null],
      ['z', 1, null, null],
    ]);
    const waiting = pending.map(({ permits, label, mode }) => [permits, label, mode]);
    assert.deepEqual(waiting, [[7, 'export', 'shared']]);
    assert.ok(held.every(({ clientId, askedAt }) => clientId === a.clientId && askedAt !== null));
  },

  'limit: excludes who wants it exclusively, and is excluded': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const permit = await a.acquire('x', two);
    const { granted } = await enqueue(b, 'x');
    assert.equal(await a.tryAcquire('x', { mode: 'shared', limit: 2 }), null, 'behind the line');
    await permit.release();
    const alone = await granted;
    assert.equal(await a.tryAcquire('x', { mode: 'shared', limit: 2 }), null);
    assert.equal(await alone.release(), true);
  },

  'downgrade: lets those in who wait to share, keeps the fence, and is no loss': async (place) => {
    const [a, b, c] = await openSeveral(place, 'a', 'b', 'c');
    const lock = await a.acquire('x', LONG);
    const { fence, token } = lock;
    const readers = [await enqueue(b, 'x', SHARED), await enqueue(c, 'x', SHARED)];
    assert.equal(await lock.downgrade(), true);
    assert.equal(lock.mode, 'shared');
    const entered = await Promise.all(readers.map(({ granted }) => granted));
    assert.ok([lock, ...entered].every(({ held }) => held));
    assert.deepEqual([lock.fence, lock.token], [fence, token]);
    assert.equal(await b.tryAcquire('x'), null);
    assert.equal(await lock.downgrade(), true, 'nothing is left to do');
    assert.equal(lock.signal.aborted, false);
    for (const each of [lock, ...entered]) assert.equal(await each.release(), true);
    assert.equal(await (await b.tryAcquire('x'))?.release(), true);
  },

  'downgrade: the lease goes on being renewed, and ends with maxHold': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x', { ttl: 1_500, maxHold: 3_000 });
    assert.equal(await lock.downgrade(), true);
    await until(() => a.stats().renewals > 1, 'renewals');
    assert.equal(await b.tryAcquire('x'), null);
    assert.equal((await aborted(lock)).reason, 'maxHold');
    assert.equal(await (await b.acquire('x')).release(), true);
  },

  'downgrade: false for a lock that is not held': async (place) => {
    const locks = await place.open();
    const released = await locks.acquire('x');
    await released.release();
    assert.equal(await released.downgrade(), false);
    const lost = await locks.acquire('y', { ttl: 50, renew: false });
    await runOut(lost);
    assert.equal(await lost.downgrade(), false);
  },
};
