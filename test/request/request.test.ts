/** `request`: what its caller is told of a lock that was lost. */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { closeManagers, connect, holdfast } from '../support/holdfast.js';
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

test('without awaitRelease the release tells nobody', async () => {
  const locks = await connect(server.url);
  assert.equal(await locks.request('x', { awaitRelease: false }, loseAtEnd), 7);
});
