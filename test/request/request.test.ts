/** `request`: what its caller is told of a lock that was lost. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { afterEach, test } from 'node:test';
import {
  closeManagers,
  connect,
  holdfast,
  type Lock,
  type LockManager,
} from '../support/holdfast.js';
import { serverOfFile } from '../support/server-of-file.js';
import { until } from '../support/wait.js';

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

/** A manager that awaits no release, and the reasons of the losses that it has told of. */
async function unawaiting(): Promise<[LockManager, readonly string[]]> {
  const locks = await connect(server.url, { awaitRelease: false });
  const reasons: string[] = [];
  locks.on('lost', (_lock, { reason }) => reasons.push(reason));
  return [locks, reasons];
}

test('without awaitRelease a loss that was told before the release is told once', async () => {
  const [locks, reasons] = await unawaiting();
  await using lock = await locks.acquire('x');
  const request = locks.request('y', {}, async ({ signal }) => {
    await Promise.all([locks.forceRelease('x'), locks.forceRelease('y')]);
    await until(() => signal.aborted && lock.signal.aborted, 'both losses');
  });
  await assert.rejects(request, { code: 'ERR_LOCK_LOST', reason: 'stolen' });
  await lock[Symbol.asyncDispose]();
  await locks.close();
  assert.deepEqual(reasons, ['stolen', 'stolen']);
});

test('without awaitRelease a loss is told once, however often the lock is given back', async () => {
  const [locks, reasons] = await unawaiting();
  const lock = await locks.acquire('x');
  await loseAtEnd();
  await lock[Symbol.asyncDispose]();
  await until(() => reasons.length > 0, 'the event');
  await lock[Symbol.asyncDispose]();
  await locks.close();
  assert.deepEqual(reasons, ['expired']);
});

test('without awaitRelease the end of a lock that is left to expire is no loss', async () => {
  const [locks, reasons] = await unawaiting();
  const left = { renew: false, ttl: 50 };
  const stopped = await locks.acquire('x', left);
  await stopped.stopRenewing();
  const leftBefore = await locks.acquire('y', { ...left, leaveToExpire: true });
  await until(() => !stopped.held && !leftBefore.held, 'the end of both leases');
  await Promise.all([stopped[Symbol.asyncDispose](), leftBefore[Symbol.asyncDispose]()]);
  await locks.close();
  assert.deepEqual(reasons, []);
});

test('without awaitRelease a loss of which a release has told its caller is no event', async () => {
  const [locks, reasons] = await unawaiting();
  const told = locks.request('x', {}, async (lock) => {
    await loseAtEnd();
    assert.equal(await lock.release(), false);
  });
  await assert.rejects(told, { code: 'ERR_LOCK_LOST', reason: 'expired' });
  await server.admin.del('lock:x');
  const untold = locks.request('x', {}, async (lock) => {
    await loseAtEnd();
    void lock.release();
    return 7;
  });
  assert.equal(await untold, 7);
  await locks.close();
  assert.deepEqual(reasons, ['expired'], 'nobody but the event has told of the second loss');
});

test('the end of its manager is a loss, also for a callback that releases after it', async () => {
  const locks = await connect(server.url);
  const request = locks.request('x', {}, async (lock) => {
    await locks.close();
    assert.equal(await lock.release(), false);
    return 7;
  });
  await assert.rejects(request, { code: 'ERR_LOCK_LOST', reason: 'closed', result: 7 });
});

test('options behind the callback are refused, and the callback is not called', async () => {
  const locks = await connect(server.url);
  const request = locks.request as unknown as (...args: unknown[]) => Promise<unknown>;
  const wrong = request.call(locks, 'x', () => assert.fail('called'), { ttl: 1_000 });
  await assert.rejects(wrong, TypeError);
  assert.equal(await server.admin.exists('lock:x'), 0);
});

test('of several names none may begin with a hyphen', async () => {
  const locks = await connect(server.url);
  const request = locks.request(['a', '-b'], {}, () => assert.fail('called'));
  await assert.rejects(request, /must not begin with a hyphen/);
});
