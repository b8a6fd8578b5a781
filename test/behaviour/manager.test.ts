import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { connect, type LockManager, openOperations } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';
import { sleep, until } from '../support/wait.js';

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

test('tryAcquire: of ten tasks one gets the lock, nine see null, and it can be taken again', async () => {
  const attempts = Array.from({ length: 10 }, () => locks.tryAcquire('account:7'));
  const taken = (await Promise.all(attempts)).filter((lock) => lock !== null);
  assert.equal(taken.length, 1);
  await taken[0]?.release();
  const again = await locks.tryAcquire('account:7');
  assert.ok(again !== null && again.fence > (taken[0]?.fence ?? 0));
  await again.release();
});

test('acquire: waits until the holder releases', async () => {
  const first = await locks.acquire('wait');
  let granted = false;
  const second = locks.acquire('wait', { wait: Number.POSITIVE_INFINITY }).finally(() => {
    granted = true;
  });
  await sleep(150);
  assert.equal(granted, false, 'not while the lock is held');
  await first.release();
  const lock = await second;
  assert.ok(lock.fence > first.fence);
  await lock.release();
});

test('acquire: gets a lock whose holder let its lease run out', async () => {
  const first = await locks.acquire('run out', { ttl: 100, renew: false });
  const second = await locks.acquire('run out', { wait: 10_000 });
  assert.equal(first.held, false);
  await second.release();
});

test('acquire: gives up after its wait and says who holds the lock', async () => {
  const holder = await locks.acquire('busy', { label: 'nightly-report', ttl: 30_000 });
  await assert.rejects(locks.acquire('busy', { wait: 100 }), (error: Record<string, unknown>) => {
    assert.equal(error['code'], 'ERR_LOCK_TIMEOUT');
    assert.equal(error['lock'], 'busy');
    assert.equal(error['holder'], 'nightly-report');
    assert.ok(Number(error['waited']) >= 100);
    assert.ok(Number(error['remaining']) > 20_000);
    assert.match(
      String(error['message']),
      /"busy" was not free within \d+ ms: it is held by "nightly-report" for \d+ ms more/,
    );
    return true;
  });
  await holder.release();
});

test('acquire: a wait of 0 tries once', async () => {
  const holder = await locks.acquire('once');
  await assert.rejects(locks.acquire('once', { wait: 0 }), { code: 'ERR_LOCK_TIMEOUT' });
  await holder.release();
  const lock = await locks.acquire('once', { wait: 0 });
  await lock.release();
});

test('acquire: a value of other code is respected, even without an expiry', async () => {
  await server.admin.set('lock:foreign', 'old code');
  assert.equal(await locks.tryAcquire('foreign'), null);
  await assert.rejects(locks.acquire('foreign', { wait: 50 }), (error: Record<string, unknown>) => {
    assert.equal(error['holder'], undefined);
    assert.equal(error['remaining'], undefined);
    assert.match(String(error['message']), /held by other code without an end to its lease/);
    return true;
  });
  assert.equal(await server.admin.get('lock:foreign'), 'old code');
  await server.admin.del('lock:foreign');
});

test('acquire: a thousand names at once, each with its own lock and token', async () => {
  const names = Array.from({ length: 1_000 }, (_, i) => `many:${i}`);
  const all = await Promise.all(names.map((name) => locks.acquire(name)));
  assert.equal(new Set(all.map((lock) => lock.token)).size, 1_000);
  assert.deepEqual(
    all.map((lock) => lock.name),
    names,
  );
  const freed = await Promise.all(all.map((lock) => lock.release()));
  assert.ok(freed.every(Boolean));
});

test('acquire: two managers exclude each other', async () => {
  const other = await connect(server.url);
  const lock = await locks.acquire('both');
  assert.equal(await other.tryAcquire('both'), null);
  await lock.release();
  const theirs = await other.tryAcquire('both');
  assert.ok(theirs !== null);
  assert.equal(await locks.tryAcquire('both'), null);
  await other.close();
  const mine = await locks.tryAcquire('both');
  assert.ok(mine !== null, 'close released it');
  await mine.release();
});

test('close: releases what is held, refuses what waits, and may be called again', async () => {
  const manager = await connect(server.url);
  const held = await manager.acquire('close:held', { ttl: 60_000 });
  const blocker = await locks.acquire('close:waiting', { ttl: 60_000 });
  const waiting = manager.acquire('close:waiting', { wait: Number.POSITIVE_INFINITY });
  const refused = assert.rejects(waiting, { code: 'ERR_LOCK_CLOSED', lock: 'close:waiting' });
  await sleep(20);
  await Promise.all([manager.close(), manager.close()]);
  await refused;
  assert.equal(held.held, false);
  assert.equal(await held.release(), false);
  assert.equal(await server.admin.exists('lock:close:held'), 0);
  const owner = String(await server.admin.get('lock:close:waiting'));
  assert.ok(owner.startsWith(blocker.token), 'with the mark of who waited');
  await blocker.release();
  await manager.close();
  await assert.rejects(manager.acquire('a'), { code: 'ERR_LOCK_CLOSED' });
  await assert.rejects(manager.tryAcquire('a'), { code: 'ERR_LOCK_CLOSED' });
});

test('close: no promise stays open, whatever was under way', async () => {
  const manager = await connect(server.url);
  const some = await Promise.all([1, 2, 3].map((i) => manager.acquire(`open:${i}`)));
  const under = [
    ...some.map((lock) => lock.extend()),
    ...some.map((lock) => lock.release()),
    ...Array.from({ length: 50 }, (_, i) => manager.acquire(`open:${i % 5}`)),
    ...Array.from({ length: 50 }, (_, i) => manager.tryAcquire(`open:${i}`)),
  ];
  const results = Promise.allSettled(under);
  await manager.close();
  for (const result of await results) {
    if (result.status === 'rejected') assert.match(result.reason.code, /ERR_LOCK_(CLOSED|LOST)/);
  }
  await until(async () => (await server.admin.keys('lock:open:*')).length === 0, 'all released');
});

test('await using: a manager closes at the end of its scope', async () => {
  {
    await using manager = await connect(server.url);
    await manager.acquire('scoped', { ttl: 60_000 });
  }
  assert.equal(await server.admin.exists('lock:scoped'), 0);
});
