/** Objects that are used again, and locks that outlast them: the common promises of both packages. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LockConnectionError } from 'holdfast';
import type * as Drop from 'holdfast/redis-semaphore';
import { Redis } from 'ioredis';
import { spawnProgram } from '../../support/program.js';
import { FaultProxy } from '../../support/proxy.js';
import { sleep, until } from '../../support/wait.js';
import { threeServers } from '../../three-servers.js';

const three = threeServers();
const { client } = three;

/** Waits until the tests' own client of the server is alone. */
async function onlyAdmins(): Promise<void> {
  const count = async () => `${await three.server.admin.client('LIST')}`.trim().split('\n').length;
  await until(async () => (await count()) === 1, 'the end of all other clients');
}

for (const name of ['redis-semaphore', 'holdfast/redis-semaphore']) {
  const { Mutex, Semaphore, TimeoutError } = require(name) as typeof Drop;
  const once = { acquireAttemptsLimit: 1 };

  test(`${name}: a semaphore that is acquired twice has one permit`, async () => {
    const semaphore = new Semaphore(client(), 'twice', 3, { refreshInterval: 0 });
    await semaphore.acquire();
    await semaphore.acquire();
    await Promise.all([semaphore.acquire(), semaphore.acquire()]);
    const others = [1, 2, 3].map(() => new Semaphore(client(), 'twice', 3, once));
    assert.equal(await others[0]?.tryAcquire(), true);
    assert.equal(await others[1]?.tryAcquire(), true);
    assert.equal(await others[2]?.tryAcquire(), false);
    await semaphore.release();
    assert.equal(semaphore.isAcquired, false);
    assert.equal(await others[2]?.tryAcquire(), true);
    for (const other of others) await other.release();
  });

  test(`${name}: a mutex that is acquired twice waits for itself`, async () => {
    const mutex = new Mutex(client(), 'twice', { acquireTimeout: 100 });
    await mutex.acquire();
    await assert.rejects(mutex.acquire(), TimeoutError);
    assert.equal(mutex.isAcquired, true);
    await mutex.release();
    await mutex.acquire();
    const second = mutex.acquire();
    await mutex.release();
    await second;
    assert.equal(mutex.isAcquired, true);
    await mutex.release();
    assert.equal(await three.server.admin.exists('mutex:twice'), 0);
  });

  test(`${name}: a mutex that was taken over is released by the object whose lease is over, too`, async () => {
    const options = { identifier: 'job 17', refreshInterval: 0 };
    const first = new Mutex(client(), 'longer', { ...options, lockTimeout: 200 });
    await first.acquire();
    const takeOver = { ...options, acquiredExternally: true as const, lockTimeout: 60_000 };
    const second = new Mutex(client(), 'longer', takeOver);
    await second.acquire();
    await sleep(300);
    await first.release();
    assert.equal(await three.server.admin.exists('mutex:longer'), 0);
    await second.release();
  });

  test(`${name}: a holder's name has its suffix in Redis, or is what a subclass makes`, async () => {
    const { admin } = three.server;
    class Named extends Mutex {
      override getIdentifier() {
        return 'made by a subclass';
      }
    }
    const suffixed = new Mutex(client(), 'suffixed', { identifierSuffix: 'host-7' });
    await suffixed.acquire();
    assert.match(`${await admin.get('mutex:suffixed')}`, /-host-7$/);
    assert.equal(suffixed.identifier, await admin.get('mutex:suffixed'));
    await suffixed.release();
    const named = new Named(client(), 'named');
    await named.acquire();
    assert.equal(await admin.get('mutex:named'), 'made by a subclass');
    await named.release();
  });

  test(`${name}: a lease may be a text, as of the environment`, async () => {
    const mutex = new Mutex(client(), 'text', { lockTimeout: '5000' } as object);
    await mutex.acquire();
    const left = await three.server.admin.pttl('mutex:text');
    assert.ok(left > 0 && left <= 5_000, `${left} ms`);
    await mutex.release();
  });

  test(`${name}: what comes after the end of its client gets no mutex`, async () => {
    const own = client();
    const mutex = new Mutex(own, 'ended', once);
    await mutex.acquire();
    await mutex.release();
    own.disconnect();
    await until(() => own.status === 'end', 'the end of the client');
    await assert.rejects(mutex.acquire());
    assert.equal(mutex.isAcquired, false);
    assert.equal(await three.server.admin.exists('mutex:ended'), 0);
  });

  test(`${name}: a mutex is held again and again under its identifier`, async () => {
    const mutex = new Mutex(client(), 'again', { identifier: 'job 7' });
    for (let round = 0; round < 5; round += 1) {
      await mutex.acquire();
      assert.equal(mutex.identifier, 'job 7');
      assert.equal(await new Mutex(client(), 'again', once).tryAcquire(), false);
      await mutex.release();
      assert.equal(await three.server.admin.exists('mutex:again'), 0);
    }
  });

  for (const [which, given] of [
    ['no identifier', {}],
    ['an identifier', { identifier: 'job 8' }],
  ] as const) {
    test(`${name}: without refresh a mutex with ${which} outlasts its client`, async () => {
      const own = client();
      const scheduler = new Mutex(own, 'outlasting', { ...given, refreshInterval: 0 });
      await scheduler.acquire();
      const identifier = scheduler.identifier;
      await own.quit();
      await onlyAdmins();
      const handler = new Mutex(client(), 'outlasting', { identifier, acquiredExternally: true });
      assert.equal(await handler.tryAcquire(), true);
      await handler.release();
      assert.equal(await three.server.admin.exists('mutex:outlasting'), 0);
    });
  }

  test(`${name}: after its release a mutex that was to be taken over is acquired as any other`, async () => {
    const options = { ...once, identifier: 'job 12', acquiredExternally: true as const };
    const mutex = new Mutex(client(), 'over', options);
    assert.equal(await mutex.tryAcquire(), false);
    await mutex.release();
    assert.equal(await mutex.tryAcquire(), true);
    await mutex.release();
  });

  test(`${name}: a mutex that was taken over without refresh outlasts its client`, async () => {
    const [first, second] = [client(), client()];
    const options = { identifier: 'job 9', refreshInterval: 0 };
    await new Mutex(first, 'passed', options).acquire();
    await new Mutex(second, 'passed', { ...options, acquiredExternally: true }).acquire();
    await Promise.all([first.quit(), second.quit()]);
    await onlyAdmins();
    assert.equal(await three.server.admin.exists('mutex:passed'), 1);
    const last = new Mutex(client(), 'passed', { ...options, acquiredExternally: true });
    await last.release();
    assert.equal(await three.server.admin.exists('mutex:passed'), 0);
  });
}

test('the end of its client is no loss of a renewed mutex, which is released', async () => {
  const program = spawnProgram(`
    import { Redis } from 'ioredis'
    import { Mutex } from 'holdfast/redis-semaphore'
    const [own, admin] = [0, 1].map(() => new Redis(${three.server.port}, '127.0.0.1'))
    const mutex = new Mutex(own, 'quits')
    await mutex.acquire()
    await own.quit()
    while ((await admin.exists('mutex:quits')) === 1 || mutex.isAcquired);
    await admin.quit()
    process.on('exit', (code) => console.log('ended with', code))
  `);
  await program.said('ended with 0');
});

test('a take-over that is not answered leaves the mutex to its holder, and may be repeated', async (t) => {
  const { Mutex } = require('holdfast/redis-semaphore') as typeof Drop;
  const proxy = await FaultProxy.start(three.server.port);
  const own = new Redis(proxy.port, '127.0.0.1', { retryStrategy: () => 20 });
  own.on('error', () => {});
  t.after(async () => {
    own.disconnect();
    await proxy.stop();
  });
  const options = { identifier: 'job 11', lockTimeout: 60_000 };
  const holder = new Mutex(client(), 'kept', { ...options, onLockLost: () => {} });
  await holder.acquire();
  const value = await three.server.admin.get('mutex:kept');
  await new Mutex(own, 'warm').acquire();
  const handler = new Mutex(own, 'kept', { ...options, acquiredExternally: true });
  proxy.loseReplies = true;
  await assert.rejects(handler.tryAcquire(), LockConnectionError);
  proxy.loseReplies = false;
  proxy.cut();
  // Until its connection is there again, what it would release is not sent.
  assert.equal(await handler.tryAcquire(), true);
  assert.equal(await three.server.admin.get('mutex:kept'), value);
  assert.equal(holder.isAcquired, true);
  await handler.release();
  assert.equal(await three.server.admin.exists('mutex:kept'), 0);
});

for (const kind of ['Mutex', 'Semaphore'] as const) {
  test(`a release of a ${kind} without a reply is not repeated, and spares the next hold under its identifier`, async (t) => {
    const { Mutex, Semaphore } = require('holdfast/redis-semaphore') as typeof Drop;
    const proxy = await FaultProxy.start(three.server.port);
    const own = new Redis(proxy.port, '127.0.0.1', { retryStrategy: () => 20 });
    own.on('error', () => {});
    t.after(async () => {
      own.disconnect();
      await proxy.stop();
    });
    const lockOf = (where: Redis, options: object) =>
      kind === 'Mutex'
        ? new Mutex(where, 'spared', options)
        : new Semaphore(where, 'spared', 1, options);
    const key = `${kind.toLowerCase()}:spared`;
    const identifier = 'job 10';
    const exists = () => three.server.admin.exists(key);
    const lock = lockOf(own, { identifier });
    await lock.acquire();
    proxy.loseReplies = true;
    const released = lock.release();
    await Promise.all([
      assert.rejects(released, (error: Error) => {
        assert.ok(error instanceof LockConnectionError);
        assert.match(
          error.message,
          /it may still be held until its lease ends, in about 9\d{3} ms/,
        );
        return true;
      }),
      until(async () => (await exists()) === 0, 'the release').then(() => proxy.cut()),
    ]);
    assert.equal(lock.isAcquired, false);
    // Another manager, as of another process.
    const next = lockOf(client(), { identifier });
    await next.acquire();
    proxy.loseReplies = false;
    await new Mutex(own, 'connected').acquire();
    // A token of its own would be released once more, a second later.
    await sleep(1_500);
    assert.equal(await lockOf(client(), { acquireAttemptsLimit: 1 }).tryAcquire(), false);
    assert.equal(next.isAcquired, true);
    await next.release();
    assert.equal(await exists(), 0);
    await lock.acquire();
    await lock.release();
  });
}

test('an attempt on several servers under an identifier that is held takes nothing from its holder', async () => {
  const { RedlockMutex } = require('holdfast/redis-semaphore') as typeof Drop;
  const several = () => three.servers.map((each) => client(each));
  const identifier = 'job 13';
  const holder = new RedlockMutex(several(), 'shared', { identifier });
  await holder.acquire();
  const other = new RedlockMutex(several(), 'shared', { identifier, acquireAttemptsLimit: 1 });
  assert.equal(await other.tryAcquire(), false);
  const held = three.servers.map((each) => each.admin.exists('mutex:shared'));
  assert.deepEqual(await Promise.all(held), [1, 1, 1]);
  await holder.release();
});

test('what is lost under an identifier on several servers is free on all when that is told', async () => {
  const { RedlockMutex } = require('holdfast/redis-semaphore') as typeof Drop;
  const several = three.servers.map((each) => client(each));
  let left: Promise<unknown> | undefined;
  const [last, ...others] = three.servers;
  const mutex = new RedlockMutex(several, 'lost', {
    identifier: 'job 16',
    lockTimeout: 2_000,
    refreshInterval: 100,
    onLockLost: () => {
      left = last?.admin.exists('mutex:lost');
    },
  });
  await mutex.acquire();
  // A refresh between two deletions finds the lock on a majority, and sets it again on the rest.
  const lose = () => Promise.all(others.map((each) => each.admin.del('mutex:lost')));
  await until(async () => (await lose()) && left !== undefined, 'the loss');
  assert.equal(await left, 0);
});

test('every time may be a text', async () => {
  const { Mutex, TimeoutError } = require('holdfast/redis-semaphore') as typeof Drop;
  const holder = new Mutex(client(), 'text');
  await holder.acquire();
  for (const times of [{ acquireTimeout: '60' }, { acquireAttemptsLimit: '3' }]) {
    await assert.rejects(new Mutex(client(), 'text', times as object).acquire(), TimeoutError);
  }
  assert.throws(
    () => new Mutex(client(), 'text', { lockTimeout: 'long' } as object),
    /"lockTimeout"/,
  );
  await holder.release();
});

test('under an identifier on several servers, each attempt and the timeout count', async () => {
  const { RedlockMutex, TimeoutError } = require('holdfast/redis-semaphore') as typeof Drop;
  const several = () => three.servers.map((each) => client(each));
  const holder = new RedlockMutex(several(), 'counted', { identifier: 'job 14' });
  await holder.acquire();
  const { admin } = three.server;
  // A majority is enough for the acquire, and each server's own vote counts below.
  await until(async () => (await admin.exists('mutex:counted')) === 1, 'the vote of this server');
  const identifier = 'job 15';
  const attempts = async (options: object) => {
    await admin.config('RESETSTAT');
    const other = new RedlockMutex(several(), 'counted', { identifier, ...options });
    await assert.rejects(other.acquire(), TimeoutError);
    return Number(/cmdstat_set:calls=(\d+)/.exec(await admin.info('commandstats'))?.[1]);
  };
  for (const acquireAttemptsLimit of [1, 3]) {
    assert.equal(await attempts({ acquireAttemptsLimit }), acquireAttemptsLimit);
  }
  const timed = await attempts({ acquireTimeout: 200, retryInterval: 50 });
  assert.ok(timed >= 1 && timed <= 4, `${timed} attempts`);
  await holder.release();
});
