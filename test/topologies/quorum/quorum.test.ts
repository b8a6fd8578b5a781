/** The keys of a quorum on its servers, its grants, and the waking of its waiters. */

import assert from 'node:assert/strict';
import { afterEach, describe, test } from 'node:test';
import type { LockError } from 'holdfast';
import { connect, type Lock } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { sleep, until } from '../../support/wait.js';
import { Group, groupOfSuite, timed } from './servers.js';

describe('a quorum of five', () => {
  const group = groupOfSuite(5);

  afterEach(() => group.reset());

  test('a lock is the same token and fence on every server, and gone after its release', async () => {
    const locks = await group.open();
    const lock = await locks.acquire('x', { label: 'cron' });
    await until(async () => !(await group.holders('x')).includes(null), 'all to have it');
    const [value] = await group.holders('x');
    assert.match(String(value), /^hf1\.[0-9a-f]{32}\.\d+\.cron\.\d+$/);
    assert.equal(new Set(await group.holders('x')).size, 1);
    const fences = group.servers.map(({ admin }) => admin.get('{lock:x}:fence'));
    assert.deepEqual(new Set(await Promise.all(fences)), new Set([String(lock.fence)]));
    assert.equal(await lock.release(), true);
    await group.free('x');
    assert.equal(await lock.release(), false);
  });

  test('what its servers cannot agree on is refused, with the reason, before anything is sent', async () => {
    const locks = await group.open();
    const lock = await locks.acquire('x');
    const { requests } = locks.stats();
    for (const [attempt, why] of [
      [locks.acquire('y', { mode: 'shared' }), /cannot agree on who shares a lock/],
      [locks.tryAcquire(['y', 'z'], { mode: 'shared' }), /cannot agree on who shares a lock/],
      [locks.acquire('y', { mode: 'shared', limit: 2 }), /would count other permits/],
      [locks.request('x', { steal: true }, () => assert.fail('stolen')), /change the holder/],
      [locks.forceRelease('x'), /released by force/],
      [locks.adopt({ name: 'x', token: 'hf1.a.1' }), /adopted/],
      [locks.acquire('y', { owner: 'me' }), /owner is not for a quorum/],
      [locks.release('x', { owner: 'me' }), /owner is not for a quorum/],
      [locks.query(), /queried/],
      [lock.downgrade(), /downgraded/],
    ] as const) {
      await assert.rejects(attempt as Promise<unknown>, {
        name: 'TypeError',
        code: 'ERR_INVALID_ARG_VALUE',
        message: why,
      });
    }
    assert.equal(locks.stats().requests, requests);
    assert.equal(await lock.release(), true);
  });

  test('the error of a refused caller names the holder', async () => {
    const [a, b] = await Promise.all([group.open(), group.open()]);
    await a.acquire('x', { label: 'cron', ttl: 20_000 });
    assert.equal(await b.tryAcquire('x'), null);
    await assert.rejects(b.acquire('x', { wait: 100 }), {
      code: 'ERR_LOCK_TIMEOUT',
      holderLabel: 'cron',
      position: undefined,
    });
  });

  test('one holder at a time, with rising fences, however many want it', async () => {
    const managers = await Promise.all(Array.from({ length: 6 }, () => group.open()));
    const fences: number[] = [];
    let inside = 0;
    const rounds = managers.flatMap((manager) =>
      Array.from({ length: 10 }, () =>
        manager.request('x', { ttl: 5_000, wait: 60_000 }, async (lock: Lock) => {
          inside += 1;
          assert.equal(inside, 1);
          fences.push(lock.fence);
          await sleep(1);
          inside -= 1;
        }),
      ),
    );
    await Promise.all(rounds);
    assert.deepEqual(
      fences,
      [...fences].sort((a, b) => a - b),
    );
    assert.equal(new Set(fences).size, 60);
  });

  test('a release wakes every waiter, long before it would ask again', async () => {
    const [a, b] = await Promise.all([group.open(), group.open()]);
    const waits: number[] = [];
    for (let round = 0; round < 10; round++) {
      const lock = await a.acquire('x', { ttl: 30_000 });
      const granted = b.acquire('x', { ttl: 30_000, wait: 30_000 });
      // By then its pauses are at their longest.
      await sleep(round === 0 ? 1_500 : 700);
      const released = performance.now();
      await lock.release();
      const next = await granted;
      waits.push(performance.now() - released);
      await next.release();
    }
    waits.sort((one, other) => one - other);
    // Without the message a waiter would ask some 200 ms later, seldom within 50. A busy machine
    // delays most of the ten; the third is within them all the same.
    assert.ok((waits[2] ?? 0) < 50, `the third of ${waits.map(Math.round)} ms`);
  });

  test('values of other code are respected, and its locks are taken once they end', async () => {
    const locks = await group.open();
    await Promise.all(group.servers.map(({ admin }) => admin.set('lock:x', 'other', 'PX', 400)));
    assert.equal(await locks.tryAcquire('x'), null);
    const lock = await locks.acquire('x', { wait: 5_000 });
    assert.equal(await lock.release(), true);
  });

  test('a data structure in the way is refused and named', async () => {
    const locks = await group.open();
    await Promise.all(group.servers.map(({ admin }) => admin.lpush('lock:x', 'y')));
    await assert.rejects(locks.acquire('x'), {
      code: 'ERR_LOCK_SERVER',
      serverCode: 'WRONGTYPE',
      key: 'lock:x',
    });
  });

  test('a fence counter that other code has raised costs that server its vote, and is named if most have it', async () => {
    const locks = await group.open();
    let disconnects = 0;
    locks.on('disconnect', () => disconnects++);
    const key = '{lock:x}:fence';
    const refused = { code: 'ERR_LOCK_SERVER', serverCode: 'FENCE', key };
    for (const raised of [(Date.now() + 366 * 86_400_000) * 1_000, 2 ** 53]) {
      await group.at(0).admin.set(key, String(raised), 'PX', 100_000);
      const lock = await locks.acquire('x');
      assert.ok(lock.fence < raised);
      await Promise.all(group.servers.map(({ admin }) => admin.set(key, String(raised))));
      assert.equal(await lock.release(), true);
      await assert.rejects(locks.acquire('x'), refused);
      await Promise.all(group.servers.map(({ admin }) => admin.del(key)));
    }
    assert.equal(await (await locks.acquire('y')).release(), true);
    assert.equal(disconnects, 0);
  });

  test('a lock taken with a fence of the future is followed by a higher one', async () => {
    const locks = await group.open();
    const future = (Date.now() + 86_400_000) * 1_000;
    await group.at(2).admin.set('{lock:x}:fence', future, 'PX', 100_000);
    const fences: number[] = [];
    for (let i = 0; i < 20; i++) {
      const lock = await locks.acquire('x', { wait: 5_000 });
      fences.push(lock.fence);
      await lock.release();
    }
    assert.deepEqual(
      fences,
      [...fences].sort((a, b) => a - b),
    );
  });

  test('closing gives everything back', async () => {
    const locks = await group.open();
    await Promise.all(['a', 'b', 'c'].map((name) => locks.acquire(name)));
    await locks.close();
    for (const { admin } of group.servers) {
      assert.deepEqual(await admin.keys('lock:*'), []);
    }
  });
});

test('four servers: three are a majority, two are not', async () => {
  const group = await Group.start(4);
  const locks = await group.open({ serverTimeout: 50 });
  await group.at(0).kill();
  assert.equal(await (await locks.acquire('x')).release(), true);
  await group.at(1).kill();
  const { result } = await timed(() => locks.acquire('x', { wait: 200 }));
  assert.equal((result as PromiseRejectedResult).reason.code, 'ERR_LOCK_QUORUM');
  await group.stop();
});

test('two managers that each have half of four servers do not wait for ever', async () => {
  const group = await Group.start(4);
  const [a, b] = await Promise.all([group.open(), group.open()]);
  for (let round = 0; round < 30; round++) {
    const settled = await Promise.all([a.tryAcquire('x'), b.tryAcquire('x')]);
    const held = settled.filter((lock) => lock !== null);
    assert.ok(held.length < 2);
    await Promise.all(held.map((lock) => lock.release()));
    await group.free('x');
  }
  await group.stop();
});

test('each server has its own login and database', async () => {
  const servers = await Promise.all(
    ['one', 'two', 'three'].map((password) => RedisServer.start({ password })),
  );
  const urls = servers.map(
    ({ port, options }, i) => `redis://:${options.password}@127.0.0.1:${port}/${i}`,
  );
  const locks = await connect({ quorum: urls }, { longestLease: 0 });
  await locks.acquire('x');
  const value = async (server: RedisServer, i: number) => {
    await server.admin.select(i);
    return server.admin.get('lock:x');
  };
  await until(async () => {
    const values = await Promise.all(servers.map(value));
    return values.every((each) => each !== null);
  }, 'the lock on all servers');
  await locks.close();
  await Promise.all(servers.map((server) => server.stop()));
});

test('two names of one server are told of', async () => {
  const group = await Group.start(2);
  const [one = '', two = ''] = group.urls;
  const again = one.replace('127.0.0.1', 'localhost');
  const locks = await connect({ quorum: [one, two, again] }, { longestLease: 0 });
  const warning = await new Promise<LockError>((resolve) => {
    locks.on('warning', (each) => each.code === 'WARN_LOCK_SAME_SERVER' && resolve(each));
  });
  assert.match(warning.message, /127\.0\.0\.1:\d+\/0 and redis:\/\/localhost:\d+\/0 are the same/);
  await locks.close();
  await group.stop();
});

test('a target that is no quorum is refused', async () => {
  const url = 'redis://127.0.0.1:1';
  const many = ['redis://a', 'redis://b', 'redis://c'];
  for (const target of [
    { quorum: [] },
    { quorum: [url, 'redis://127.0.0.1:2'] },
    { quorum: url },
    { quorum: [...many, 'memory:'] },
    { quorum: [...many, 'redis://a'] },
    { quorum: [...many, undefined] },
    { quorum: many, serverTimeout: 5 },
  ]) {
    await assert.rejects(connect(target as never), TypeError);
  }
  for (const options of [{ serverTimeout: 50 }, { longestLease: 5_000 }]) {
    await assert.rejects(connect('memory:', options), { code: 'ERR_INVALID_ARG_VALUE' });
  }
  await assert.rejects(connect({ quorum: many }, { replicas: 1 }), {
    code: 'ERR_INVALID_ARG_VALUE',
  });
  for (const options of [{ serverTimeout: 0 }, { serverTimeout: 1.5 }, { longestLease: 10 }]) {
    await assert.rejects(connect({ quorum: many }, options), RangeError);
  }
});
