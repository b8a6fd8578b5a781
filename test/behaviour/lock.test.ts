import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { connect, type Lock, type LockManager, openOperations } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';

let server: RedisServer;
let locks: LockManager;

before(async () => {
  server = await RedisServer.start();
  locks = await connect(server.url);
});

after(async () => {
  await locks.close();
  assert.equal(openOperations(), 0);
  await server.stop();
});

test('a lock is a plain string in Redis: the owner token, with a lease', async () => {
  const lock = await locks.acquire('plain', { label: 'worker-3', ttl: 5_000 });
  assert.match(lock.token, /^hf1\.[0-9a-f]{32}\.\d+\.worker-3$/);
  assert.equal(await server.admin.get('lock:plain'), lock.token);
  assert.equal(await server.admin.type('lock:plain'), 'string');
  const lease = await server.admin.pttl('lock:plain');
  assert.ok(lease > 0 && lease <= 5_000);
  assert.ok(Number.isSafeInteger(lock.fence));
  await lock.release();
});

test('release: true for the call that freed it, false ever after', async () => {
  const lock = await locks.acquire('release');
  assert.equal(lock.held, true);
  const both = [lock.release(), lock.release()];
  assert.equal(lock.held, false, 'from the moment of the call');
  assert.deepEqual(await Promise.all(both), [true, false]);
  assert.equal(lock.remaining, 0);
  assert.equal(await server.admin.exists('lock:release'), 0);
});

test('release: false when the lock had been lost, without an error', async () => {
  const expired = await locks.acquire('gone', { ttl: 50, renew: false });
  await until(() => !expired.held, 'the lease to end');
  assert.equal(await expired.release(), false);

  const deleted = await locks.acquire('deleted');
  await server.admin.del('lock:deleted');
  assert.equal(await deleted.release(), false);
});

test("release: leaves another owner's lock alone", async () => {
  const lock = await locks.acquire('taken');
  await server.admin.set('lock:taken', 'somebody', 'PX', 60_000);
  assert.equal(await lock.release(), false);
  assert.equal(await server.admin.get('lock:taken'), 'somebody');
});

test('remaining: falls with time and ends before the lease of the server', async () => {
  const lock = await locks.acquire('short', { ttl: 1_000, renew: false });
  const first = lock.remaining;
  assert.ok(first > 0 && first <= 1_000 - 10 - 2, String(first));
  await until(() => lock.remaining < first, 'time to pass');
  await until(() => !lock.held, 'the lease to end');
  assert.equal(lock.remaining, 0);
});

test('held: false in the first line after a blocked event loop', async () => {
  const lock = await locks.acquire('blocked', { ttl: 100, renew: false });
  const end = performance.now() + 150;
  while (performance.now() < end);
  assert.equal(lock.held, false);
  assert.throws(() => lock.assertHeld(), { code: 'ERR_LOCK_LOST', reason: 'expired' });
});

test('assertHeld: says how the lock was lost', async () => {
  const lock = await locks.acquire('assert');
  lock.assertHeld();
  await lock.release();
  assert.throws(() => lock.assertHeld(), {
    name: 'LockLostError',
    code: 'ERR_LOCK_LOST',
    reason: 'released',
    lock: 'assert',
  });
});

test('extend: lengthens the lease, in Redis and here', async () => {
  const lock = await locks.acquire('extend', { ttl: 5_000 });
  await lock.extend(60_000);
  assert.ok(lock.remaining > 50_000);
  assert.ok((await server.admin.pttl('lock:extend')) > 50_000);
  await lock.release();
});

test('extend: never shortens a lease', async () => {
  const lock = await locks.acquire('longer', { ttl: 60_000 });
  await lock.extend(50);
  assert.ok(lock.remaining > 50_000);
  assert.ok((await server.admin.pttl('lock:longer')) > 50_000);
  await lock.release();
});

test('extend: without a number repeats the last one', async () => {
  const lock = await locks.acquire('again', { ttl: 20_000, renew: false });
  await until(() => lock.remaining < 19_500, 'some of the lease to pass');
  await until(async () => {
    await lock.extend();
    return lock.remaining > 19_500;
  }, 'all of the lease again');
  await lock.release();
});

test('extend: fails once the lock is not held', async () => {
  const lock = await locks.acquire('lost', { ttl: 50, renew: false });
  await until(() => !lock.held, 'the lease to end');
  await assert.rejects(lock.extend(), { code: 'ERR_LOCK_LOST', reason: 'expired', lock: 'lost' });

  const deleted = await locks.acquire('deleted');
  await server.admin.del('lock:deleted');
  await assert.rejects(deleted.extend(), { code: 'ERR_LOCK_LOST' });
  assert.equal(deleted.held, false);

  const released = await locks.acquire('released');
  await released.release();
  await assert.rejects(released.extend(), { code: 'ERR_LOCK_LOST', reason: 'released' });
});

test("extend: leaves another owner's lease alone", async () => {
  const lock = await locks.acquire('stolen');
  await server.admin.set('lock:stolen', 'somebody', 'PX', 1_000);
  await assert.rejects(lock.extend(60_000), { code: 'ERR_LOCK_LOST' });
  assert.ok((await server.admin.pttl('lock:stolen')) <= 1_000);
});

test('await using: releases at the end of the scope', async () => {
  let inside: Lock;
  {
    await using lock = await locks.acquire('scope');
    inside = lock;
    assert.equal(await server.admin.get('lock:scope'), lock.token);
  }
  assert.equal(inside.held, false);
  assert.equal(await server.admin.exists('lock:scope'), 0);
});

test('await using: a lock that was lost does not spoil the scope', async () => {
  await using lock = await locks.acquire('scope', { ttl: 50, renew: false });
  await until(() => !lock.held, 'the lease to end');
});
