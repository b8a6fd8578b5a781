/** `query`: the holders and waiters of locks. */

import assert from 'node:assert/strict';
import { until } from '../../support/wait.js';
import { type Behaviours, enqueue, hasCounterOfItsOwn, LONG, openSeveral } from './behaviour.js';

const SHARED = { ...LONG, mode: 'shared' } as const;
const HELD = {
  state: 'held',
  result: false,
  idleFor: null,
  owner: null,
  permits: 1,
  limit: null,
} as const;

export const ASKING: Behaviours = {
  'query: nothing is held, nobody waits': async (place) => {
    const locks = await place.open();
    await (await locks.acquire('x')).release();
    assert.deepEqual(await locks.query(), { held: [], pending: [] });
  },

  'query: tells holders with mode, client, token, lease and age, and of a share the fence': async (
    place,
  ) => {
    const label = 'shop';
    const began = Date.now();
    const [a, b] = await Promise.all([place.open({ label }), place.open({ label: '' })]);
    const alone = await a.acquire('alone', { ...LONG, label: 'me' });
    const shared = [await a.acquire('shared', SHARED), await b.acquire('shared', SHARED)];
    // Plain commands have taken the first share, so the server has a number of its own for it.
    const fence = hasCounterOfItsOwn(place) ? shared[0]?.fence : null;
    const { held, pending } = await b.query();
    assert.deepEqual(pending, []);
    assert.deepEqual(
      held.map(({ ttl, askedAt, ...rest }) => rest),
      [
        { ...alone.toJSON(), ...HELD, label: 'me', clientId: a.clientId, fence: null },
        { ...shared[0]?.toJSON(), ...HELD, label, clientId: a.clientId, fence },
        { ...shared[1]?.toJSON(), ...HELD, label: null, clientId: b.clientId },
      ],
    );
    for (const { ttl, askedAt } of held) {
      assert.ok(Number(ttl) > 30_000 && Number(ttl) <= 60_000);
      const age = Date.now() - Number(askedAt);
      assert.ok(age >= -2 && age <= Date.now() - began + 2, `${age}`);
    }
  },

  'query and timeouts: a label is shown as it was given, also after it was adopted': async (
    place,
  ) => {
    const label = 'deploy by anna@example.com (build 4711)';
    const [a, b] = await openSeveral(place, 'a', 'b');
    const c = await place.open({ label: 'Zoë 🚀' });
    const lock = await a.acquire('x', { ...LONG, label });
    await enqueue(c, 'x');
    const { held, pending } = await b.query({ name: 'x' });
    assert.deepEqual([held[0]?.label, pending[0]?.label], [label, 'Zoë 🚀']);
    const refused = await b.acquire('x', { wait: 0 }).catch((error) => error);
    assert.equal(refused.holderLabel, label);
    assert.ok(refused.message.includes(`"${label}"`), refused.message);
    await b.adopt(lock.toJSON());
    assert.equal((await a.query({ name: 'x' })).held[0]?.label, label);
  },

  'query: tells the fence of a share that found the lock free, once it is renewed beside others':
    async (place) => {
      const [a, b] = await openSeveral(place, 'a', 'b');
      const semaphore = { mode: 'shared', limit: 4 } as const;
      const first = await a.acquire('x', { ...semaphore, ttl: 1_500, permits: 2 });
      const second = await b.acquire('x', { ...semaphore, ttl: 60_000 });
      const fences = async () => (await b.query()).held.map(({ fence }) => fence);
      await until(async () => (await fences()).every(Boolean), 'the renewal');
      assert.deepEqual((await fences()).sort(), [first.fence, second.fence]);
      assert.deepEqual(
        [first.held, await first.release(), await second.release()],
        [true, true, true],
      );
    },

  'query: tells who waits, in which place': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const c = await place.open({ label: 'c' });
    await a.acquire('x', LONG);
    await enqueue(b, 'x', { ...SHARED, label: 'b' });
    await enqueue(c, 'x');
    const { pending } = await a.query({ name: 'x' });
    assert.deepEqual(
      pending.map(({ waited, ...rest }) => rest),
      [
        { name: 'x', mode: 'shared', clientId: b.clientId, label: 'b', position: 1 },
        { name: 'x', mode: 'exclusive', clientId: c.clientId, label: 'c', position: 2 },
      ].map((info) => ({ ...info, permits: 1 })),
    );
    for (const { waited } of pending) assert.ok(Number.isInteger(waited) && waited < 60_000);
  },

  'query: the callers of one manager that wait for the whole lock count as one, and those for shares each':
    async (place) => {
      const [a, b] = await openSeveral(place, 'a', 'b');
      const c = await place.open({ label: 'c' });
      await a.acquire('x', LONG);
      await a.acquire('y', LONG);
      for (const label of ['first', 'second', 'third']) {
        await enqueue(b, 'x', { ...SHARED, label });
        await enqueue(b, 'y', { label });
      }
      await enqueue(c, 'x', SHARED);
      const first = { clientId: b.clientId, label: 'first', position: 1 };
      const pending = (await a.query()).pending.map(({ waited, permits, ...waiter }) => {
        assert.ok(waited >= 0 && permits === 1);
        return waiter;
      });
      assert.deepEqual(pending, [
        { name: 'x', mode: 'shared', ...first },
        { name: 'x', mode: 'shared', ...first, label: 'second', position: 2 },
        { name: 'x', mode: 'shared', ...first, label: 'third', position: 3 },
        { name: 'x', mode: 'shared', clientId: c.clientId, label: 'c', position: 4 },
        { name: 'y', mode: 'exclusive', ...first },
      ]);
    },

  'query: only names that begin so, taken literally, and only those of the prefix': async (
    place,
  ) => {
    const [locks, nested] = await Promise.all([place.open(), place.open({ prefix: 'lock:shop:' })]);
    const names = ['shop:a', 'shop:b', 'shelf', 'a*', 'ab', 'a[b]', 'a?'];
    for (const name of names) await locks.acquire(name, LONG);
    const named = async (manager: typeof locks, startsWith: string) =>
      (await manager.query({ startsWith })).held.map(({ name }) => name);
    assert.deepEqual(await named(locks, 'sh'), ['shelf', 'shop:a', 'shop:b']);
    assert.deepEqual(await named(locks, 'a*'), ['a*']);
    assert.deepEqual(await named(locks, 'a['), ['a[b]']);
    assert.deepEqual(await named(locks, 'a?'), ['a?']);
    assert.deepEqual(await named(nested, ''), ['a', 'b']);
    assert.deepEqual(await named(locks, ''), [...names].sort());
  },

  'query: page by page it tells each lock, however many keys there are': async (place) => {
    const locks = await place.open();
    const names = Array.from({ length: 300 }, (_, i) => `many:${i}`);
    await Promise.all(names.map((name) => locks.acquire(name, LONG)));
    const seen = new Set<string>();
    for await (const { held } of locks.queryPages({ startsWith: 'many:', count: 50 })) {
      for (const { name } of held) seen.add(name);
    }
    assert.deepEqual([...seen].sort(), names.sort());
    assert.equal((await locks.query({ startsWith: 'many:', count: 7 })).held.length, 300);
  },

  'query: who stops asking for pages leaves nothing open': async (place) => {
    const locks = await place.open();
    await Promise.all(Array.from({ length: 50 }, (_, i) => locks.acquire(`many:${i}`, LONG)));
    for await (const { held } of locks.queryPages({ count: 1 })) {
      if (held.length > 0) break;
    }
    await locks.close();
    await assert.rejects(locks.query(), { code: 'ERR_LOCK_CLOSED' });
  },
};
