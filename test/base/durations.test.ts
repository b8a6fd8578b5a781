/** Lengths of time in options: whole ms, or texts with a unit, by one parser. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Duration, LockTimeoutError } from 'holdfast';
import { oneAtATime } from 'holdfast/bullmq';
import { fencedSet } from 'holdfast/fence';
import { expressIdempotency, memoryStore } from 'holdfast/idempotency';
import { lockHealth } from 'holdfast/nest';
import { runCoordinator } from 'holdfast/node-cron';
import { lockUi } from 'holdfast/ui';
import { createClient } from 'redis';
import { connect, type LockManager } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';

type Takes = (locks: LockManager, time: Duration) => unknown;

/** Every place that takes a length of time. Each accepts five seconds. */
const PLACES: Readonly<Record<string, Takes>> = {
  'acquire.ttl': (locks, ttl) => locks.acquire('a', { ttl }),
  'acquire.wait': (locks, wait) => locks.acquire('a', { wait }),
  'acquire.maxHold': (locks, maxHold) => locks.acquire('a', { maxHold }),
  'acquire.stallTimeout': (locks, stallTimeout) => locks.acquire('a', { stallTimeout }),
  'acquire.linger': (locks, linger) => locks.acquire('a', { linger, ttl: '1m' }),
  'tryAcquire.ttl': (locks, ttl) => locks.tryAcquire('a', { ttl }),
  'request.wait': (locks, wait) => locks.request('a', { wait }, () => {}),
  'adopt.ttl': async (locks, ttl) => {
    await using lock = await locks.acquire('b');
    return locks.adopt(lock.toJSON(), { ttl });
  },
  'lock.extend': async (locks, ttl) => {
    await using lock = await locks.acquire('b');
    await lock.extend(ttl);
  },
  'set.extend': async (locks, ttl) => {
    await using both = await locks.acquire(['b', 'c']);
    await both.extend(ttl);
  },
  'runOnce.every': (locks, every) => locks.runOnce('b', { every }, () => {}),
  'runOnce.keep': (locks, keep) => locks.runOnce('b', { slot: 's', keep }, () => {}),
  'runOnce.wait': (locks, wait) => locks.runOnce('b', { slot: 's', wait }, () => {}),
  'lead.ttl': (locks, ttl) => {
    const stop = new AbortController();
    return locks.lead('c', { ttl, signal: stop.signal }, () => stop.abort());
  },
  'oneAtATime.ttl': (locks, ttl) =>
    oneAtATime(
      locks,
      () => 'key',
      async () => {},
      { ttl },
    ),
  'runCoordinator.keep': (locks, keep) => runCoordinator(locks, { keep }),
  advance: (locks, by) => locks.advance(by),
  'connect.ttl': (_, ttl) => connect('memory:', { ttl }),
  'connect.wait': (_, wait) => connect('memory:', { wait }),
  'connect.maxHold': (_, maxHold) => connect('memory:', { maxHold }),
  'connect.linger': (_, linger) => connect('memory:', { linger, ttl: '1m' }),
  'connect.stallTimeout': (_, stallTimeout) => connect('memory:', { stallTimeout }),
  'connect.commandTimeout': (_, commandTimeout) => connect('memory:', { commandTimeout }),
  'connect.connectTimeout': (_, connectTimeout) => connect('memory:', { connectTimeout }),
  'connect.besideOldCode.retryDelay': (_, retryDelay) =>
    connect('memory:', { besideOldCode: { retryDelay } }),
  'connect.besideOldCode.retryJitter': (_, retryJitter) =>
    connect('memory:', { besideOldCode: { retryDelay: '5s', retryJitter } }),
  'idempotency.wait': (locks, wait) => expressIdempotency({ locks, store: memoryStore(), wait }),
  'idempotency.ttl': (locks, ttl) => expressIdempotency({ locks, store: memoryStore(), ttl }),
  'idempotency.grace': (locks, grace) => expressIdempotency({ locks, store: memoryStore(), grace }),
  'lockHealth.timeout': (locks, timeout) => lockHealth('locks', locks, { timeout }),
  'lockUi.interval': (locks, interval) => lockUi({ locks, interval }),
};

for (const [place, take] of Object.entries(PLACES)) {
  test(`${place} takes ms or a text with a unit, and refuses a text without`, async () => {
    for (const time of [5_000, '5s', '5000ms'] as const) {
      await using locks = await connect('memory:');
      const taken = await take(locks, time);
      if (place.startsWith('connect')) await (taken as LockManager).close();
    }
    await using locks = await connect('memory:');
    const last = place.split('.').at(-1);
    const name = place === 'advance' ? 'by' : last === 'extend' ? 'ttl' : last;
    for (const wrong of ['10', '', '5 s', '-5s', '5S', '1e3s', 'Infinity', 'five']) {
      await assert.rejects(
        async () => take(locks, wrong as Duration),
        (error: TypeError & { code: string }) => {
          assert.equal(error.code, 'ERR_INVALID_ARG_VALUE');
          assert.ok(
            error.message.startsWith(`${name} must be a number of ms, or a text with a unit`),
          );
          assert.equal(
            error.message.includes("write 10 for ms, or '10s' for seconds"),
            wrong === '10',
          );
          return true;
        },
      );
    }
    assert.equal(locks.stats().held, 0, 'a wrong time takes no lock');
  });
}

test('a text means what it says', async () => {
  await using locks = await connect('memory:', { ttl: '90s', wait: '0.5s' });
  await locks.advance(0);
  const lock = await locks.acquire('a', { renew: false });
  assert.equal(lock.remaining, 90_000 - 902);
  await lock.extend('1.5h');
  assert.equal(lock.remaining, 5_400_000 - 54_002);
  const late = locks.acquire('a');
  late.catch(() => {});
  await locks.advance('500ms');
  await assert.rejects(late, (error: LockTimeoutError) => error.waited === 500);
});

test('on servers the texts of a quorum and of a fenced value are read as well', async () => {
  const servers = await RedisServer.startSeveral(3);
  const [first] = servers;
  const client = await createClient({ url: first?.url ?? '' }).connect();
  try {
    const urls = servers.map(({ url }) => url);
    const options = { serverTimeout: '100ms', longestLease: 0, ttl: '10s' } as const;
    await using quorum = await connect({ quorum: urls }, options);
    await (await quorum.acquire('a')).release();
    await using locks = await connect(first?.url ?? '');
    await locks.request('a', (lock) => fencedSet(client, lock, 'report', 'x', { ttl: '1m' }));
    const left = await client.pTTL('report');
    assert.ok(left > 1_000 && left <= 60_000, `${left}`);
    const wrong = connect({ quorum: urls }, { serverTimeout: '100' as Duration });
    await assert.rejects(wrong, /^TypeError.*serverTimeout must be.*write 100 for ms/);
  } finally {
    client.destroy();
    await Promise.all(servers.map((server) => server.stop()));
  }
});
