/** Clients of one place share a connection, and a client that cannot be read is refused by the first lock. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { connect } from 'holdfast';
import { LostLockError, Mutex, RedlockMutex, Semaphore } from 'holdfast/redis-semaphore';
import Redlock, { type Client } from 'holdfast/redlock';
import Redlock4 from 'holdfast/redlock4';
import type { Redis } from 'ioredis';
import { until } from '../../support/wait.js';
import { threeServers } from '../../three-servers.js';

const three = threeServers();
const { client } = three;
const limited = { timeout: 20_000 };
const LONG_MS = 30_000;

const exists = (...keys: string[]) => three.server.admin.exists(...keys);
const received = async () => {
  const info = await three.server.admin.info('stats');
  return Number(/total_connections_received:(\d+)/.exec(info)?.[1]);
};

async function opened(clients: readonly Redis[], work: () => Promise<void>): Promise<number> {
  await Promise.all(clients.map((each) => each.ping()));
  const before = await received();
  await work();
  return (await received()) - before;
}

async function end(own: Redis): Promise<void> {
  await Promise.all([once(own, 'end'), own.quit()]);
}

test(
  'ten clients of one server: one connection; another database has its own',
  limited,
  async () => {
    const clients = [...Array(10).keys()].map(() => client());
    const elsewhere = client(three.server, { db: 3 });
    const count = await opened([...clients, elsewhere], async () => {
      for (const [i, own] of clients.entries()) {
        const lock = await new Redlock([own]).acquire([`redlock ${i}`], LONG_MS);
        const mutex = new Mutex(own, `${i}`);
        await mutex.acquire();
        await mutex.release();
        await lock.release();
      }
      const mutex = new Mutex(elsewhere, '0');
      await mutex.acquire();
      assert.equal(await elsewhere.exists('mutex:0'), 1);
      await mutex.release();
    });
    assert.equal(count, 2);
  },
);

test('the end of a client ends its own locks alone', limited, async () => {
  const [leaving, staying] = [client(), client()];
  const told: Error[] = [];
  const options = { onLockLost: (error: Error) => void told.push(error) };
  const own = [new Mutex(leaving, 'a', options), new Semaphore(leaving, 'api', 2, options)];
  const other = new Mutex(staying, 'b', options);
  const expiring = new Mutex(leaving, 'c', { refreshInterval: 0, lockTimeout: LONG_MS });
  for (const lock of [...own, other, expiring]) await lock.acquire();
  await end(leaving);
  await until(async () => (await exists('mutex:a', 'semaphore:api')) === 0, 'the release');
  assert.deepEqual(
    [...own, other].map(({ isAcquired }) => isAcquired),
    [false, false, true],
  );
  assert.equal(await exists('mutex:b', 'mutex:c'), 2);
  assert.deepEqual(told, []);
  await other.release();
  assert.equal(await exists('mutex:b'), 0);
});

test('a lock that is granted after the end of its client is given back', limited, async () => {
  const [leaving, staying] = [client(), client()];
  const holder = new Mutex(staying, 'a');
  await holder.acquire();
  const first = new Mutex(leaving, 'first');
  await first.acquire();
  await first.release();
  const late = new Mutex(leaving, 'a');
  const waiting = assert.rejects(late.acquire(), { name: 'LockClosedError' });
  await end(leaving);
  await holder.release();
  await waiting;
  await until(async () => (await exists('mutex:a')) === 0, 'the release');
});

test(
  'a client that returns while a routine runs has locks that outlast the routine',
  limited,
  async () => {
    const own = client();
    const told: Error[] = [];
    let mutex: Mutex | undefined;
    await new Redlock([own]).using(['a'], LONG_MS, async () => {
      const ended = once(own, 'end');
      own.disconnect();
      await ended;
      await own.connect();
      mutex = new Mutex(own, 'b', { onLockLost: (error) => void told.push(error) });
      await mutex.acquire();
    });
    // The connection of before ends after the routine, in one turn.
    await own.ping();
    await new Promise(setImmediate);
    const next = new Mutex(own, 'c');
    await next.acquire();
    await next.release();
    assert.deepEqual([mutex?.isAcquired, await exists('mutex:b'), told], [true, 1, []]);
    await mutex?.release();
  },
);

test('a client that ends while the connection is made ends it', limited, async () => {
  const own = client();
  await own.ping();
  const refused = assert.rejects(new Mutex(own, 'a').acquire(), { name: 'LockClosedError' });
  own.emit('end');
  await refused;
  await until(async () => (await exists('mutex:a')) === 0, 'the release');
});

test('a waiting call ends with its client, and not with another', limited, async () => {
  const [leaving, staying] = [client(), client()];
  const names = ['a', 'mutex:a', 'semaphore:a'];
  const holder = await new Redlock([staying]).acquire(['a'], LONG_MS);
  const mutex = new Mutex(staying, 'a');
  const semaphore = new Semaphore(staying, 'a', 1);
  await mutex.acquire();
  await semaphore.acquire();
  const locks = await connect(three.server.url, { prefix: '' });
  await new Mutex(leaving, 'any').acquire();
  const forever = new Redlock([leaving], { retryCount: -1 });
  const acquireTimeout = LONG_MS;
  const theirs = Promise.allSettled([
    forever.acquire(['a'], LONG_MS),
    forever.using(['a'], LONG_MS, async () => {}),
    forever.acquire(['free', 'a'], LONG_MS),
    new Mutex(leaving, 'a', { acquireTimeout }).acquire(),
    new Mutex(leaving, 'a', { acquireTimeout }).acquire(new AbortController().signal),
    new Semaphore(leaving, 'a', 1, { acquireTimeout }).acquire(),
  ]);
  const ours = Promise.all([
    new Redlock([staying], { retryCount: -1 }).using(['a'], LONG_MS, async () => {}),
    new Mutex(staying, 'a', { acquireTimeout }).acquire(),
    new Semaphore(staying, 'a', 1, { acquireTimeout }).acquire(),
  ]);
  await until(async () => (await locks.query()).pending.length === 3, 'the queues');
  await locks.close();
  await end(leaving);
  const ended = (await theirs).map((each) => (each as PromiseRejectedResult).reason as Error);
  assert.deepEqual(
    ended.map((error) => (error.cause instanceof Error ? error.cause : error).name),
    Array(6).fill('LockClosedError'),
  );
  assert.equal(await exists(...names), 3);
  for (const lock of [holder, mutex, semaphore]) await lock.release();
  await ours;
});

test('JSON.stringify of a lock of redlock has its value', limited, async () => {
  const lock = await new Redlock([client()]).acquire(['a'], LONG_MS);
  const { value, resources } = JSON.parse(JSON.stringify(lock)) as typeof lock;
  assert.deepEqual([value, resources], [await three.server.admin.get('a'), ['a']]);
  await lock.release();
});

test('a lock that is lost before its caller knows of it is reported', limited, async () => {
  const own = client();
  const first = new Mutex(own, 'first');
  await first.acquire();
  await first.release();
  const told: Error[] = [];
  const mutex = new Mutex(own, 'a', {
    lockTimeout: 300,
    refreshInterval: 100,
    onLockLost: (error) => void told.push(error),
  });
  const acquiring = mutex.acquire();
  // It is sent at the end of this turn; the grant and the loss come while the event loop is blocked.
  for (let turns = 0; turns < 100; turns++) await undefined;
  const flush = `const socket = require('node:net').connect(${three.server.port}, '127.0.0.1');
    socket.write('FLUSHALL\\r\\n');
    socket.once('data', (answer) => process.stdout.write(answer, () => socket.destroy()));`;
  const { stdout, stderr } = spawnSync(process.execPath, ['--eval', flush], { encoding: 'utf8' });
  assert.equal(stdout, '+OK\r\n', stderr);
  const blockedUntil = performance.now() + 600;
  while (performance.now() < blockedUntil);
  await acquiring;
  assert.equal(mutex.isAcquired, false);
  await until(() => told.length > 0, 'the report');
  assert.deepEqual(
    told.map((error) => error instanceof LostLockError),
    [true],
  );
});

const STRANGE: [string, () => unknown][] = [
  ['a fake with set and eval', () => ({ set: async () => 'OK', eval: async () => 1 })],
  [
    'a client whose methods are mocked',
    () =>
      new (class Redis {
        defineCommand() {}
        set() {}
      })(),
  ],
  ['nothing', () => null],
];

for (const [what, make] of STRANGE) {
  test(`${what}: no constructor throws, and the first lock says what it is`, limited, async () => {
    const strange = make() as Client;
    const message = /client 1 does not reveal.*(the class (Object|Redis)|null).*ioredis-mock/;
    await assert.rejects(new Redlock([strange]).acquire(['a'], 1_000), { message });
    await assert.rejects(new Redlock4([strange]).lock('a', 1_000) as Promise<unknown>, { message });
    const mutexes = [new RedlockMutex([strange], 'a')];
    if (strange !== null) mutexes.push(new Mutex(strange, 'a'), new Semaphore(strange, 'a', 1));
    for (const mutex of mutexes) await assert.rejects(mutex.acquire(), { message });
  });
}

test('a short lease counts as 50 ms everywhere, with one warning', limited, async () => {
  const warnings: string[] = [];
  const note = (warning: Error & { code?: string }) => void warnings.push(`${warning.code}`);
  process.on('warning', note);
  const own = client();
  const lock = await new Redlock([own]).acquire(['a'], 15);
  assert.ok((await own.pttl('a')) > 15);
  await lock.release();
  const old = await new Redlock4([own]).lock('b', 15);
  await old.unlock();
  const mutex = new Mutex(own, 'c', { lockTimeout: 15, refreshInterval: 0 });
  await mutex.acquire();
  assert.ok((await own.pttl('mutex:c')) > 15);
  await mutex.release();
  await until(() => warnings.length > 0, 'the warning');
  process.off('warning', note);
  assert.deepEqual(warnings, ['WARN_LOCK_SHORT_LEASE']);
});

/** Has of ioredis-mock what it is known by: its Cluster is of a class without a name. */
const mocks = () => {
  const options = { host: 'mocked', port: 1, db: 0, notifyKeyspaceEvents: '' };
  return Object.assign(new (class {})(), { options, defineCommand() {}, quit: async () => 'OK' });
};

test('ioredis-mock: all drop-ins keep locks in this process', limited, async () => {
  const own = mocks();
  const lock = await new Redlock([own]).acquire(['a'], LONG_MS);
  const refused = new Redlock4([mocks()], { retryCount: 1, retryDelay: 1 }).lock('a', LONG_MS);
  await assert.rejects(refused as Promise<unknown>, { name: 'LockError' });
  await lock.release();
  const mutex = new Mutex(own, 'a');
  await mutex.acquire();
  assert.equal(await new Mutex(mocks(), 'a', { acquireAttemptsLimit: 1 }).tryAcquire(), false);
  await mutex.release();
});

test(
  'a Redlock of three servers has its locks on each, beside one of the first of them alone',
  limited,
  async () => {
    const clients = three.servers.map((each) => client(each));
    const [first] = clients;
    const alone = new Redlock([first as Redis]);
    await (await alone.acquire(['alone'], LONG_MS)).release();
    for (const more of [clients, clients.slice(0, 1)]) {
      const redlock = new Redlock(more);
      const lock = await redlock.acquire(['several'], LONG_MS);
      const on = await Promise.all(three.servers.map((each) => each.admin.exists('several')));
      assert.ok(on.filter((count) => count === 1).length >= Math.min(2, more.length), on.join());
      await lock.release();
    }
  },
);
