/** Steps of `holdfast/redis-semaphore` that fail or are overtaken in the middle, and what it passes on to the manager. */

import assert from 'node:assert/strict';
import { getEventListeners, once } from 'node:events';
import { type TestContext, test } from 'node:test';
import { LockLostError, LockManager, LockServerError, LockTimeoutError } from 'holdfast';
import {
  LostLockError,
  Mutex,
  RedlockMutex,
  Semaphore,
  TimeoutError,
} from 'holdfast/redis-semaphore';
import { until } from '../../support/wait.js';
import { threeServers } from '../../three-servers.js';

/** A test that expects an early end fails by this. */
const limited = { timeout: 20_000 };

const three = threeServers();
const { client } = three;

const exists = (...keys: string[]) => three.server.admin.exists(...keys);

type Step = (...args: unknown[]) => Promise<unknown>;

/** Puts `instead` in the place of a method of all managers, until the end of the test; it gets the method. */
function replace(t: TestContext, method: string, instead: (own: Step) => Promise<unknown>) {
  const { prototype } = LockManager as unknown as { prototype: Record<string, Step> };
  const own = prototype[method] as Step;
  return t.mock.method(prototype, method, function (this: unknown, ...args: unknown[]) {
    return instead(() => own.apply(this, args));
  });
}

/** The handles of the manager that locks get from now on, in their order. */
function handlesOf(t: TestContext): { signal: AbortSignal }[] {
  const handles: { signal: AbortSignal }[] = [];
  replace(t, 'acquirePrepared', async (own) => {
    const handle = await own();
    handles.push(handle as { signal: AbortSignal });
    return handle;
  });
  return handles;
}

test('a mutex that cannot get its identifier is released', limited, async (t) => {
  const failing = replace(t, 'adoptAs', () => Promise.reject(new Error('the adoption failed')));
  const mutex = new Mutex(client(), 'a', { identifier: 'job 7' });
  await assert.rejects(mutex.acquire(), /the adoption failed/);
  assert.deepEqual([mutex.isAcquired, await exists('mutex:a')], [false, 0]);
  failing.mock.restore();
  await mutex.acquire();
  await mutex.release();
});

test(
  'a semaphore whose signal is aborted after its grant is held by its caller, or by nobody',
  limited,
  async (t) => {
    const abort = new AbortController();
    let named = false;
    replace(t, 'adoptAs', async (own) => {
      abort.abort(new Error('no longer wanted'));
      const lock = await own();
      named = true;
      return lock;
    });
    const semaphore = new Semaphore(client(), 'api', 1, { identifier: 'worker 7' });
    const acquired = await semaphore.acquire(abort.signal).then(
      () => true,
      () => false,
    );
    await until(() => named, 'the end of all its steps');
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(semaphore.isAcquired, acquired);
    await semaphore.release();
  },
);

test('a signal of many calls has no listener left after them', limited, async () => {
  const { signal } = new AbortController();
  const own = client();
  const holder = new Mutex(client(), 'a');
  await holder.acquire();
  for (let i = 0; i < 3; i++) {
    const semaphore = new Semaphore(own, 'api', 1);
    await Promise.all([semaphore.acquire(signal), semaphore.acquire(signal)]);
    await semaphore.release();
    await assert.rejects(new Mutex(own, 'a', { acquireTimeout: 10 }).acquire(signal), TimeoutError);
  }
  assert.equal(getEventListeners(signal, 'abort').length, 0);
  await holder.release();
});

test('an acquire of a semaphore that fails is no failure of the next', limited, async () => {
  const semaphore = new Semaphore(client(), 'api', 1);
  await three.server.admin.rpush('semaphore:api', 'no lock');
  await assert.rejects(semaphore.acquire(), LockServerError);
  await three.server.admin.del('semaphore:api');
  await semaphore.acquire();
  assert.equal(semaphore.isAcquired, true);
  await semaphore.release();
});

test(
  'the next acquire of a semaphore has spent its patience while it waited for its turn',
  limited,
  async (t) => {
    const holder = new Semaphore(client(), 'api', 1);
    await holder.acquire();
    const asked = replace(t, 'acquirePrepared', (own) => own());
    const semaphore = new Semaphore(client(), 'api', 1, { acquireTimeout: 300 });
    const got = await Promise.all([semaphore.tryAcquire(), semaphore.tryAcquire()]);
    const waits = asked.mock.calls.map(
      ({ arguments: [, options] }) => (options as { wait: number }).wait,
    );
    assert.deepEqual(got, [false, false]);
    assert.ok((waits[0] ?? 0) > 150 && (waits[1] ?? 300) < 150, `${waits}`);
    await holder.release();
  },
);

test('defaults and times reach the manager', limited, async (t) => {
  const asked = replace(t, 'acquirePrepared', (own) => own());
  const own = client();
  const [never, exclusive] = [-1, -1];
  const lasting = { ttl: 10_000, renew: true, leaveToExpire: false, share: exclusive };
  const expiring = { ...lasting, renew: false, leaveToExpire: true };
  const wanted: [Mutex | Semaphore, object][] = [
    [new Mutex(own, 'a'), { ...lasting, wait: 10_000 }],
    [new Mutex(own, 'a', { lockTimeout: 7_000 }), { ...lasting, ttl: 7_000, wait: 10_000 }],
    [new Mutex(own, 'a', { refreshInterval: 0 }), { ...expiring, wait: 10_000 }],
    [new Mutex(own, 'a', { acquireAttemptsLimit: 4 }), { ...lasting, wait: 30 }],
    [new Mutex(own, 'a', { acquireAttemptsLimit: 1 }), { ...lasting, wait: never }],
    [new Mutex(own, 'a', { besideOldCode: true }), { ...lasting, wait: never }],
    [new Semaphore(own, 'api', 3), { ...lasting, wait: 10_000, share: 3 }],
    [new Semaphore(own, 'api', 4), { ...lasting, wait: 10_000, share: 4 }],
  ];
  for (const [lock, options] of [...wanted, ...wanted]) {
    assert.equal(await lock.tryAcquire(), true);
    await lock.release();
    const [, given] = asked.mock.calls.at(-1)?.arguments ?? [];
    const { ttl, renew, leaveToExpire, share, wait } = given as Record<string, unknown>;
    assert.deepEqual({ ttl, renew, leaveToExpire, share, wait }, options);
  }
});

test('the errors have causes', limited, async () => {
  const holder = new Mutex(client(), 'a');
  await holder.acquire();
  const late = new Mutex(client(), 'a', { acquireTimeout: 10 }).acquire();
  await assert.rejects(late, ({ cause }: Error) => cause instanceof LockTimeoutError);
  await holder.release();
  let told: LostLockError | undefined;
  const losing = new Mutex(client(), 'a', {
    lockTimeout: 300,
    onLockLost: (error) => {
      told = error;
    },
  });
  await losing.acquire();
  await three.server.admin.del('mutex:a');
  await until(() => told !== undefined, 'the callback');
  assert.ok(told instanceof LostLockError && told.cause instanceof LockLostError);
});

test(
  'a mutex that is acquired anew ahead of the news of its loss is not lost',
  limited,
  async (t) => {
    const held = handlesOf(t);
    const told: Error[] = [];
    const mutex = new Mutex(client(), 'a', {
      lockTimeout: 300,
      onLockLost: (error) => void told.push(error),
    });
    await mutex.acquire();
    await three.server.admin.del('mutex:a');
    await mutex.acquire();
    await until(() => held[0]?.signal.aborted === true, 'the news of the loss');
    assert.deepEqual([told, mutex.isAcquired], [[], true]);
    await mutex.release();
  },
);

test(
  'the end of the clients ends a renewed mutex, a semaphore, and one on three servers, and is no loss',
  limited,
  async () => {
    const told: Error[] = [];
    const options = { onLockLost: (error: Error) => void told.push(error) };
    const [one, other] = [client(), client()];
    const several = three.servers.map((each) => client(each));
    const locks = [
      new Mutex(one, 'a', options),
      new Semaphore(other, 'api', 1, options),
      new RedlockMutex(several, 'b', options),
    ];
    for (const lock of locks) await lock.acquire();
    const clients = [one, other, ...several];
    await Promise.all(clients.map((each) => Promise.all([once(each, 'end'), each.quit()])));
    await until(() => locks.every(({ isAcquired }) => !isAcquired), 'the end of the locks');
    await until(
      async () => (await exists('mutex:a', 'semaphore:api', 'mutex:b')) === 0,
      'the release',
    );
    assert.deepEqual(told, []);
  },
);

test(
  'a subclass that refreshes in its own way decides alone when its mutex is lost',
  limited,
  async (t) => {
    const held = handlesOf(t);
    let [isHeld, refreshes] = [true, 0];
    class Own extends Mutex {
      protected override async _refresh() {
        refreshes += 1;
        return isHeld;
      }
    }
    const told: Error[] = [];
    const mutex = new Own(client(), 'own', {
      refreshInterval: 10,
      onLockLost: (error) => void told.push(error),
    });
    await mutex.acquire();
    await three.server.admin.del('mutex:own');
    await until(() => held[0]?.signal.aborted === true, 'the news of the loss');
    const before = refreshes;
    await until(() => refreshes > before, 'a refresh after it');
    assert.deepEqual([mutex.isAcquired, told], [true, []]);
    isHeld = false;
    await until(() => !mutex.isAcquired, 'the loss');
    assert.ok(told.length === 1 && told[0] instanceof LostLockError);
  },
);
