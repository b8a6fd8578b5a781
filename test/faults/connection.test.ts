/** The connection breaks, stays silent, or cannot be made. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { afterEach, beforeEach, test } from 'node:test';
import type { LockServerError } from 'holdfast';
import { connect, type LockManager, openOperations } from '../support/holdfast.js';
import { FaultProxy } from '../support/proxy.js';
import { freePort, RedisServer } from '../support/server.js';
import { reset } from '../support/sockets.js';
import { until } from '../support/wait.js';

let server: RedisServer;
let proxy: FaultProxy;
let locks: LockManager;

beforeEach(async () => {
  server = await RedisServer.start();
  proxy = await FaultProxy.start(server.port);
  // The proxy stops with the event loop: much shorter, and a stall would be a fault of its own.
  locks = await connect(proxy.url, { commandTimeout: 1_500, connectTimeout: 1_500 });
  // The server knows the scripts from here on: a request is executed when it arrives.
  const lock = await locks.acquire('warm-up');
  await lock.extend();
  await lock.release();
});

afterEach(async () => {
  await locks.close();
  assert.equal(openOperations(), 0);
  await proxy.stop();
  await server.stop();
});

/** The lock `name` is free, long before its lease of a minute would have ended. */
async function becomesFree(name: string): Promise<void> {
  await until(async () => (await server.admin.exists(`lock:${name}`)) === 0, `${name} to be free`);
}

const MINUTE = { ttl: 60_000 } as const;

test('connect: a refused connection is one clear error', async () => {
  const url = `redis://:s3cret@127.0.0.1:${await freePort()}`;
  await assert.rejects(connect(url), (error: Error & { code: string }) => {
    assert.equal(error.code, 'ERR_LOCK_CONNECTION');
    assert.match(error.message, /refused/i);
    assert.match(error.message, /127\.0\.0\.1:\d+/);
    assert.ok(!String(error.stack).includes('s3cret'));
    return true;
  });
});

test('connect: an unknown host is one clear error', async () => {
  await assert.rejects(connect('redis://no-such-host.invalid'), {
    code: 'ERR_LOCK_CONNECTION',
    message: /no-such-host\.invalid/,
  });
});

test('connect: a server that never answers is an error in time', async () => {
  proxy.blackhole = true;
  await assert.rejects(connect(proxy.url, { connectTimeout: 100 }), {
    code: 'ERR_LOCK_CONNECTION',
    message: /no connection within 100 ms/,
  });
});

test('connect: a server that has too many clients says so, and a manager comes back later', async () => {
  const lock = await locks.acquire('kept', MINUTE);
  const clients = (await server.admin.call('CLIENT', 'LIST')) as string;
  const count = clients.trim().split('\n').length;
  await server.admin.config('SET', 'maxclients', `${count}`);
  await assert.rejects(connect(server.url), {
    code: 'ERR_LOCK_SERVER',
    serverCode: 'ERR',
    // There is no advice, and no key.
    message: /: the server says ERR max number of clients reached$/,
  });
  // Its place is taken before it is back.
  await server.admin.config('SET', 'maxclients', '1');
  proxy.cut();
  await assert.rejects(locks.acquire('other', { wait: 100 }), /max number of clients reached/);
  await server.admin.config('SET', 'maxclients', '10000');
  await (await locks.acquire('other')).release();
  assert.equal(lock.held, true);
  await lock.release();
});

test('connect: what a server says before it hangs up is the error', async () => {
  // As Redis says it to a client from another machine, and closes the connection without reading.
  const words = '-DENIED Redis is running in protected mode because protected mode is enabled\r\n';
  for (const isReset of [false, true]) {
    const closed = createServer((socket) => {
      socket.on('error', () => {});
      if (isReset) socket.write(words, () => socket.once('data', () => reset(socket)));
      else socket.resume().end(words);
    });
    await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve));
    const { port } = closed.address() as AddressInfo;
    await assert.rejects(connect(`redis://127.0.0.1:${port}`), (error: LockServerError) => {
      assert.deepEqual([error.code, error.serverCode], ['ERR_LOCK_SERVER', 'DENIED']);
      assert.match(error.message, /DENIED Redis is running in protected mode/);
      assert.doesNotMatch(error.message, /TLS/);
      return true;
    });
    await new Promise((resolve) => closed.close(resolve));
  }
});

test('connect: a socket file that is not there is one clear error', async () => {
  await assert.rejects(connect('unix:///no/such/socket'), {
    code: 'ERR_LOCK_CONNECTION',
    message: /\/no\/such\/socket/,
  });
});

test('acquire: a connection that was cut is replaced unseen', async () => {
  for (let round = 0; round < 5; round++) {
    proxy.cut();
    const lock = await locks.acquire(`cut:${round}`);
    await lock.release();
  }
});

test('acquire: the reply is lost after execution, and the caller still gets the lock', async () => {
  proxy.loseReplies = true;
  const pending = locks.acquire('lost', MINUTE);
  await until(async () => (await server.admin.exists('lock:lost')) === 1, 'the lock to be taken');
  const owner = await server.admin.get('lock:lost');
  proxy.loseReplies = false;
  proxy.cut();
  const lock = await pending;
  assert.equal(lock.token, owner, 'the same token: nothing was taken twice');
  assert.equal(await lock.release(), true);
});

test('tryAcquire: the reply stays lost, the caller gets an error and nobody keeps the lock', async () => {
  proxy.loseReplies = true;
  const pending = locks.tryAcquire('orphan', MINUTE);
  await assert.rejects(pending, { code: 'ERR_LOCK_CONNECTION', lock: 'orphan' });
  assert.equal(await server.admin.exists('lock:orphan'), 1, 'it had been taken');
  proxy.loseReplies = false;
  await becomesFree('orphan');
});

test('acquire: fails at its deadline while the server is away', async () => {
  proxy.refuse = true;
  proxy.cut();
  const begin = performance.now();
  await assert.rejects(locks.acquire('away', { wait: 2_000 }), {
    code: 'ERR_LOCK_CONNECTION',
    message: new RegExp(`127\\.0\\.0\\.1:${proxy.port}`),
  });
  assert.ok(performance.now() - begin >= 1_990);
});

test('acquire: while the server is away a short wait ends in time, and commandTimeout bounds an attempt', async () => {
  const manager = await connect(proxy.url, { commandTimeout: 60_000 });
  const gone = once(manager, 'disconnect');
  proxy.refuse = true;
  proxy.cut();
  await gone;
  const away = {
    code: 'ERR_LOCK_CONNECTION',
    message: new RegExp(`127\\.0\\.0\\.1:${proxy.port}`),
  };
  const begin = performance.now();
  await Promise.all([
    assert.rejects(manager.acquire('away', { wait: 300 }), away),
    assert.rejects(manager.acquire(['away:1', 'away:2'], { wait: 300 }), away),
    assert.rejects(
      manager.request('away', { wait: 300 }, () => {}),
      away,
    ),
  ]);
  const took = performance.now() - begin;
  assert.ok(took >= 295 && took < 30_000, `${took} ms`);
  const attempts = [manager.tryAcquire('a'), manager.tryAcquire(['b', 'c'])];
  proxy.refuse = false;
  for (const attempt of attempts) assert.equal(await (await attempt)?.release(), true);
  await manager.close();
});

test('acquire: of several names waits as long for a server that is away as of one', async () => {
  proxy.blackhole = true;
  const waiting = locks.acquire(['several:1', 'several:2'], { wait: 60_000, ttl: 60_000 });
  const briefly = locks.acquire(['several:3', 'several:4'], { wait: 100 });
  await assert.rejects(briefly, { code: 'ERR_LOCK_CONNECTION' });
  const once = locks.tryAcquire(['several:3', 'several:4']);
  await assert.rejects(once, { code: 'ERR_LOCK_CONNECTION' });
  proxy.blackhole = false;
  assert.equal(await (await waiting).release(), true);
  for (const name of ['several:1', 'several:2']) await becomesFree(name);
});

test('acquire: of several names ends with its signal though the server is silent', async () => {
  proxy.blackhole = true;
  const signal = AbortSignal.timeout(50);
  const began = performance.now();
  const ended = locks.acquire(['several:1', 'several:2'], { ...MINUTE, signal });
  await assert.rejects(ended, (error) => error === signal.reason);
  assert.ok(performance.now() - began < 1_400, 'ahead of commandTimeout');
  proxy.blackhole = false;
  for (const name of ['several:1', 'several:2']) await becomesFree(name);
});

test('acquire: a blackhole of several seconds is survived', async () => {
  proxy.blackhole = true;
  const pending = locks.acquire('blackhole', { wait: 20_000 });
  await until(() => proxy.accepted >= 3, 'attempts to connect again');
  proxy.blackhole = false;
  proxy.cut();
  const lock = await pending;
  assert.equal(await lock.release(), true);
});

for (const options of [
  { renew: true },
  { renew: false },
  { renew: false, leaveToExpire: true },
  { renew: false, mode: 'shared', limit: 1 },
] as const) {
  test(`acquire: a claim that is cut off is sent again, with ${JSON.stringify(options)}`, async () => {
    const other = await connect(server.url);
    try {
      const held = await other.acquire('claimed');
      const waiting = locks.acquire('claimed', { ...MINUTE, wait: 20_000, ...options });
      await until(
        async () => (await server.admin.zcard('{lock:claimed}:queue')) === 1,
        'the waiter',
      );
      let cut = false;
      proxy.onRequest = (chunk) => {
        // Unlike what asks for a lock, what claims it does not name the queue.
        if (cut || !/:(waiters|shared)\b/.test(String(chunk)) || chunk.includes(':queue')) return;
        cut = true;
        proxy.cut();
      };
      await held.release();
      const lock = await waiting;
      await until(() => cut, 'the claim');
      // Until then it is the lock's for 3 seconds.
      await until(() => !lock.held || lock.remaining > 50_000, 'the claim to be answered');
      assert.equal(lock.held, true, String(lock.signal.reason));
      assert.equal(await lock.release(), true);
    } finally {
      proxy.onRequest = undefined;
      await other.close();
    }
  });
}

test('release: the reply is lost after execution, and it still answers true', async () => {
  const lock = await locks.acquire('release', MINUTE);
  proxy.loseReplies = true;
  const pending = lock.release();
  await becomesFree('release');
  proxy.loseReplies = false;
  proxy.cut();
  assert.equal(await pending, true);
});

test('request: what its callback returned counts, also if the release has to be made up for', async () => {
  const result = await locks.request('done', MINUTE, async () => {
    proxy.blackhole = true;
    return 42;
  });
  assert.equal(result, 42);
  proxy.blackhole = false;
  await becomesFree('done');
});

test('release: fails in time while the server is away, and is made up for later', async () => {
  const lock = await locks.acquire('later', MINUTE);
  proxy.blackhole = true;
  await assert.rejects(lock.release(), { code: 'ERR_LOCK_CONNECTION', lock: 'later' });
  assert.equal(lock.held, false);
  assert.equal(await server.admin.exists('lock:later'), 1);
  proxy.blackhole = false;
  proxy.cut();
  await becomesFree('later');
});

test('extend: the reply is lost after execution, and it is made sure of', async () => {
  const lock = await locks.acquire('extend', { ttl: 5_000 });
  proxy.loseReplies = true;
  const pending = lock.extend(60_000);
  await until(async () => (await server.admin.pttl('lock:extend')) > 50_000, 'the extension');
  proxy.loseReplies = false;
  proxy.cut();
  await pending;
  assert.ok(lock.remaining > 50_000);
  await lock.release();
});

test('extend: fails in time while the server is away, and the lock is still held', async () => {
  const lock = await locks.acquire('still', MINUTE);
  proxy.blackhole = true;
  await assert.rejects(lock.extend(), { code: 'ERR_LOCK_CONNECTION' });
  assert.equal(lock.held, true);
  proxy.blackhole = false;
  proxy.cut();
  assert.equal(await lock.release(), true);
});

test('close: ends in time while the server is away', async () => {
  await locks.acquire('close', MINUTE);
  proxy.blackhole = true;
  const waiting = locks.acquire('other', { wait: Number.POSITIVE_INFINITY });
  const refused = assert.rejects(waiting, { code: 'ERR_LOCK_CLOSED' });
  const begin = performance.now();
  await locks.close();
  await refused;
  assert.ok(performance.now() - begin < 10_000);
});

test('close: an acquire in flight leaves no lock behind', async () => {
  for (let round = 0; round < 50; round++) {
    const manager = await connect(proxy.url);
    const names = [1, 2, 3].map((i) => `flight:${round}:${i}`);
    const under = Promise.allSettled(names.map((name) => manager.acquire(name, MINUTE)));
    await Promise.resolve();
    await manager.close();
    await under;
  }
  assert.deepEqual(await server.admin.keys('lock:flight:*'), []);
});

test('a server that hangs up right after its handshake: no manager stays dead', async () => {
  for (let round = 0; round < 20; round++) {
    proxy.cutAfterReplies = 2;
    const manager = await connect(proxy.url).catch(() => undefined);
    proxy.cutAfterReplies = Number.POSITIVE_INFINITY;
    if (manager === undefined) continue;
    const lock = await manager.acquire('hang up', { wait: 20_000 });
    assert.equal(await lock.release(), true);
    await manager.close();
  }
});

test('a late answer is never taken for that of a later operation', async () => {
  await server.admin.set('lock:theirs', 'somebody', 'PX', 600_000);
  proxy.delayMs = 20;
  for (let round = 0; round < 30; round++) {
    await server.admin.set('lock:contended', 'somebody', 'PX', 60_000);
    const signal = AbortSignal.timeout(30 + round);
    const given = locks.acquire('contended', { signal, wait: 5_000 });
    setTimeout(() => server.admin.del('lock:contended'), 20 + round);
    const lock = await given.catch(() => undefined);
    // The name of the operation that ended is free; the next one takes it.
    const theirs = await locks.tryAcquire('theirs');
    assert.equal(theirs, null);
    await lock?.release();
  }
  proxy.delayMs = 0;
  await becomesFree('contended');
});
