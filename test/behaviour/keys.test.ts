/** The keys of locks on a server of Redis, and managers beside code that changes these keys. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect, type LockManager } from '../support/holdfast.js';
import { serverOfFile } from '../support/server-of-file.js';

let locks: LockManager;

const server = serverOfFile({}, async () => {
  locks = await connect(server.url);
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
  assert.equal(await server.admin.exists('lock:plain'), 0);
});

test('acquire: a value of other code is respected, even without an expiry', async () => {
  for (const value of ['old code', '']) {
    await server.admin.set('lock:foreign', value);
    assert.equal(await locks.tryAcquire('foreign'), null);
    await assert.rejects(
      locks.acquire('foreign', { wait: 50 }),
      (error: Record<string, unknown>) => {
        assert.equal(error['holderLabel'], undefined);
        assert.equal(error['remaining'], undefined);
        assert.match(String(error['message']), /held by other code, and its lease has no end/);
        return true;
      },
    );
    const cannot = { code: 'ERR_LOCK_TIMEOUT', message: /held by other code/ };
    await assert.rejects(locks.acquire('foreign', { steal: true }), cannot);
    assert.equal(await server.admin.get('lock:foreign'), value);
  }
  await server.admin.del('lock:foreign');
});

test('extend: sets the lease in Redis, and never shortens it', async () => {
  const lock = await locks.acquire('extend', { ttl: 5_000 });
  for (const ttl of [60_000, 50]) {
    await lock.extend(ttl);
    assert.ok((await server.admin.pttl('lock:extend')) > 50_000);
  }
  await lock.release();
});

test('release and extend: fail once the key was deleted', async () => {
  const lock = await locks.acquire('deleted');
  await server.admin.del('lock:deleted');
  assert.equal(await lock.release(), false);
  const other = await locks.acquire('deleted');
  await server.admin.del('lock:deleted');
  await assert.rejects(other.extend(), { code: 'ERR_LOCK_LOST' });
  assert.equal(other.held, false);
});

test("release and extend: leave another owner's key alone", async () => {
  const lock = await locks.acquire('taken');
  await server.admin.set('lock:taken', 'somebody', 'PX', 60_000);
  assert.equal(await lock.release(), false);
  assert.equal(await server.admin.get('lock:taken'), 'somebody');
  const other = await locks.acquire('replaced');
  await server.admin.set('lock:replaced', 'somebody', 'PX', 1_000);
  await assert.rejects(other.extend(60_000), { code: 'ERR_LOCK_LOST' });
  assert.ok((await server.admin.pttl('lock:replaced')) <= 1_000);
});

test('close: deletes the keys of its locks, and leaves those of others', async () => {
  const manager = await connect(server.url);
  await manager.acquire('close:own', { ttl: 60_000 });
  const other = await locks.acquire('close:other', { ttl: 60_000 });
  const waiting = manager.acquire('close:other', { wait: Number.POSITIVE_INFINITY });
  const refused = assert.rejects(waiting, { code: 'ERR_LOCK_CLOSED', lock: 'close:other' });
  await manager.close();
  await refused;
  assert.equal(await server.admin.exists('lock:close:own'), 0);
  assert.ok(String(await server.admin.get('lock:close:other')).startsWith(other.token));
  await other.release();
});
