/** Releases that nobody waits for. */

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { connect, type LockManager, openOperations } from '../support/holdfast.js';
import { FaultProxy } from '../support/proxy.js';
import { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';

let server: RedisServer;
let proxy: FaultProxy;
let locks: LockManager;

before(async () => {
  server = await RedisServer.start();
  proxy = await FaultProxy.start(server.port);
});

after(async () => {
  await proxy.stop();
  await server.stop();
});

beforeEach(async () => {
  locks = await connect(proxy.url, { awaitRelease: false });
});

afterEach(async () => {
  proxy.blackhole = false;
  await locks.close();
  assert.equal(openOperations(), 0);
  await server.admin.flushall();
});

const isHeld = async () => (await server.admin.exists('lock:x')) === 1;

/** From here on the server gets nothing: only what waits for no answer ends before the command timeout. */
const silence = () => {
  proxy.blackhole = true;
};

const ends: Record<string, () => Promise<unknown>> = {
  'a request': () => locks.request('x', silence),
  'a request of several names': () => locks.request(['x', 'y'], silence),
  'a request for a share': () => locks.request('x', { mode: 'shared' }, silence),
  'a nested request': () =>
    locks.request('x', () => locks.request('x', { reentrant: true }, silence)),
  runOnce: () => locks.runOnce('x', { slot: 'now' }, silence),
  'a block': async () => {
    await using _ = await locks.acquire('x');
    silence();
  },
  'a block with several names': async () => {
    await using _ = await locks.acquire(['x', 'y']);
    silence();
  },
};

for (const [what, run] of Object.entries(ends)) {
  test(`the end of ${what} does not wait for the server`, async () => {
    locks.on('warning', ({ message }) => assert.fail(message));
    await run();
    assert.ok(openOperations() > 0, 'the release is under way');
    assert.ok(await isHeld());
    proxy.blackhole = false;
    await until(async () => !(await isHeld()), 'the release, which is repeated');
  });
}

test('an explicit release waits', async () => {
  const lock = await locks.acquire('x');
  assert.equal(await lock.release(), true);
  assert.equal(await isHeld(), false);
  await locks.request('x', async (outer) => {
    await locks.request('x', { reentrant: true }, async (inner) => {
      assert.equal(await outer.release(), true);
      assert.equal(await inner.release(), false, 'the lock was released before');
      assert.equal(await isHeld(), false);
    });
  });
});

test('a call may ask for the other way', async () => {
  await locks.request('x', { awaitRelease: true }, () => {});
  assert.equal(openOperations(), 0);
  assert.equal(await isHeld(), false);
});

test('the next callers of the manager follow on the connection', async () => {
  let last = 0;
  for (let i = 0; i < 200; i++) {
    await locks.request('x', { wait: 60_000 }, ({ fence }) => {
      assert.ok(fence > last);
      last = fence;
    });
  }
  assert.equal(locks.stats().timedOut, 0);
});

test('closing waits for the releases under way', async () => {
  await Promise.all(Array.from({ length: 50 }, (_, i) => locks.request(`x:${i}`, () => {})));
  await locks.close();
  assert.deepEqual(await server.admin.keys('lock:x:*'), []);
});

test('an error of the release is a warning with the name of the lock', async (t) => {
  const user = (...rules: string[]) => server.admin.call('ACL', 'SETUSER', 'app', ...rules);
  await user('on', '>p', '~*', '&*', '+@all');
  const own = await connect(proxy.url.replace('//', '//app:p@'), { awaitRelease: false });
  t.after(async () => {
    await user('+@all');
    await own.close();
  });
  const warned = new Promise<{ code: string; lock?: string | undefined; message: string }>(
    (resolve) => own.once('warning', resolve),
  );
  await own.request('x', () => user('-@write', '-@scripting'));
  const { code, lock, message } = await warned;
  assert.deepEqual([code, lock], ['WARN_LOCK_UNRELEASED', 'x']);
  assert.match(message, /NOPERM/);
});

test('a quorum is released so, too', async () => {
  const servers = await RedisServer.startSeveral(3);
  const quorum = await connect(
    { quorum: servers.map(({ url }) => url) },
    { longestLease: 0, awaitRelease: false },
  );
  for (let i = 0; i < 20; i++) await quorum.request('x', () => {});
  await quorum.close();
  for (const each of servers) {
    assert.equal(await each.admin.exists('lock:x'), 0);
    await each.stop();
  }
});
