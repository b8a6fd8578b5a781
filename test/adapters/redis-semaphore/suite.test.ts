/**
 * What the own suite of redis-semaphore 5.8 checks of `Mutex`, `Semaphore`, `MultiSemaphore` and `RedlockMutex`, restated: each
 * case runs on the original and on `holdfast/redis-semaphore`. docs/redis-semaphore.md has the counts.
 */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type * as Drop from 'holdfast/redis-semaphore';
import type { RedisServer } from '../../support/server.js';
import { sleep, until } from '../../support/wait.js';
import { threeServers } from '../../three-servers.js';

const OLD = 'redis-semaphore';
const NEW = 'holdfast/redis-semaphore';
const TIMES = { lockTimeout: 900, acquireTimeout: 100, refreshInterval: 150, retryInterval: 10 };
/** A lease that was not renewed is over after this, in ms. */
const OVER_MS = 1_100;
/** How long one waits that must get its lock, also on a busy machine, in ms. */
const PATIENT_MS = 5_000;
const once = { ...TIMES, acquireAttemptsLimit: 1 };
const kept = { ...TIMES, refreshInterval: 0 };

const three = threeServers();
/** A client that waits for its server, as services have it. */
const client = () =>
  three.client(three.server, { maxRetriesPerRequest: 20, retryStrategy: () => 50 });
/** Clients that fail at once: the original needs such for several servers. */
const clients = () => three.servers.map((each) => three.client(each, { retryStrategy: () => 50 }));

type Options = Drop.LockOptions & Record<string, unknown>;
/** What the cases use of each class. */
type Subject = Drop.Lock & { _refresh: unknown };

/** A class of locks, on the servers of this test. */
interface Class {
  readonly title: string;
  readonly kind: string;
  readonly key: string;
  readonly servers: readonly RedisServer[];
  make(options?: Options): Subject;
}

function classesOf(name: string): Class[] {
  const { Mutex, Semaphore, MultiSemaphore, RedlockMutex } = require(name) as typeof Drop;
  /** A class of locks on one server, which runs once the tests do. */
  const onOne = (type: string, kind: string, key: string, make: (o?: Options) => unknown) => ({
    title: `${name}: ${type}`,
    kind,
    key,
    get servers() {
      return [three.server];
    },
    make: make as Class['make'],
  });
  return [
    onOne('Mutex', 'mutex', 'mutex:key', (options) => new Mutex(client(), 'key', options)),
    onOne(
      'Semaphore',
      'semaphore',
      'semaphore:key',
      (options) => new Semaphore(client(), 'key', 1, options),
    ),
    {
      title: `${name}: RedlockMutex`,
      kind: 'redlock-mutex',
      key: 'mutex:key',
      get servers() {
        return three.servers;
      },
      make: (options) => new RedlockMutex(clients(), 'key', options) as unknown as Subject,
    },
    onOne(
      'MultiSemaphore',
      'multi-semaphore',
      'semaphore:key',
      (options) => new MultiSemaphore(client(), 'key', 2, 2, options),
    ),
  ];
}

/** Whether nobody holds it: one more object gets it, and releases it again. */
async function isFree({ make }: Class): Promise<boolean> {
  const probe = make(once);
  const got = await probe.tryAcquire();
  await probe.release();
  return got;
}

/** The values of a mutex at its servers. */
const valuesOf = ({ servers, key }: Class) =>
  Promise.all(servers.map((each) => each.admin.get(key)));

/** The lock as held by `holder`: nobody else gets it, and a mutex has the name of its holder as value. */
async function isHeldBy(each: Class, holder: Subject): Promise<void> {
  assert.equal(holder.isAcquired, true);
  assert.equal(await isFree(each), false);
  if (each.kind.endsWith('semaphore')) return;
  const values = await valuesOf(each);
  assert.deepEqual(
    values,
    values.map(() => holder.identifier),
  );
}

const clear = ({ servers }: Class) => Promise.all(servers.map((each) => each.admin.flushall()));

/** All servers run again after the test, and what the original rejects meanwhile that nobody handles counts for nothing. */
function stopsServers(t: TestContext): void {
  rejections(t);
  t.after(() => Promise.all(three.servers.map(async (each) => each.running || each.start())));
}

/** The unhandled rejections from now to the end of the test. */
function rejections(t: TestContext): Error[] {
  const seen: Error[] = [];
  const listeners = process.listeners('unhandledRejection');
  const note = (error: unknown) => void seen.push(error as Error);
  process.removeAllListeners('unhandledRejection');
  process.on('unhandledRejection', note);
  t.after(() => {
    process.off('unhandledRejection', note);
    for (const listener of listeners) process.on('unhandledRejection', listener);
  });
  return seen;
}

for (const name of [OLD, NEW]) {
  const { LostLockError, MultiSemaphore, Mutex, Semaphore, TimeoutError } = require(
    name,
  ) as typeof Drop;

  for (const each of classesOf(name)) {
    const { title, kind, key, make } = each;

    test(`${title}: wrong arguments are refused by name`, () => {
      const wrong: [Options, RegExp][] = [
        [{ identifier: '' }, /identifier must be not empty random string/],
        [{ acquiredExternally: true }, /acquiredExternally=true meanless/],
        [{ externallyAcquiredIdentifier: 'a', identifier: 'a' }, /Invalid usage/],
        [
          { externallyAcquiredIdentifier: 'a', identifier: 'a', acquiredExternally: true },
          /Invalid usage/,
        ],
      ];
      for (const [options, message] of wrong) assert.throws(() => make(options), message);
    });

    test(`${title}: needs no options`, () => {
      for (const options of [{}, undefined]) assert.equal(make(options).isAcquired, false);
    });

    test(`${title}: each object has an identifier of its own`, () => {
      const all = [make().identifier, make().identifier, make().identifier];
      assert.equal(new Set(all).size, 3);
      const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
      for (const identifier of all) assert.match(identifier, uuid);
    });

    test(`${title}: the end of an identifier may be given`, () => {
      assert.match(make({ identifierSuffix: 'abc' }).identifier, /^[0-9a-f-]{36}-abc$/);
    });

    test(`${title}: an identifier may be given`, () => {
      assert.equal(make({ identifier: 'abc' }).identifier, 'abc');
    });

    test(`${title}: acquire holds it until release`, async () => {
      const lock = make();
      assert.equal(lock.isAcquired, false);
      await lock.acquire();
      await isHeldBy(each, lock);
      await lock.release();
      assert.equal(lock.isAcquired, false);
      assert.equal(await isFree(each), true);
    });

    test(`${title}: acquire rejects in time if another holds it`, async () => {
      const holder = make(TIMES);
      await holder.acquire();
      const message = `Acquire ${kind} ${key} timeout`;
      await assert.rejects(make(TIMES).acquire(), { constructor: TimeoutError, message });
      await holder.release();
      assert.equal(await isFree(each), true);
    });

    test(`${title}: a signal ends acquire with its reason`, async () => {
      const holder = make(TIMES);
      await holder.acquire();
      const ended = make({ ...TIMES, acquireTimeout: 10_000 }).acquire(AbortSignal.timeout(10));
      await assert.rejects(ended, { name: 'TimeoutError', message: /aborted due to timeout/ });
      await holder.release();
      assert.equal(await isFree(each), true);
    });

    test(`${title}: tryAcquire answers whether it got it`, async () => {
      const holder = make(TIMES);
      assert.equal(await holder.tryAcquire(), true);
      assert.equal(await make(TIMES).tryAcquire(), false);
      await holder.release();
      assert.equal(await isFree(each), true);
    });

    test(`${title}: is refreshed while it is held`, async () => {
      const lock = make(TIMES);
      await lock.acquire();
      await sleep(OVER_MS);
      await isHeldBy(each, lock);
      await lock.release();
      assert.equal(await isFree(each), true);
    });

    test(`${title}: is not refreshed after stopRefresh`, async () => {
      const lock = make(TIMES);
      await lock.acquire();
      void lock.stopRefresh();
      await sleep(OVER_MS);
      assert.equal(await isFree(each), true);
    });

    for (const form of ['identifier', 'externallyAcquiredIdentifier']) {
      test(`${title}: is taken over by ${form} that was read ahead, beside the object that has it`, async () => {
        const scheduler = make(kept);
        const { identifier } = scheduler;
        const given =
          form === 'identifier'
            ? { identifier, acquiredExternally: true as const }
            : { externallyAcquiredIdentifier: identifier };
        const handler = make({ ...TIMES, ...given, acquireTimeout: PATIENT_MS });
        await scheduler.acquire();
        await handler.acquire();
        assert.equal(scheduler.isAcquired, true);
        await sleep(OVER_MS);
        await isHeldBy(each, handler);
        await handler.release();
        assert.equal(await isFree(each), true);
      });
    }

    for (const isStopped of [false, true]) {
      const told = isStopped
        ? 'not told, since its refresh was stopped'
        : 'told by its next refresh';
      test(`${title}: the release by an object of another client is ${told}`, async () => {
        const losses: Error[] = [];
        const onLockLost = (error: Error) => losses.push(error);
        const times = { ...TIMES, acquireTimeout: PATIENT_MS, identifier: 'workflow' };
        const first = make({ ...times, onLockLost });
        await first.acquire();
        const second = make({ ...times, acquiredExternally: true });
        await second.acquire();
        await second.release();
        if (isStopped) await first.stopRefresh();
        else await until(() => losses.length > 0, 'the loss');
        await sleep(2 * TIMES.refreshInterval);
        assert.equal(losses.length, isStopped ? 0 : 1);
        assert.equal(await isFree(each), true);
        await first.stopRefresh();
      });
    }

    for (const how of ['taken by another', 'expired']) {
      test(`${title}: a loss (${how}) without onLockLost is an unhandled rejection`, async (t) => {
        const seen = rejections(t);
        const lock = make(TIMES);
        await lock.acquire();
        await clear(each);
        const other = how === 'expired' ? undefined : make(TIMES);
        await other?.acquire();
        await until(() => seen.length > 0, 'the rejection');
        assert.ok(seen[0] instanceof LostLockError);
        assert.equal(lock.isAcquired, false);
        await other?.release();
      });

      test(`${title}: a loss (${how}) calls onLockLost, and nothing else`, async (t) => {
        const seen = rejections(t);
        let told: { error: Error; held: boolean } | undefined;
        const lock = make({
          ...TIMES,
          onLockLost(error) {
            told = { error, held: this.isAcquired };
          },
        });
        await lock.acquire();
        await clear(each);
        const other = how === 'expired' ? undefined : make(TIMES);
        await other?.acquire();
        await until(() => told !== undefined, 'the callback');
        assert.ok(told?.error instanceof LostLockError);
        assert.deepEqual([told.held, lock.isAcquired, seen], [false, false, []]);
        await other?.release();
      });
    }

    test(`${title}: one object is used again and again`, async () => {
      const lock = make(TIMES);
      for (let round = 0; round < 3; round += 1) {
        await lock.acquire();
        if (round === 1) await sleep(OVER_MS);
        await isHeldBy(each, lock);
        await lock.release();
        assert.equal(await isFree(each), true);
        await sleep(200);
        assert.equal(await isFree(each), true);
      }
    });

    test(`${title}: without refresh it ends with its lease, and the next gets it`, async () => {
      const patient = { ...kept, acquireTimeout: 10 };
      const [first, second] = [make(patient), make(patient)];
      await first.acquire();
      await assert.rejects(second.acquire(), TimeoutError);
      await sleep(OVER_MS);
      await second.acquire();
      assert.equal(second.isAcquired, true);
      await first.release();
      assert.equal(await isFree(each), false, 'it is that of the second');
      await second.release();
    });
  }

  for (const each of classesOf(name).slice(0, 2)) {
    test(`${each.title}: the server stops, and has forgotten it when it is there again`, async (t) => {
      stopsServers(t);
      let told: Error | undefined;
      const lock = each.make({
        ...TIMES,
        onLockLost: (error) => {
          told = error;
        },
      });
      await lock.acquire();
      await three.server.kill();
      await sleep(OVER_MS);
      await three.server.start();
      await until(() => told !== undefined, 'the loss');
      assert.ok(told instanceof LostLockError);
      assert.equal(lock.isAcquired, false);
      const next = each.make({ ...TIMES, acquireTimeout: 5_000 });
      await next.acquire();
      assert.equal(next.isAcquired, true);
      await Promise.all([lock.release(), next.release()]);
    });
  }

  test(`${name}: RedlockMutex: one server after the other stops, and it is held all the time`, async (t) => {
    stopsServers(t);
    const [, , each] = classesOf(name) as [Class, Class, Class];
    // Its lease lasts through a pause of a busy machine.
    const lock = each.make({ ...TIMES, lockTimeout: 3 * TIMES.lockTimeout });
    await lock.acquire();
    for (const server of three.servers) {
      await server.kill();
      await sleep(3 * OVER_MS);
      await assert.rejects(each.make(TIMES).acquire(), TimeoutError);
      assert.equal(lock.isAcquired, true);
      await server.start();
      // It gets the lock again.
      await until(async () => (await server.admin.exists(each.key)) === 1, 'the refresh there');
    }
    await lock.release();
  });

  test(`${name}: RedlockMutex: without a majority it is lost, and released at the rest`, async (t) => {
    stopsServers(t);
    const [, , each] = classesOf(name) as [Class, Class, Class];
    let told: Error | undefined;
    const lock = each.make({
      ...TIMES,
      onLockLost: (error) => {
        told = error;
      },
    });
    await lock.acquire();
    const [first, second, third] = three.servers as [RedisServer, RedisServer, RedisServer];
    await Promise.all([first.kill(), second.kill()]);
    await until(() => told !== undefined, 'the loss');
    assert.ok(told instanceof LostLockError);
    await until(async () => (await third.admin.exists(each.key)) === 0, 'the release');
    assert.equal(await each.make(once).tryAcquire(), false);
    const began = performance.now();
    const late = each.make({ ...TIMES, acquireTimeout: 300 });
    await assert.rejects(late.acquire(), TimeoutError);
    assert.ok(performance.now() - began > 250);
    assert.equal(late.isAcquired, false);
  });

  test(`${name}: Semaphore: has as many holders as its limit, one after the other`, async () => {
    const lockTimeout = 300;
    const options = { acquireTimeout: 5_000, lockTimeout, refreshInterval: 0 };
    const permits = Array.from({ length: 6 }, () => new Semaphore(client(), 'key', 3, options));
    const began = Date.now();
    await Promise.all(permits.slice(0, 3).map((each) => each.acquire()));
    await Promise.all(permits.slice(3).map((each) => each.acquire()));
    assert.ok(Date.now() - began >= lockTimeout - 5, 'not ahead of the end of the first three');
  });

  test(`${name}: MultiSemaphore: permits are counted, all or none`, async () => {
    const make = (permits: number, options = once) =>
      new MultiSemaphore(client(), 'key', 5, permits, options);
    const [three, two] = [make(3), make(2)];
    await three.acquire();
    await two.acquire();
    await assert.rejects(make(1).acquire(), TimeoutError);
    await two.release();
    await assert.rejects(make(3).acquire(), TimeoutError);
    // Of the three that were refused none is held.
    const again = make(2);
    await again.acquire();
    assert.deepEqual([three.isAcquired, again.isAcquired], [true, true]);
    await Promise.all([three.release(), again.release()]);
    const all = make(5);
    await all.acquire();
    assert.equal(await new Semaphore(client(), 'key', 5, once).tryAcquire(), false);
    await all.release();
  });

  test(`${name}: MultiSemaphore: its permits are refreshed together, and taken over together`, async () => {
    const options = { ...TIMES, identifier: 'workflow' };
    const first = new MultiSemaphore(client(), 'key', 4, 3, options);
    await first.acquire();
    await sleep(OVER_MS);
    const taken = { ...options, acquiredExternally: true } as const;
    const second = new MultiSemaphore(client(), 'key', 4, 3, taken);
    await second.acquire();
    assert.deepEqual([first.isAcquired, second.isAcquired], [true, true]);
    const probe = (permits: number) => new MultiSemaphore(client(), 'key', 4, permits, once);
    assert.equal(await probe(2).tryAcquire(), false);
    const one = probe(1);
    assert.equal(await one.tryAcquire(), true);
    await one.release();
    await second.release();
    const all = probe(4);
    await all.acquire();
    await all.release();
    await first.stopRefresh();
  });

  test(`${name}: MultiSemaphore: wrong numbers of permits`, async () => {
    const make = (permits: unknown) =>
      new MultiSemaphore(client(), 'key', 3, permits as number, once);
    assert.throws(() => make(undefined), /"permits" is required/);
    assert.throws(() => make('2'), /"permits" must be a number/);
    await assert.rejects(make(4).acquire(), TimeoutError);
  });

  test(`${name}: _refresh of the caller's own is called at its interval, and never twice at once`, async () => {
    const mutex = new Mutex(client(), 'key', TIMES);
    let [calls, running] = [0, 0];
    Object.assign(mutex, {
      async _refresh() {
        assert.equal(running, 0);
        running += 1;
        await sleep(100);
        running -= 1;
        calls += 1;
        return true;
      },
    });
    await mutex.acquire();
    await until(() => calls >= 2, 'two calls');
    await mutex.release();
  });

  test(`${name}: a refresh that fails after the release began is no loss`, async (t) => {
    const seen = rejections(t);
    class Own extends Mutex {
      protected override async _acquire() {
        return true;
      }
      protected override async _refresh() {
        await sleep(150);
        return false;
      }
      protected override async _release() {}
    }
    const lock = new Own(client(), 'key', { ...TIMES, refreshInterval: 40 });
    await lock.acquire();
    assert.equal(lock.isAcquired, true);
    await sleep(80);
    await lock.release();
    await sleep(200);
    assert.deepEqual(seen, []);
  });
}
