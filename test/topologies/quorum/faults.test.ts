/** A quorum whose servers are down, hang, are busy, restart and forget. */

import assert from 'node:assert/strict';
import { afterEach, describe, test } from 'node:test';
import type { LockQuorumError } from 'holdfast';
import { connect, holdfast } from '../../support/holdfast.js';
import type { RedisServer } from '../../support/server.js';
import { sleep, until } from '../../support/wait.js';
import { type Group, groupOfSuite, timed } from './servers.js';

const { LockQuorumError: QuorumError } = holdfast;

/** The additional time of a round on a busy machine, besides the protocol's own. */
const SLACK = 400;
const SERVER_TIMEOUT = 100;

function quorumError(result: PromiseSettledResult<unknown>): LockQuorumError {
  assert.equal(result.status, 'rejected');
  const { reason } = result as PromiseRejectedResult;
  assert.ok(reason instanceof QuorumError, String(reason));
  return reason as LockQuorumError;
}

describe('quorum of five', () => {
  const group = groupOfSuite(5);

  afterEach(() => group.reset());

  for (const [how, hurt] of [
    ['down', (server: Group['servers'][number]) => server.kill()],
    ['hung', async (server: Group['servers'][number]) => server.pause()],
  ] as const) {
    test(`any two ${how}: locks are taken as fast as ever, kept and released`, async () => {
      const pairs = [0, 1, 2, 3, 4].map((first) => [first, (first + 2) % 5] as const);
      for (const [i, [first, second]] of pairs.entries()) {
        const locks = await group.open({ serverTimeout: SERVER_TIMEOUT });
        await Promise.all([hurt(group.at(first)), hurt(group.at(second))]);
        const name = `${how}-${i}`;
        const { took, result } = await timed(() => locks.acquire(name, { ttl: 2_000 }));
        assert.equal(result.status, 'fulfilled');
        assert.ok(took < 2 * SERVER_TIMEOUT + SLACK, `${took} ms`);
        const lock = (result as PromiseFulfilledResult<Awaited<ReturnType<typeof locks.acquire>>>)
          .value;
        await lock.extend(3_000);
        assert.equal(await lock.release(), true);
        await group.free(name);
        await group.reset();
      }
    });

    test(`three ${how}: an error with each one's cause, and nothing stays locked`, async () => {
      const locks = await group.open({ serverTimeout: SERVER_TIMEOUT });
      await Promise.all([1, 2, 4].map((i) => hurt(group.at(i))));
      if (how === 'down') await until(() => refusedAtOnce(locks), 'the connections to be gone');
      for (const attempt of [
        () => locks.tryAcquire('x'),
        () => locks.acquire('x', { wait: 300 }),
        () => locks.acquire('x', { wait: 0 }),
      ]) {
        const { took, result } = await timed(attempt);
        const error = quorumError(result);
        assert.ok(took < 300 + 2 * SERVER_TIMEOUT + SLACK, `${took} ms`);
        assert.equal(error.code, 'ERR_LOCK_QUORUM');
        assert.equal(error.lock, 'x');
        assert.deepEqual(
          error.servers.map(({ cause }) => cause !== undefined),
          [false, true, true, false, true],
        );
        assert.deepEqual(
          error.servers.map(({ server }) => server),
          group.urls.map((url) => `${url}/0`),
        );
      }
      assert.deepEqual(await group.holders('x'), [null, null]);
    });
  }

  test('a lock that was taken by servers that answered too late is given back by them', async () => {
    const locks = await group.open({ serverTimeout: 50 });
    await (await locks.acquire('x')).release();
    for (const i of [0, 1, 2]) group.at(i).pause();
    quorumError((await timed(() => locks.tryAcquire('x'))).result);
    for (const i of [0, 1, 2]) group.at(i).resume();
    // On a busy machine one of them may have been given up before.
    const executed = () =>
      Promise.all([0, 1, 2].map((i) => group.at(i).admin.get('{lock:x}:fence')));
    const isOne = async () => (await executed()).some((fence) => fence !== null);
    await until(isOne, 'one of the servers to go on');
    await group.free('x');
    assert.equal(await (await locks.tryAcquire('x'))?.release(), true);
  });

  test('what servers executed after their connections were given up is given back, too', async () => {
    const locks = await group.open({ serverTimeout: 50, commandTimeout: 300 });
    let gone = 0;
    locks.on('disconnect', () => (gone += 1));
    for (const i of [0, 1, 2]) group.at(i).pause();
    quorumError((await timed(() => locks.tryAcquire('x', { ttl: 60_000 }))).result);
    await until(() => gone >= 3, 'the connections to be given up');
    for (const i of [0, 1, 2]) group.at(i).resume();
    await locks.acquire('y');
    await group.free('x');
  });

  test('two busy for 100 ms at the start: the lock is taken at once by the others', async () => {
    const locks = await group.open();
    const busy = [0, 1].map((i) => keepBusy(group.at(i), 100));
    const { took, result } = await timed(() => locks.acquire('x', { wait: 20_000 }));
    assert.equal(result.status, 'fulfilled');
    assert.ok(took < 2 * SERVER_TIMEOUT + SLACK, `${took} ms`);
    await Promise.all(busy);
  });

  test('two forget everything and one is hung: the lease is lost, not prolonged', async () => {
    const locks = await group.open({ serverTimeout: 50 });
    const lock = await locks.acquire('x', { ttl: 900 });
    await Promise.all([0, 1].map((i) => group.at(i).admin.flushall()));
    group.at(2).pause();
    await until(() => lock.signal.aborted, 'the lock to be lost', 3_000);
    assert.equal(await lock.release(), false);
  });

  test('renewal goes on across the restart of any server, which gets the lock back', async () => {
    const locks = await group.open();
    const lock = await locks.acquire('x', { ttl: 1_500 });
    for (const server of group.servers) {
      await server.restart();
      await until(
        async () => (await group.holders('x')).every((holder) => holder !== null),
        'the lock to be on all servers',
      );
      const fences = group.servers.map(({ admin }) => admin.get('{lock:x}:fence'));
      const expected = group.servers.map(() => String(lock.fence));
      assert.deepEqual(await Promise.all(fences), expected);
    }
    assert.equal(lock.held, true);
    assert.equal(await lock.release(), true);
    await group.free('x');
  });

  for (const renew of [true, false]) {
    test(`a minority that forgets the lock gets it back, with renew: ${renew}`, async () => {
      const locks = await group.open();
      const lock = await locks.acquire('x', { ttl: 9_000, renew });
      for (const i of [3, 4]) await group.at(i).admin.del('lock:x');
      await until(async () => !(await group.holders('x')).includes(null), 'all to have it');
      const next = await group.at(4).admin.get('{lock:x}:fence');
      assert.equal(next, String(lock.fence));
      assert.equal(await lock.release(), true);
    });

    test(`a majority that forgets the lock costs it, with renew: ${renew}`, async () => {
      const locks = await group.open();
      const lock = await locks.acquire('x', { ttl: 18_000, renew });
      const forgotten = performance.now();
      for (const i of [1, 3, 4]) await group.at(i).admin.del('lock:x');
      await until(() => lock.signal.aborted, 'the loss to be told');
      assert.equal(lock.signal.reason.reason, 'expired');
      assert.ok(performance.now() - forgotten < 12_000, 'before the lease ends');
    });
  }

  test('connecting fails with the cause of every server, and shows no password', async () => {
    await Promise.all([0, 1, 2].map((i) => group.at(i).kill()));
    const secret = group.urls.map((url) => url.replace('//', '//me:s3cret@'));
    const { result } = await timed(() => connect({ quorum: secret }, { connectTimeout: 1_000 }));
    const error = quorumError(result);
    assert.equal(error.servers.filter(({ cause }) => cause !== undefined).length >= 3, true);
    assert.doesNotMatch(JSON.stringify(error.servers) + error.message, /s3cret/);
  });
});

describe('quorum of three, one down', () => {
  const group = groupOfSuite(3);

  test('default settings: one more busy, and a single attempt fails within a second', async () => {
    const locks = await connect({ quorum: group.urls }, { longestLease: 0 });
    await group.at(0).kill();
    const busy = keepBusy(group.at(1), 3_000);
    await sleep(20);
    const { took, result } = await timed(() => locks.tryAcquire('x'));
    quorumError(result);
    assert.ok(took < 1_000, `${took} ms`);
    await Promise.all([busy, locks.close()]);
  });

  test('one more busy for 100 ms: a waiter gets the lock, its own keys are not in its way', async () => {
    const locks = await connect({ quorum: group.urls }, { longestLease: 0 });
    const busy = keepBusy(group.at(1), 100);
    await sleep(5);
    const { took, result } = await timed(() => locks.acquire('x', { ttl: 2_000 }));
    assert.equal(result.status, 'fulfilled', String((result as PromiseRejectedResult).reason));
    assert.ok(took < 1_000, `${took} ms`);
    await Promise.all([busy, locks.close()]);
  });
});

describe('a server that restarted without its data', () => {
  const group = groupOfSuite(3);

  test('has no vote until the longest lease has ended, so no lock is granted twice', async () => {
    // The servers run for a moment already when they are asked for the first time.
    const longestLease = 4_000;
    const [a, b] = await Promise.all([group.open({ longestLease }), group.open({ longestLease })]);
    const early = await timed(() => a.tryAcquire('early', { ttl: 4_000 }));
    if (early.result.status === 'rejected') quorumError(early.result);
    const lock = await a.acquire('x', { ttl: 4_000, renew: false, wait: 20_000 });
    // A server that had no vote yet gets a copy: with two of three alone, any of them might be the one that is deleted here.
    await until(
      async () => (await group.holders('x')).every((holder) => holder !== null),
      'the lock on all servers',
    );
    // Then two of three know nothing of the lock.
    await group.at(2).admin.del('lock:x');
    await group.at(0).restart();
    let granted = 0;
    // At a third of its lease it is asked about, and ends.
    while (lock.held) {
      const { result } = await timed(() => b.tryAcquire('x', { ttl: 1_000 }));
      const other = result.status === 'fulfilled' ? result.value : null;
      if (other !== null && lock.held) granted += 1;
      await other?.release();
      await sleep(50);
    }
    assert.equal(granted, 0);
    const next = await b.acquire('x', { wait: 20_000, ttl: 1_000 });
    assert.ok(next.fence > lock.fence);
  });
});

/** Lets a server do nothing else for a while. */
async function keepBusy({ admin }: RedisServer, ms: number): Promise<void> {
  const clock = "local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000";
  const now = `(function() ${clock} end)()`;
  await admin.eval(`local e = ${now} + ARGV[1] while ${now} < e do end`, 0, ms);
}

async function refusedAtOnce(locks: Awaited<ReturnType<typeof connect>>): Promise<boolean> {
  const { took, result } = await timed(() => locks.tryAcquire('probe'));
  return result.status === 'rejected' && took < 50;
}
