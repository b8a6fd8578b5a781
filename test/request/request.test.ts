/** `request`: what its caller is told of a lock that was lost. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { afterEach, test } from 'node:test';
import { closeManagers, connect, holdfast, type Lock } from '../support/holdfast.js';
import { serverOfFile } from '../support/server-of-file.js';

const server = serverOfFile();

afterEach(async () => {
  await closeManagers();
  await server.admin.flushall();
});

/** Loses the lock of a request as its callback ends: only the release can find that out. */
const loseAtEnd = async () => {
  await server.admin.set('lock:x', 'other code');
  return 7;
};

for (const names of ['x', ['w', 'x']] as const) {
  test(`a loss of ${names} that only the release finds out rejects with the result`, async () => {
    const locks = await connect(server.url);
    await assert.rejects(locks.request(names, {}, loseAtEnd), (error) => {
      assert.ok(error instanceof holdfast.LockLostError, `${error}`);
      assert.deepEqual([error.lock, error.reason, error.result], ['x', 'expired', 7]);
      return true;
    });
    assert.equal(await server.admin.get('lock:x'), 'other code');
  });
}

test('a lock that its callback has released itself is not lost', async () => {
  const locks = await connect(server.url);
  const result = await locks.request('x', {}, async (lock) => {
    assert.equal(await lock.release(), true);
    return 7;
  });
  assert.equal(result, 7);
});

test('a release that the callback has begun is awaited, and what it finds out is a loss', async () => {
  const locks = await connect(server.url);
  const releases: Promise<boolean>[] = [];
  const begin = async (end: () => Promise<unknown>) =>
    await locks.request('x', {}, async (lock) => {
      await end();
      releases.push(lock.release());
      return 7;
    });
  await assert.rejects(begin(loseAtEnd), (error) => {
    assert.ok(error instanceof holdfast.LockLostError, `${error}`);
    assert.deepEqual([error.lock, error.reason, error.result], ['x', 'expired', 7]);
    return true;
  });
  await server.admin.del('lock:x');
  assert.equal(await begin(async () => {}), 7);
  assert.equal(await server.admin.exists('lock:x'), 0, 'it is released when the request ends');
  assert.deepEqual(await Promise.all(releases), [false, true]);
});

test('all who wait for a release under way get its answer', async () => {
  const locks = await connect(server.url);
  const lock = await locks.acquire('x');
  const released = lock.release();
  await Promise.all([lock[Symbol.asyncDispose](), lock[Symbol.asyncDispose]()]);
  assert.equal(await released, true);
});

test('without awaitRelease the event tells of a loss that only the release finds out', async () => {
  const locks = await connect(server.url);
  const lost = once(locks, 'lost');
  assert.equal(await locks.request('x', { awaitRelease: false }, loseAtEnd), 7);
  const [lock, error] = (await lost) as [Lock, Error];
  assert.equal(lock.name, 'x');
  assert.ok(error instanceof holdfast.LockLostError && error.reason === 'expired', `${error}`);
});
