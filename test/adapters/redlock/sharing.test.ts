/** Clients of one place share a connection, and a client that cannot be read is refused by the first lock. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { Mutex, RedlockMutex, Semaphore } from 'holdfast/redis-semaphore';
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
