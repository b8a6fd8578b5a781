/** The differences between `holdfast/redlock` and node-redlock 5, as docs/redlock.md lists them. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import * as drop from 'holdfast/redlock';
import { ExecutionError, Lock, Redlock, ResourceLockedError } from 'holdfast/redlock';
import { Cluster as ClusterClient, type Redis } from 'ioredis';
import { run } from '../../support/child.js';
import { Cluster } from '../../support/cluster.js';
import { holdfast, openOperations } from '../../support/holdfast.js';
import { withoutDeletion } from '../../support/least-rights.js';
import { RedisServer } from '../../support/server.js';
import { sleep, until } from '../../support/wait.js';
import { threeServers } from '../../three-servers.js';
import { clientOf, errorOf } from './implementations.js';

const LONG_MS = 60_000;
const once = { retryCount: 0 };

const three = threeServers();
const { client } = three;

after(() => assert.equal(openOperations(), 0));

const open = (settings: object = {}) => new Redlock([client()], settings);
const openThree = (settings: object = {}) =>
  new Redlock(
    three.servers.map((each) => client(each)),
    settings,
  );

/** The number of holdfast's connections to a server. */
async function connections(): Promise<number> {
  const listed = (await three.server.admin.client('LIST')) as string;
  return listed.split('\n').filter((line) => line.includes(' name=holdfast ')).length;
}

test('one package by two names: import and require have the same classes', async () => {
  const imported = await import('holdfast/redlock');
  assert.equal(imported.default, Redlock);
  assert.equal(drop.default, Redlock);
  assert.equal(imported.ExecutionError, ExecutionError);
});

test('beside old code a waiter tries again by itself, as often as the settings say', async () => {
  const besideOldCode = { retryCount: 3, retryDelay: 30, retryJitter: 10, besideOldCode: true };
  const redlock = open(besideOldCode);
  const { admin } = three.server;
  await admin.set('beside', 'old code');
  const { attempts } = await errorOf(redlock.acquire(['beside'], LONG_MS));
  assert.equal(attempts.length, 4);
  for (const { votesAgainst } of await Promise.all(attempts)) {
    assert.ok([...votesAgainst.values()].every((vote) => vote instanceof ResourceLockedError));
  }
  const patient = { ...besideOldCode, retryCount: -1 };
  const waiting = redlock.acquire(['beside', 'beside 2'], LONG_MS, patient);
  await sleep(50);
  assert.equal(await admin.exists('{beside}:queue'), 0);
  await admin.del('beside');
  const lock = await waiting;
  assert.equal(await admin.get('beside 2'), lock.value);
  await lock.release();
  assert.equal(await redlock.using(['beside'], 1_000, async () => 'run'), 'run');
});

test('a routine of using that ends its clients, or whose release was replaced, keeps its own error', async () => {
  // Another object keeps the manager of both open.
  const other = open();
  await (await other.acquire(['other'], LONG_MS)).release();
  const failure = new Error('of the routine');
  const ending = open();
  const run = ending.using(['ending'], LONG_MS, async () => {
    await ending.quit();
    throw failure;
  });
  await assert.rejects(run, failure);
  const { admin } = three.server;
  assert.equal(await admin.exists('ending'), 0);
  const spied = open();
  spied.release = (() => undefined) as never;
  await assert.rejects(
    spied.using(['spied'], 1_000, () => Promise.reject(failure)),
    failure,
  );
  assert.equal(await spied.using(['spied 2'], 1_000, async () => 'run'), 'run');
  await spied.quit();
  await other.quit();
});

test('a database of its own, as the fork of sesamecare has it: the locks are kept there', async () => {
  const [first, third, last] = [0, 3, 15].map((db) => client(three.server, { db })) as [
    Redis,
    Redis,
    Redis,
  ];
  const wanted: [Redis, unknown, Redis][] = [
    [first, 3, third],
    [third, 0, first],
    [third, 15, last],
    // The fork takes it for 0.
    [third, 16, first],
    [third, undefined, third],
  ];
  for (const [own, db, where] of wanted) {
    const redlock = new Redlock([own], { db } as object);
    const lock = await redlock.acquire(['tea'], LONG_MS);
    assert.equal(await where.get('tea'), lock.value);
    const named = new Lock(redlock, ['tea'], lock.value, [], lock.expiration);
    const extended = await named.extend(2 * LONG_MS);
    assert.ok((await where.pttl('tea')) > LONG_MS);
    await extended.release();
    assert.equal(await where.exists('tea'), 0);
    // A lock of the fork, by its value alone.
    await where.set('tea', 'old code', 'PX', LONG_MS);
    await new Lock(redlock, ['tea'], 'old code', [], Date.now() + LONG_MS).release();
    assert.equal(await where.exists('tea'), 0);
    await own.set('elsewhere', '1');
    assert.equal(await own.get('elsewhere'), '1');
  }
});

test('a waiter is queued: the release wakes it, not the next retry', async () => {
  const redlock = open({ retryCount: 1, retryDelay: LONG_MS, retryJitter: 0 });
  const lock = await redlock.acquire(['a'], LONG_MS);
  const told: string[] = [];
  const waiting = [1, 2, 3].map(async (i) => {
    const next = await redlock.acquire(['a'], LONG_MS);
    told.push(`${i}`);
    await next.release();
  });
  await until(async () => (await three.server.admin.zcard('{a}:queue')) > 0, 'the first waiter');
  const began = performance.now();
  await lock.release();
  await Promise.all(waiting);
  assert.deepEqual(told, ['1', '2', '3']);
  assert.ok(performance.now() - began < LONG_MS / 4);
});

test('who has waited has the whole duration before it', async () => {
  const redlock = open({ retryCount: 100 });
  const lock = await redlock.acquire(['a'], LONG_MS);
  const waiting = redlock.acquire(['a'], 5_000);
  await sleep(1_200);
  const released = Date.now();
  await lock.release();
  const next = await waiting;
  assert.ok(next.expiration > released + 4_500);
  assert.ok((await three.server.admin.pttl('a')) > 4_000);
  await next.release();
});

test('a lock that is lost is released at once, without retries and without an error', async () => {
  const redlock = open({ retryCount: -1 });
  const told: Error[] = [];
  redlock.on('error', (error) => told.push(error));
  const lock = await redlock.acquire(['a'], LONG_MS);
  await three.server.admin.del('a');
  const { attempts } = await lock.release();
  const stats = await attempts[0];
  assert.equal(stats?.votesFor.size, 0);
  assert.ok([...(stats?.votesAgainst.values() ?? [])][0] instanceof ResourceLockedError);
  assert.equal(told.length, 1);
  const again = await lock.release();
  assert.equal((await again.attempts[0])?.votesFor.size, 0);
});

test('a lock that is lost is not extended, and that is not retried', async () => {
  const redlock = open({ retryCount: -1 });
  const lock = await redlock.acquire(['a'], LONG_MS);
  await three.server.admin.del('a');
  const error = await errorOf(lock.extend(LONG_MS));
  assert.ok(error instanceof ExecutionError);
  assert.equal(error.attempts.length, 1);
});

test('an extension never shortens a lock', async () => {
  const lock = await open().acquire(['a'], LONG_MS);
  const extended = await lock.extend(1_000);
  assert.ok(extended.expiration > Date.now() + LONG_MS / 2);
  await extended.release();
});

test('using: the own error of a routine that has lost its lock wins', async () => {
  const wrong = new Error('wrong');
  const failed = open({ retryCount: -1 }).using(['a'], 700, async (signal) => {
    await three.server.admin.del('a');
    await until(() => signal.aborted, 'the signal');
    throw wrong;
  });
  assert.equal(await errorOf(failed), wrong);
});

test('using: the result of a routine that has lost its lock comes with the error', async () => {
  const lost = open({ retryCount: -1 }).using(['a'], 700, async (signal) => {
    await three.server.admin.del('a');
    await until(() => signal.aborted, 'the signal');
    assert.ok(signal.error instanceof ExecutionError);
    return 42;
  });
  const error = await errorOf(lost);
  assert.ok(error instanceof ExecutionError);
  assert.equal(error.result, 42);
  assert.ok(error.cause instanceof holdfast.LockLostError);
});

test('using: the result of a routine whose lock may not be released comes with the error', async () => {
  const setUser = (...rules: string[]) =>
    three.server.admin.call('ACL', 'SETUSER', 'service', ...rules);
  await setUser('on', '>secret', '~*', '&*', '+@all');
  const denied = await withoutDeletion(three.server);
  const redlock = new Redlock([client(three.server, { username: 'service', password: 'secret' })]);
  const used = redlock.using(['a'], LONG_MS, async () => {
    await setUser(...denied);
    return 42;
  });
  const error = await errorOf(used);
  assert.ok(error instanceof ExecutionError);
  assert.equal(error.result, 42);
  assert.match(String(error.cause), /NOPERM/);
  await three.server.admin.call('ACL', 'DELUSER', 'service');
});

test('using: an event loop that is blocked for longer than the duration keeps the lock', async () => {
  await open().using(['a'], 700, async (signal) => {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_000);
    assert.equal(await three.server.admin.exists('a'), 1);
    await sleep(1);
    assert.equal(signal.aborted, false);
  });
});

test('using: a routine that is running when everything is ended keeps its lock to its own end', async () => {
  for (const end of ['quit', 'disconnect'] as const) {
    const own = client();
    const redlock = new Redlock([own]);
    const result = await redlock.using(['a'], 700, async (signal) => {
      if (end === 'quit') await redlock.quit();
      else own.disconnect();
      await sleep(1_200);
      assert.equal(await three.server.admin.exists('a'), 1);
      assert.equal(signal.aborted, false);
      return end;
    });
    assert.equal(result, end);
    assert.equal(await three.server.admin.exists('a'), 0);
  }
  await until(async () => (await connections()) === 0, 'the end of the connections');
});

test('quit: who waits gets nothing any more', async () => {
  const holder = open();
  const lock = await holder.acquire(['a'], LONG_MS);
  const redlock = open({ retryCount: -1 });
  const waiting = errorOf(redlock.acquire(['a'], LONG_MS));
  await until(async () => (await three.server.admin.zcard('{a}:queue')) > 0, 'the line');
  const other = redlock.using(['b'], 1_000, async () => {
    await redlock.quit();
    await lock.release();
    assert.ok((await waiting) instanceof ExecutionError);
  });
  await other;
  await until(async () => (await three.server.admin.exists('a')) === 0, 'the lock to be free');
});

test('an error has the cause: what happened, to which lock, on which server', async () => {
  const redlock = open({ retryCount: 1, retryDelay: 20 });
  const lock = await redlock.acquire(['a'], LONG_MS);
  const error = await errorOf(redlock.acquire(['a'], LONG_MS));
  assert.ok(error.cause instanceof holdfast.LockTimeoutError);
  assert.match((error.cause as Error).message, /^lock "a" was not free within [\d.]+m?s/);
  await three.server.admin.del('a');
  const lost = await errorOf(redlock.extend(lock, LONG_MS));
  const told = new Lock(open(once), ['a'], lock.value, [], Date.now() + LONG_MS);
  for (const { cause } of [lost, await errorOf(told.extend(LONG_MS))]) {
    assert.ok(cause instanceof holdfast.LockLostError);
    assert.match(cause.message, /^lock "a" .*127\.0\.0\.1:\d+.*acquire it again/);
  }
  await lock.release();
});

test('a server that is away: each attempt has the cause, and later it is found', async () => {
  const away = await RedisServer.start();
  await away.kill();
  const redlock = new Redlock([client(away)], { retryCount: 2, retryDelay: 10 });
  const error = await errorOf(redlock.acquire(['a'], LONG_MS));
  assert.ok(error instanceof ExecutionError);
  assert.equal(error.attempts.length, 3);
  for (const attempt of error.attempts) {
    const [reason] = (await attempt).votesAgainst.values();
    assert.equal(reason?.message, 'Connection is closed.');
    assert.ok(reason.cause instanceof holdfast.LockConnectionError);
  }
  assert.ok(error.cause instanceof holdfast.LockConnectionError);
  await away.start();
  const lock = await redlock.acquire(['a'], LONG_MS);
  await lock.release();
  await redlock.quit();
  await away.stop();
});

test('no error shows the password', async () => {
  const guarded = await RedisServer.start({ password: 's3cret/@:' });
  const redlock = new Redlock([client(guarded, { password: 'wr0ng/@:' })], once);
  const error = await errorOf(redlock.acquire(['a'], LONG_MS));
  const shown = [error, error.cause, await error.attempts[0]];
  // The clients among the votes show their own options.
  for (const each of shown) assert.doesNotMatch(String((each as Error).stack), /wr0ng|s3cret/);
  assert.match((error.cause as Error).message, /WRONGPASS/);
  await guarded.stop();
});

test('a service that makes a Redlock for every request has one connection all the same', async () => {
  const own = client();
  for (let i = 0; i < 20; i++) {
    const lock = await new Redlock([own]).acquire([`item:${i}`], LONG_MS);
    await lock.release();
  }
  await until(async () => (await connections()) === 1, 'those of earlier tests to end');
  own.disconnect();
  await until(async () => (await connections()) === 0, 'the end of the connection');
});

test('a Redlock that is forgotten with its client lets go of its connection', async () => {
  const use = async () => {
    const redlock = new Redlock([clientOf(three.server, { lazyConnect: true })]);
    await (await redlock.acquire(['a'], LONG_MS)).release();
    assert.ok((await connections()) > 0);
  };
  await use();
  await until(async () => {
    assert.ok(globalThis.gc !== undefined, 'run with --expose-gc');
    globalThis.gc();
    return (await connections()) === 0;
  }, 'the end of the connection');
});

test('a service that makes a Redlock for every request loses no memory', async () => {
  const source = `
    import { setImmediate as turn } from 'node:timers/promises'
    import { runInNewContext } from 'node:vm'
    import { setFlagsFromString } from 'node:v8'
    import { Redis } from 'ioredis'
    import Redlock from 'holdfast/redlock'
    setFlagsFromString('--expose-gc')
    const collect = runInNewContext('gc')
    const client = new Redis({ lazyConnect: true })
    async function used(requests) {
      for (let i = 0; i < requests; i += 1) {
        new Redlock([client])
        if (i % 1_000 === 0) await turn()
      }
      for (let i = 0; i < 5; i += 1) {
        collect()
        await turn()
      }
      return process.memoryUsage().heapUsed
    }
    const before = await used(5_000)
    console.log((await used(30_000) - before) / 30_000)
    client.disconnect()`;
  const { stdout, stderr } = await run(source);
  // A reference that stays takes some sixty bytes.
  assert.ok(Number.parseFloat(stdout) < 20, `${stdout} bytes for each; ${stderr}`);
});

test('a setting of an operation that is no number is that of the Redlock', async () => {
  const redlock = open({ retryCount: 0 });
  const lock = await redlock.acquire(['a'], LONG_MS);
  const began = performance.now();
  await errorOf(redlock.acquire(['a'], 1_000, { retryCount: undefined } as object));
  assert.ok(performance.now() - began < 1_000);
  await lock.release();
});

test('a lock outlasts the connection that acquired it, and is released by another', async () => {
  const own = client();
  const redlock = new Redlock([own], once);
  const locks = [await redlock.acquire(['a'], LONG_MS), await redlock.acquire(['b'], LONG_MS)];
  own.disconnect();
  await until(async () => (await connections()) === 0, 'the end of the connection');
  assert.equal(await three.server.admin.exists('a', 'b'), 2);
  await own.connect();
  const [first, second] = locks as [Lock, Lock];
  await first.release();
  await (await second.extend(LONG_MS)).release();
  assert.equal(await three.server.admin.exists('a', 'b'), 0);
});

test('after quit a lock cannot be released or extended: it stays until it expires', async () => {
  for (const redlock of [open(once), openThree(once)]) {
    const locks = [await redlock.acquire(['a'], LONG_MS), await redlock.acquire(['b'], LONG_MS)];
    await redlock.quit();
    const [first, second] = locks as [Lock, Lock];
    for (const attempt of [() => first.release(), () => second.extend(LONG_MS)]) {
      const error = await errorOf(attempt());
      assert.ok(error instanceof ExecutionError, String(error));
      assert.ok(error.cause instanceof Error);
    }
    for (const each of three.servers) {
      if (redlock.clients.size === 3) assert.equal(await each.admin.exists('a', 'b'), 2);
      await each.admin.del('a', 'b');
    }
  }
});

test('a resource that is named twice is locked once, and released', async () => {
  const lock = await open().acquire(['a', 'a'], LONG_MS);
  assert.deepEqual(lock.resources, ['a', 'a']);
  const { attempts } = await lock.release();
  assert.equal((await attempts[0])?.votesFor.size, 1);
  assert.equal(await three.server.admin.exists('a'), 0);
});

test('who waits for a lock that another process releases by its value is woken', async () => {
  const redlock = open({ retryCount: 1, retryDelay: LONG_MS });
  const lock = await redlock.acquire(['a', 'b'], LONG_MS);
  const waiting = redlock.acquire(['b'], LONG_MS);
  await until(async () => (await three.server.admin.zcard('{b}:queue')) > 0, 'the line');
  const there = open();
  const told = new Lock(there, lock.resources, lock.value, [], lock.expiration);
  const began = performance.now();
  await told.release();
  await (await waiting).release();
  assert.ok(performance.now() - began < 1_500, 'before anybody polls');
});

test('a lock of another process on three servers is extended and released by its value', async () => {
  const lock = await openThree().acquire(['a', 'b'], 10_000);
  const told = new Lock(openThree(once), lock.resources, lock.value, [], lock.expiration);
  const extended = await told.extend(30_000);
  const everywhere = async (holds: (each: RedisServer) => Promise<boolean>) =>
    (await Promise.all(three.servers.map(holds))).every(Boolean);
  const longer = () => everywhere(async ({ admin }) => (await admin.pttl('b')) > 20_000);
  await until(longer, 'the longer lease on all servers');
  const { attempts } = await extended.release();
  assert.ok(((await attempts[0])?.votesFor.size ?? 0) >= 2);
  const gone = () => everywhere(async ({ admin }) => (await admin.exists('a', 'b')) === 0);
  await until(gone, 'the release on all servers');
  const { attempts: late } = await new Lock(openThree(), ['a'], lock.value, [], 0).release();
  assert.ok(((await late[0])?.votesAgainst.size ?? 0) >= 2);
});

test('a lock of another process is extended and released while a server is away', async () => {
  const lock = await openThree().acquire(['a'], LONG_MS);
  const [, , third] = three.servers as [RedisServer, RedisServer, RedisServer];
  // As clients are by default, or worse: what they are told waits for the server.
  const patient = three.servers.map((each) => client(each, { maxRetriesPerRequest: null }));
  const told = new Lock(new Redlock(patient), lock.resources, lock.value, [], lock.expiration);
  await third.kill();
  try {
    const { attempts } = await (await told.extend(LONG_MS)).release();
    assert.equal((await attempts[0])?.votesAgainst.size, 0);
    const left = three.servers.slice(0, 2).map((each) => each.admin.exists('a'));
    assert.deepEqual(await Promise.all(left), [0, 0]);
  } finally {
    await third.start();
  }
});

test('the value of another lock that begins alike is left alone', async () => {
  const redlock = open(once);
  const lock = await redlock.acquire(['a'], LONG_MS);
  await three.server.admin.set('a', `${lock.value}5`);
  const told = new Lock(open(once), ['a'], lock.value, [], lock.expiration);
  await assert.rejects(told.extend(LONG_MS), ExecutionError);
  await told.release();
  assert.equal(await three.server.admin.get('a'), `${lock.value}5`);
  await three.server.admin.set('b', 'hf1.x');
  await new Lock(openThree(), ['b'], 'hf1', [], LONG_MS).release();
  assert.equal(await three.server.admin.get('b'), 'hf1.x');
});

test('a server that is away and one that is busy for a moment: what was taken is in nobody’s way', async () => {
  const [first, , third] = three.servers as [RedisServer, RedisServer, RedisServer];
  const redlock = openThree({ retryCount: 200, retryDelay: 50 });
  await first.admin.set('a', 'another', 'PX', 300);
  await third.kill();
  try {
    const lock = await redlock.acquire(['a'], LONG_MS);
    await lock.release();
  } finally {
    await third.start();
  }
});

test('a Cluster: several resources, wherever they are', async () => {
  const cluster = await Cluster.start();
  const own = new ClusterClient(cluster.urls, { keyPrefix: 'shop:' });
  try {
    const redlock = new Redlock([own], once);
    const lock = await redlock.acquire(['a', 'b', 'c'], LONG_MS);
    for (const name of ['a', 'b', 'c']) assert.equal(await own.get(name), lock.value);
    for (const name of ['a', 'b', 'c']) await assert.rejects(redlock.acquire([name], LONG_MS));
    const told = new Lock(redlock, lock.resources, lock.value, [], lock.expiration);
    await (await told.extend(LONG_MS)).release();
    for (const name of ['a', 'b', 'c']) assert.equal(await own.exists(name), 0);
    await redlock.using(['a', 'b'], 1_000, async () => assert.equal(await own.exists('b'), 1));
    await redlock.quit();
  } finally {
    own.disconnect();
    await cluster.stop();
  }
});

test('arguments that cannot be are refused before anything is sent', async () => {
  await until(async () => (await connections()) === 0, 'the end of earlier connections');
  const redlock = open();
  const refused = (promise: Promise<unknown>, code: string) => assert.rejects(promise, { code });
  await refused(redlock.acquire('a' as never, LONG_MS), 'ERR_INVALID_ARG_TYPE');
  await refused(redlock.acquire([], LONG_MS), 'ERR_INVALID_ARG_VALUE');
  await refused(redlock.acquire(['a:queue'], LONG_MS), 'ERR_INVALID_ARG_VALUE');
  await refused(redlock.acquire(['a'], 0), 'ERR_OUT_OF_RANGE');
  await refused(redlock.acquire(['a'], 9_000_000_000_000_001), 'ERR_OUT_OF_RANGE');
  await refused(
    redlock.using(['a', ''], 1_000, async () => {}),
    'ERR_INVALID_ARG_VALUE',
  );
  assert.equal(await connections(), 0);
});

test('scripts are refused by the constructor, two clients by the first lock', async () => {
  const script = () => new Redlock([client()], {}, { acquireScript: (text: string) => text });
  assert.throws(script, { code: 'ERR_INVALID_ARG_VALUE', message: /third argument, scripts/ });
  const two = new Redlock(three.servers.slice(1).map((each) => client(each)));
  const code = 'ERR_INVALID_ARG_VALUE';
  await assert.rejects(two.acquire(['a'], LONG_MS), {
    code,
    message: /two stop when one of them does/,
  });
});
