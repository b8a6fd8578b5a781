/**
 * The server tells a holder at once when other code changes the key of its lock, or when it loses that, and a waiter when other
 * code frees its own.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ConnectOptions, Lock } from 'holdfast';
import { ended, manager } from '../support/ended.js';
import type { LockManager } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';
import { sleep, until } from '../support/wait.js';

/** The first renewal is due only after minutes. */
const TTL = 600_000;

/** So many locks of a manager are tracked at a time. */
const TRACKED_MAX = 1_000;

async function start(...args: string[]): Promise<RedisServer> {
  const server = new RedisServer({ args });
  await server.startOnFreePort();
  ended.push(() => server.stop());
  return server;
}

/** How many keys the server tracks. */
async function tracked(server: RedisServer): Promise<number> {
  const info = await server.admin.info('stats');
  return Number(/tracking_total_keys:(\d+)/.exec(info)?.[1]);
}

async function untilTracked(server: RedisServer, count: number): Promise<void> {
  await until(async () => (await tracked(server)) === count, `${count} tracked keys`);
}

async function take(locks: LockManager, name: string, ttl = TTL): Promise<Lock> {
  const lock = await locks.acquire(name, { ttl });
  ended.push(() => lock.release().catch(() => false));
  return lock;
}

async function untilTold(lock: Lock): Promise<void> {
  await until(() => lock.signal.aborted, 'the loss');
  assert.equal(lock.held, false);
}

const CAUSES: Record<string, (server: RedisServer) => Promise<unknown>> = {
  'a foreign DEL': ({ admin }) => admin.del('lock:a'),
  'a foreign SET': ({ admin }) => admin.set('lock:a', 'other code', 'PX', 60_000),
  FLUSHALL: ({ admin }) => admin.flushall(),
  'the end of its key': ({ admin }) => admin.pexpireat('lock:a', 1),
  eviction: async ({ admin }) => {
    await admin.config('SET', 'maxmemory-policy', 'allkeys-random');
    await admin.config('SET', 'maxmemory', '1');
    // The server evicts until this fits, which it never does.
    await admin.set('other', 'x').catch(() => null);
    await admin.config('SET', 'maxmemory', '0');
  },
};

for (const [cause, happen] of Object.entries(CAUSES)) {
  test(`${cause}: its holder is told long before its renewal`, async () => {
    const server = await start();
    const locks = await manager(server.url);
    const lock = await take(locks, 'a');
    await untilTracked(server, 1);
    await happen(server);
    await untilTold(lock);
    assert.equal(locks.stats().renewals, 0);
    assert.equal(locks.stats().lost, 1);
  });
}

test('a key that holds another type when it is to be tracked is told', async () => {
  const server = await start();
  const locks = await manager(server.url);
  const lock = await take(locks, 'a');
  await server.admin.multi().del('lock:a').sadd('lock:a', 'x').exec();
  await untilTold(lock);
  assert.equal(locks.stats().renewals, 0);
});

test('a holder is asked about when another caller of its manager gets the lock', async () => {
  const server = await start();
  const locks = await manager(server.url);
  const lock = await take(locks, 'a');
  const next = locks.acquire('a', { ttl: TTL });
  await until(async () => (await server.admin.exists('{lock:a}:queue')) === 1, 'the wait');
  // Not tracked yet; the next request that asks for the lock serves the queue.
  await server.admin.del('lock:a');
  const other = await manager(server.url);
  assert.equal(await other.tryAcquire('a', { ttl: TTL }), null);
  await (await next).release();
  await untilTold(lock);
  assert.equal(locks.stats().renewals, 0);
});

test('a theft is told once, with its thief as the reason', async () => {
  const server = await start();
  const [locks, thief] = [await manager(server.url), await manager(server.url)];
  const lock = await take(locks, 'a');
  await untilTracked(server, 1);
  const stolen = await thief.acquire('a', { ttl: TTL, steal: true });
  await untilTold(lock);
  assert.equal(lock.signal.reason.code, 'ERR_LOCK_LOST');
  assert.equal(lock.signal.reason.reason, 'stolen');
  await stolen.release();
});

test('a lock is tracked again with each renewal, and no more once it is released', async () => {
  const server = await start();
  const locks = await manager(server.url);
  const lock = await take(locks, 'a', 3_000);
  await until(() => locks.stats().renewals >= 3, 'renewals');
  await untilTracked(server, 1);
  await lock.release();
  await untilTracked(server, 0);
});

test('a short hold costs no request more', async () => {
  const server = await start();
  const locks = await manager(server.url);
  await (await locks.acquire('a', { ttl: TTL })).release();
  const before = locks.stats().requests;
  await (await locks.acquire('a', { ttl: TTL })).release();
  assert.equal(locks.stats().requests, before + 2);
  assert.equal(await tracked(server), 0);
});

test('a waiter marks the lock, which costs its holder a question and no lock', async () => {
  const server = await start();
  const [locks, others] = [await manager(server.url), await manager(server.url)];
  const lock = await take(locks, 'a');
  await untilTracked(server, 1);
  const before = locks.stats().requests;
  const waiting = others.acquire('a', { ttl: TTL });
  await until(() => locks.stats().requests > before, 'the question');
  await untilTracked(server, 1);
  assert.ok(lock.held);
  await lock.release();
  await (await waiting).release();
});

test('of many locks a thousand are tracked, and told of a flush', async () => {
  const server = await start();
  const locks = await manager(server.url);
  const names = Array.from({ length: 2_000 }, (_, number) => `${number}`);
  const held = await Promise.all(names.map((name) => take(locks, name)));
  await untilTracked(server, TRACKED_MAX);
  await server.admin.flushall();
  await until(() => locks.stats().lost >= TRACKED_MAX, 'their losses');
  assert.ok(held.filter((lock) => lock.signal.aborted).length >= TRACKED_MAX);
  assert.equal(locks.stats().renewals, 0);
});

test('a server that tracks too few keys ends no lock and is not asked without an end', async () => {
  const server = await start('--tracking-table-max-keys', '10');
  const locks = await manager(server.url);
  const names = Array.from({ length: 100 }, (_, number) => `${number}`);
  const held = await Promise.all(names.map((name) => take(locks, name)));
  const questions = () => locks.stats().requests - held.length;
  await until(() => questions() >= held.length / 2, 'the first questions');
  // Each may be asked about twice. A loop would ask many thousand times.
  await sleep(1_000);
  assert.ok(questions() <= 2 * held.length, `${questions()}`);
  assert.ok(held.every((lock) => lock.held));
});

test('after a lost connection the next one tracks what is held', async () => {
  const server = await start();
  const locks = await manager(server.url);
  const lock = await take(locks, 'a');
  await untilTracked(server, 1);
  await server.admin.call('CLIENT', 'KILL', 'TYPE', 'normal');
  await untilTracked(server, 1);
  await server.admin.del('lock:a');
  await untilTold(lock);
});

test('what happened while there was no connection is asked about', async () => {
  const server = await start();
  const locks = await manager(server.url);
  const lock = await take(locks, 'a');
  await untilTracked(server, 1);
  await server.admin
    .multi()
    .del('lock:a')
    .call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
    .exec();
  await untilTold(lock);
});

test('a quorum: each server tells, and a majority decides', async () => {
  const servers = [await start(), await start(), await start()] as const;
  const locks = await manager({ quorum: servers.map(({ url }) => url) }, {
    longestLease: 0,
  } as ConnectOptions);
  const lock = await take(locks, 'a');
  for (const server of servers) await untilTracked(server, 1);
  await servers[0].admin.del('lock:a');
  await until(async () => (await servers[0].admin.exists('lock:a')) === 1, 'its copy');
  assert.ok(lock.held);
  await Promise.all(servers.slice(1).map(({ admin }) => admin.del('lock:a')));
  await servers[0].admin.del('lock:a');
  await untilTold(lock);
  assert.equal(locks.stats().renewals, 0);
});

test('a waiter is told that other code has freed the lock, and polls seldom', async () => {
  const server = await start();
  const locks = await manager(server.url);
  await server.admin.set('lock:a', 'other code', 'PX', TTL);
  const waiting = locks.acquire('a', { ttl: TTL });
  await untilTracked(server, 1);
  const before = locks.stats().requests;
  await sleep(1_000);
  // Without messages about nine.
  assert.ok(locks.stats().requests - before <= 2);
  const asked = locks.stats().requests;
  await server.admin.del('lock:a');
  await (await waiting).release();
  // The poll that was granted, and the release.
  assert.ok(locks.stats().requests - asked <= 3);
});

for (const right of ['client|tracking', 'client|caching']) {
  test(`a user without ${right} learns of a loss with the renewal, and of a free lock with a poll`, async () => {
    const server = await start();
    await server.admin.call('ACL', 'SETUSER', 'app', 'on', '>pw', '~*', '&*', '+@all', `-${right}`);
    await isSilent(server, await manager(server.url.replace('//', '//app:pw@')), 3);
  });
}

test('a server that takes client|caching away while connected is not relied on', async () => {
  const server = await start();
  const user = (...rules: string[]) => server.admin.call('ACL', 'SETUSER', 'app', ...rules);
  await user('on', '>pw', '~*', '&*', '+@all');
  const locks = await manager(server.url.replace('//', '//app:pw@'));
  assert.equal(locks.stats().servers[0]?.tracking, true);
  await user('-client|caching');
  await server.admin.set('lock:b', 'other code', 'PX', TTL);
  const waiting = locks.acquire('b', { ttl: TTL });
  await until(() => locks.stats().servers[0]?.tracking === false, 'the refusal');
  await server.admin.del('lock:b');
  await (await waiting).release();
  await isSilent(server, locks, 3);
});

test('RESP2: a holder learns of a loss with the renewal, a waiter of a free lock with a poll', async () => {
  const server = await start('--rename-command', 'HELLO', '');
  await isSilent(server, await manager(server.url), 2);
});

/** The server does not tell; all else works. */
async function isSilent(server: RedisServer, locks: LockManager, protocol: number): Promise<void> {
  const [{ tracking, protocol: spoken } = {}] = locks.stats().servers;
  assert.deepEqual([tracking, spoken], [false, protocol]);
  const lock = await take(locks, 'a', 3_000);
  await until(() => locks.stats().renewals >= 2, 'renewals');
  assert.equal(await tracked(server), 0);
  await server.admin.del('lock:a');
  await untilTold(lock);
  await server.admin.set('lock:b', 'other code', 'PX', TTL);
  const waiting = locks.acquire('b', { ttl: TTL });
  const before = locks.stats().requests;
  await until(() => locks.stats().requests >= before + 5, 'polls');
  assert.equal(await tracked(server), 0);
  await server.admin.del('lock:b');
  await (await waiting).release();
}
