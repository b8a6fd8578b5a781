/** Taking a lock that is free, and finding it taken. */

import assert from 'node:assert/strict';
import { until } from '../../support/wait.js';
import { aborted, type Behaviours, openSeveral, TTL_MS_MAX } from './behaviour.js';

export const TAKING: Behaviours = {
  'tryAcquire: of ten tasks one gets the lock, nine see null, and it can be taken again': async (
    place,
  ) => {
    const locks = await place.open();
    const attempts = Array.from({ length: 10 }, () => locks.tryAcquire('account:7'));
    const taken = (await Promise.all(attempts)).filter((lock) => lock !== null);
    assert.equal(taken.length, 1);
    assert.equal(await taken[0]?.release(), true);
    assert.equal(await (await locks.tryAcquire('account:7'))?.release(), true);
  },

  'managers exclude each other, whichever way they ask': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x');
    assert.equal(await b.tryAcquire('x'), null);
    await assert.rejects(b.acquire('x', { wait: 0 }), { code: 'ERR_LOCK_TIMEOUT' });
    await assert.rejects(
      b.request('x', { wait: 0 }, () => assert.fail('it was held')),
      { code: 'ERR_LOCK_TIMEOUT' },
    );
    assert.equal(await lock.release(), true);
    const theirs = await b.acquire('x', { wait: 0 });
    assert.equal(await a.tryAcquire('x'), null);
    assert.equal(await theirs.release(), true);
  },

  'a lock knows its name, its token with the label in it, and its fence': async (place) => {
    const locks = await place.open();
    const [plain, labelled] = [
      await locks.acquire('a', { label: '' }),
      await locks.acquire('b', { label: 'worker-3' }),
    ];
    assert.equal(plain.name, 'a');
    // On a quorum the number of the attempt follows, as on its servers.
    assert.match(plain.token, /^hf1\.[0-9a-f]{32}\.\d+(\.\d+)?$/);
    assert.match(labelled.token, /^hf1\.[0-9a-f]{32}\.\d+\.worker-3(\.\d+)?$/);
    assert.ok(Number.isSafeInteger(plain.fence) && plain.fence > 0);
  },

  'names that look alike are locks of their own': async (place) => {
    const locks = await place.open();
    const names = [
      'a',
      'A',
      '{a}',
      '{a',
      '{a}}',
      '{a}a',
      ' a',
      'a ',
      'a:b',
      'a\0',
      'ä',
      '€',
      '😀',
      'æ',
    ];
    const all = await Promise.all(names.map((name) => locks.tryAcquire(name)));
    assert.deepEqual(
      all.map((lock) => lock?.name),
      names,
    );
    const freed = await Promise.all(all.map((lock) => lock?.release()));
    assert.deepEqual(freed, Array(names.length).fill(true));
  },

  'the longest name, the longest label and the limits of a lease are taken': async (place) => {
    const locks = await place.open();
    const name = '€'.repeat(341).padEnd(342, 'x');
    const label = `${'x'.repeat(74)}AZ09._`;
    const long = await locks.acquire(name, {
      ttl: TTL_MS_MAX,
      label,
      wait: Number.MAX_SAFE_INTEGER,
    });
    assert.ok(long.remaining > TTL_MS_MAX * 0.98 && long.remaining < TTL_MS_MAX);
    assert.ok(long.token.includes(`.${label}`));
    assert.equal(await locks.tryAcquire(name), null);
    await long.extend(TTL_MS_MAX);
    assert.equal(await long.release(), true);
    const short = await locks.acquire('short', { ttl: 50, renew: false, maxHold: 50 });
    assert.ok(short.remaining < 50);
    await short.release();
  },

  'leases of centuries: the whole lock, several names, and who waits': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const long = { ttl: TTL_MS_MAX };
    const lock = await a.acquire('x', long);
    const waiting = b.acquire('x', long);
    await assert.rejects(b.acquire('x', { ...long, wait: 20 }), ({ message }: Error) => {
      assert.match(message, /its lease ends in 10\d{7}d\d\dh/);
      return true;
    });
    assert.equal(await lock.release(), true);
    const next = await waiting;
    // The grant by message is short until its owner claims the whole lease.
    await until(() => next.remaining > TTL_MS_MAX * 0.98, 'the claim');
    assert.equal(await next.release(), true);
    const both = await a.acquire(['x', 'y'], long);
    assert.ok(both.remaining > TTL_MS_MAX * 0.98);
    assert.equal(await both.release(), true);
  },

  'a thousand names at once, each with a lock and a token of its own': async (place) => {
    const locks = await place.open();
    const names = Array.from({ length: 1_000 }, (_, i) => `many:${i}`);
    const all = await Promise.all(names.map((name) => locks.acquire(name)));
    assert.equal(new Set(all.map((lock) => lock.token)).size, 1_000);
    const freed = await Promise.all(all.map((lock) => lock.release()));
    assert.ok(freed.every(Boolean));
  },

  'the prefix is part of the name: managers with the same key share the lock': async (place) => {
    // All begin alike: not every user may use other keys.
    const [plain, nested, other] = await Promise.all([
      place.open(),
      place.open({ prefix: 'lock:shop:' }),
      place.open({ prefix: 'lock:other:' }),
    ]);
    const lock = await plain.acquire('shop:x');
    assert.equal(await nested.tryAcquire('x'), null);
    for (const free of [await nested.tryAcquire('shop:x'), await other.tryAcquire('x')]) {
      assert.equal(await free?.release(), true);
    }
    assert.equal(await lock.release(), true);
  },

  'the defaults of connect hold for every lock that does not say otherwise': async (place) => {
    const locks = await place.open({ ttl: 30_000, wait: 0, renew: false, maxHold: 200 });
    const lock = await locks.acquire('x');
    const own = await locks.acquire('y', { ttl: 60_000, maxHold: Number.POSITIVE_INFINITY });
    assert.ok(lock.remaining <= 30_000, String(lock.remaining));
    assert.ok(own.remaining > 30_000, String(own.remaining));
    await assert.rejects(locks.acquire('y'), { code: 'ERR_LOCK_TIMEOUT' });
    assert.equal((await aborted(lock)).reason, 'maxHold');
    assert.equal(own.held, true);
  },
};
