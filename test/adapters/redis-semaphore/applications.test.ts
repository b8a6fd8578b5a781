/** What applications do with redis-semaphore: each is tested on it and on `holdfast/redis-semaphore`. */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type * as Drop from 'holdfast/redis-semaphore';
import { Redis } from 'ioredis';
import { RedisServer } from '../../support/server.js';
import { sleep, until } from '../../support/wait.js';
import { threeServers } from '../../three-servers.js';

/** Lasts for a whole test. */
const LONG_MS = 60_000;

const three = threeServers();
const { client } = three;

const NEW = 'holdfast/redis-semaphore';

for (const name of ['redis-semaphore', NEW]) {
  const { LostLockError, Mutex, RedlockMutex, Semaphore } = require(name) as typeof Drop;
  const once = { acquireAttemptsLimit: 1 };
  const servers = () => three.servers.map((each) => client(each));
  const clients = { Mutex: () => client(), RedlockMutex: servers, Semaphore: () => client() };
  const classes = {
    Mutex: (own: Redis, options: Drop.LockOptions) => new Mutex(own, 'a', options),
    Semaphore: (own: Redis, options: Drop.LockOptions) => new Semaphore(own, 'a', 1, options),
    RedlockMutex: (own: Redis[], options: Drop.LockOptions) => new RedlockMutex(own, 'a', options),
  } as Record<string, (own: unknown, options: Drop.LockOptions) => Drop.Lock>;

  for (const [kind, make] of Object.entries(classes)) {
    const clientsOf = clients[kind as keyof typeof clients];

    test(`${name}: ${kind}: a process takes its own over to check it, and both objects hold it`, async () => {
      const lost: string[] = [];
      const own = clientsOf();
      const times = { lockTimeout: 1_000, refreshInterval: 300 };
      const first = make(own, { ...times, onLockLost: () => void lost.push('first') });
      await first.acquire();
      const { identifier } = first;
      for (let check = 0; check < 3; check += 1) {
        const options = {
          ...times,
          identifier,
          acquiredExternally: true as const,
          refreshInterval: 0,
          onLockLost: () => void lost.push('check'),
        };
        const again = make(own, options);
        assert.equal(await again.tryAcquire(), true);
        assert.deepEqual([first.isAcquired, again.isAcquired], [true, true]);
        await sleep(100);
      }
      // The first renews it still.
      await sleep(1_200);
      assert.deepEqual([first.isAcquired, lost], [true, []]);
      const waiter = make(clientsOf(), { acquireTimeout: LONG_MS });
      const waiting = waiter.acquire();
      await first.release();
      await waiting;
      assert.deepEqual(lost, []);
      await waiter.release();
    });

    test(`${name}: ${kind}: who holds it beside another that releases it, is told`, async () => {
      let told: Error | undefined;
      const own = clientsOf();
      const first = make(own, {});
      await first.acquire();
      const second = make(own, {
        identifier: first.identifier,
        acquiredExternally: true,
        refreshInterval: 100,
        onLockLost: (error) => {
          told = error;
        },
      });
      await second.acquire();
      await first.release();
      await until(() => told !== undefined, 'the callback');
      assert.ok(told instanceof LostLockError);
      assert.equal(second.isAcquired, false);
      const next = make(clientsOf(), once);
      assert.equal(await next.tryAcquire(), true);
      await second.release();
      assert.equal(next.isAcquired, true);
      await next.release();
    });

    test(`${name}: ${kind}: who holds it beside another keeps it after the other's stopRefresh`, async () => {
      const own = clientsOf();
      const times = { lockTimeout: 300, refreshInterval: 100 };
      const first = make(own, times);
      await first.acquire();
      const options = { identifier: first.identifier, acquiredExternally: true } as const;
      const second = make(own, { ...times, ...options });
      await second.acquire();
      await first.stopRefresh();
      await sleep(500);
      assert.equal(second.isAcquired, true);
      assert.equal(await make(clientsOf(), once).tryAcquire(), false);
      await second.release();
      await first.release();
    });

    test(`${name}: ${kind}: a short lockTimeout is possible`, async () => {
      const lock = make(clientsOf(), { lockTimeout: 20, refreshInterval: 0 });
      assert.equal(await lock.tryAcquire(), true);
      const next = make(clientsOf(), { acquireTimeout: 5_000 });
      await next.acquire();
      await next.release();
      await lock.release();
    });
  }

  for (const where of ['the same object of its client', 'another client']) {
    test(`${name}: a take-over by ${where} with a shorter lockTimeout shortens the lease`, async () => {
      const own = client();
      const job = new Mutex(own, 'a', { lockTimeout: 20_000 });
      await job.acquire();
      const after = new Mutex(where === 'another client' ? client() : own, 'a', {
        identifier: job.identifier,
        acquiredExternally: true,
        lockTimeout: 850,
        refreshInterval: 0,
        onLockLost: () => {},
      });
      assert.equal(await after.tryAcquire(), true);
      await job.stopRefresh();
      const left = await three.server.admin.pttl('mutex:a');
      assert.ok(left > 0 && left <= 850, `${left}`);
      const next = new Mutex(client(), 'a', { acquireTimeout: 5_000 });
      await next.acquire();
      await next.release();
    });
  }

  test(`${name}: a take-over that was shortened is free once both objects are released`, async () => {
    const own = client();
    const job = new Mutex(own, 'a', { lockTimeout: 20_000 });
    await job.acquire();
    const options = { identifier: job.identifier, acquiredExternally: true } as const;
    const after = new Mutex(own, 'a', { ...options, lockTimeout: 5_000, refreshInterval: 0 });
    await after.acquire();
    await Promise.all([job.release(), after.release()]);
    assert.equal(await three.server.admin.exists('mutex:a'), 0);
  });

  test(`${name}: a subclass may choose the key`, async () => {
    class Named extends Mutex {
      constructor(own: Redis, key: string, options?: Drop.LockOptions) {
        super(own, key, options);
        this._key = `own:${key}`;
      }
    }
    const mutex = new Named(client(), 'a');
    await mutex.acquire();
    assert.equal(await three.server.admin.get('own:a'), mutex.identifier);
    assert.equal(await three.server.admin.exists('mutex:a'), 0);
    const late = new Named(client(), 'a', once).acquire();
    await assert.rejects(late, /Acquire mutex own:a timeout/);
    await mutex.release();
    assert.equal(await three.server.admin.exists('own:a'), 0);
  });

  test(`${name}: a subclass may add to acquire, refresh and release`, async () => {
    const said: string[] = [];
    class Told extends Mutex {
      protected override async _acquire(signal?: AbortSignal) {
        said.push('acquire');
        return super._acquire(signal);
      }
      protected override async _refresh() {
        said.push('refresh');
        return super._refresh();
      }
      protected override async _release() {
        said.push('release');
        await super._release();
      }
    }
    const mutex = new Told(client(), 'a', { lockTimeout: 300, refreshInterval: 80 });
    await mutex.acquire();
    await sleep(500);
    assert.deepEqual([mutex.isAcquired, await three.server.admin.exists('mutex:a')], [true, 1]);
    await mutex.release();
    assert.equal(await three.server.admin.exists('mutex:a'), 0);
    assert.deepEqual([...new Set(said)], ['acquire', 'refresh', 'release']);
  });

  test(`${name}: what a subclass with its own refresh says is lost, is lost`, async () => {
    let told: Error | undefined;
    class Doubtful extends Mutex {
      protected override async _refresh() {
        return false;
      }
    }
    const onLockLost = (error: Error) => {
      told = error;
    };
    const mutex = new Doubtful(client(), 'a', { refreshInterval: 30, onLockLost });
    await mutex.acquire();
    await until(() => told !== undefined, 'the callback');
    assert.deepEqual([told instanceof LostLockError, mutex.isAcquired], [true, false]);
  });

  test(`${name}: the first acquire waits for a server that starts later`, async (t) => {
    const { server, own } = await lateServer(t);
    const mutex = new Mutex(own, 'a', once);
    const acquired = mutex.acquire();
    await sleep(300);
    await server.start();
    await acquired;
    assert.equal(await server.admin.exists('mutex:a'), 1);
    await mutex.release();
  });

  test(`${name}: the first acquire waits no longer than its client`, async (t) => {
    const { own } = await lateServer(t, { maxRetriesPerRequest: 2 });
    await assert.rejects(new Mutex(own, 'a').acquire());
  });
}

/** A server that is not up yet, and a client that waits for it. */
async function lateServer(t: TestContext, options: object = {}) {
  const server = await RedisServer.start();
  await server.kill();
  const own = new Redis(server.port, '127.0.0.1', { retryStrategy: () => 50, ...options });
  own.on('error', () => {});
  t.after(async () => {
    own.disconnect();
    await server.stop();
  });
  return { server, own };
}

test(`${NEW}: with a mock of ioredis locks are in the memory of the process, and a warning says so`, async () => {
  const { Mutex, RedlockMutex, Semaphore } = require(NEW) as typeof Drop;
  const { Redlock } = require('holdfast/redlock') as typeof import('holdfast/redlock');
  const warned = new Promise<Error & { code?: string }>((resolve) => {
    process.on('warning', (warning) => {
      if ((warning as { code?: string }).code === 'WARN_LOCK_MOCK') resolve(warning);
    });
  });
  const mocks = [1, 2, 3].map(() => new RedisMock());
  const [mock, other] = mocks as [RedisMock, RedisMock];
  const once = { acquireAttemptsLimit: 1 };
  const locks = [
    [new Mutex(mock, 'a'), new Mutex(other, 'a', once)],
    [new Semaphore(mock, 'a', 1), new Semaphore(other, 'a', 1, once)],
    [new RedlockMutex(mocks, 'b'), new RedlockMutex(mocks, 'b', { ...once, identifier: 'own' })],
  ] as const;
  for (const [holder, next] of locks) {
    await holder.acquire();
    assert.equal(holder.isAcquired, true);
    assert.equal(await next.tryAcquire(), false);
    await holder.release();
    assert.equal(await next.tryAcquire(), true);
    await next.release();
  }
  assert.equal(await new Redlock([mock]).using(['c'], 1_000, async () => 'run'), 'run');
  assert.match((await warned).message, /mock of ioredis/);
});

/** Has of ioredis-mock what it is known by. */
class RedisMock {
  readonly options = { host: 'localhost', port: 6379, db: 0, keyPrefix: '' };
  defineCommand(): void {}
  async quit(): Promise<void> {}
}
