/** Fences strictly increase, whatever happens to the data; nothing stays in Redis for ever. */

import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { connect, type LockManager } from '../support/holdfast.js';
import { RedisServer, serverVersion } from '../support/server.js';
import { sleep } from '../support/wait.js';

let server: RedisServer;
let locks: LockManager;
let last: number;

before(async () => {
  const debug = serverVersion().startsWith('6.') ? [] : ['--enable-debug-command', 'yes'];
  server = await RedisServer.start({ args: debug });
  locks = await connect(server.url);
});

after(async () => {
  await locks.close();
  await server.stop();
});

beforeEach(() => {
  last = 0;
});

/** Takes and releases the lock; its fence must exceed every one before. */
async function next(manager = locks): Promise<number> {
  const lock = await manager.acquire('fence', { ttl: 1_000, wait: 20_000 });
  assert.ok(lock.fence > last, `${lock.fence} after ${last}`);
  assert.ok(Number.isSafeInteger(lock.fence));
  last = lock.fence;
  await lock.release();
  return lock.fence;
}

test('fences rise across FLUSHALL', async () => {
  for (let round = 0; round < 5; round++) {
    await next();
    await server.admin.flushall();
  }
  await next();
});

test('fences rise when the counter alone is evicted', async () => {
  await next();
  await server.admin.del('holdfast:fence');
  await next();
});

test('fences rise across a restart without persistence', async () => {
  for (let round = 0; round < 3; round++) {
    await next();
    await server.restart();
  }
  await next();
});

test('fences rise when data that lost grants comes back (failover, restored backup)', async () => {
  await next();
  const stale = await server.admin.get('holdfast:fence');
  for (let round = 0; round < 5; round++) await next();
  await server.admin.set('holdfast:fence', String(stale));
  await server.admin.call('DEBUG', 'CHANGE-REPL-ID');
  // Promoted in place, on a connection that stays. The manager probes at most once a second, so it is idle for longer than
  // that, must probe, and must not use a fence that was granted under the old replication id.
  await sleep(1_100);
  await next();
});

test('every key but the counter has an end, and after release only the counter remains', async () => {
  await server.admin.flushall();
  const lock = await locks.acquire('keys', { ttl: 5_000 });
  await lock.extend(6_000);
  for (const [key, { ttl, type }] of Object.entries(await server.keyspace())) {
    const right = key === 'holdfast:fence' ? ttl === -1 : ttl > 0 && ttl <= 6_000;
    assert.ok(right, `${key} lasts ${ttl} ms`);
    assert.equal(type, 'string');
  }
  await lock.release();
  assert.deepEqual(Object.keys(await server.keyspace()), ['holdfast:fence']);
});

test('names that are used once leave nothing behind', async () => {
  await server.admin.flushall();
  for (let batch = 0; batch < 100; batch += 1) {
    const names = Array.from({ length: 1_000 }, (_, i) => `order:${batch * 1_000 + i}`);
    const all = await Promise.all(names.map((name) => locks.acquire(name)));
    await Promise.all(all.map((lock) => lock.release()));
  }
  assert.deepEqual(Object.keys(await server.keyspace()), ['holdfast:fence']);
});
