/** Steps of `holdfast/redis-semaphore` that fail or are overtaken in the middle, and what it passes on to the manager. */

import assert from 'node:assert/strict';
import { getEventListeners, once } from 'node:events';
import { type TestContext, test } from 'node:test';
import {
  LockConnectionError,
  LockLostError,
  LockManager,
  LockServerError,
  LockTimeoutError,
} from 'holdfast';
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

const unreachable = () => new LockConnectionError('no server answers');

/** A mutex of three servers, of whose requests the first `failures` find no majority. */
function ofMajority(t: TestContext, failures: number, options: object) {
  let left = failures;
  const asked = replace(t, 'acquirePrepared', (own) => {
    left -= 1;
    return left < 0 ? own() : Promise.reject(unreachable());
  });
  const several = three.servers.map((each) => client(each));
  return { mutex: new RedlockMutex(several, 'majority', options), asked };
}

test(
  'a lock of three servers asks them again while no majority can be reached',
  limited,
  async (t) => {
    const { mutex, asked } = ofMajority(t, 2, { retryInterval: 30, acquireTimeout: 20_000 });
    const began = performance.now();
    assert.equal(await mutex.tryAcquire(), true);
    const elapsed = performance.now() - began;
    assert.ok(elapsed >= 55, 'it did not wait between its attempts');
    const waits = asked.mock.calls.map((call) => (call.arguments[1] as { wait: number }).wait);
    assert.equal(waits.length, 3);
    const spent = waits.map((wait) => 20_000 - wait);
    // Each attempt has what those before have left, in whole ms.
    assert.equal(spent[0], 0);
    assert.ok((spent[1] ?? 0) >= 25 && (spent[2] ?? 0) >= 55, `${spent}`);
    assert.ok((spent[2] ?? 0) <= elapsed, `${spent} of ${elapsed}`);
    await mutex.release();
  },
);

test('without a majority the attempts and the time of a caller end', limited, async (t) => {
  const none = Number.POSITIVE_INFINITY;
  for (const acquireAttemptsLimit of [1, 3]) {
    const options = { acquireAttemptsLimit, retryInterval: 1 };
    const { mutex, asked } = ofMajority(t, none, options);
    assert.equal(await mutex.tryAcquire(), false);
    assert.equal(asked.mock.callCount(), acquireAttemptsLimit);
    await assert.rejects(
      mutex.acquire(),
      ({ cause }: Error) => cause instanceof LockConnectionError,
    );
    asked.mock.restore();
  }
  const { mutex, asked } = ofMajority(t, none, { acquireTimeout: 150, retryInterval: 20 });
  assert.equal(await mutex.tryAcquire(), false);
  const count = asked.mock.callCount();
  assert.ok(count > 1 && count < 12, `${count} attempts`);
});

test('a signal ends the attempts to reach a majority', limited, async (t) => {
  const options = { retryInterval: 60_000, acquireAttemptsLimit: 2, acquireTimeout: 100_000 };
  const { mutex, asked } = ofMajority(t, 2, options);
  const abort = new AbortController();
  const waiting = mutex.tryAcquire(abort.signal);
  await until(() => asked.mock.callCount() === 1, 'the first attempt');
  const reason = new Error('no longer wanted');
  setImmediate(() => abort.abort(reason));
  await assert.rejects(waiting, reason);
  assert.equal(asked.mock.callCount(), 1);
});

test('what a majority refuses is not asked for again', limited, async (t) => {
  const refusal = new LockServerError('not allowed', 'NOPERM', undefined, undefined);
  const asked = replace(t, 'acquirePrepared', () => Promise.reject(refusal));
  const several = three.servers.map((each) => client(each));
  await assert.rejects(new RedlockMutex(several, 'refused').tryAcquire(), refusal);
  assert.equal(asked.mock.callCount(), 1);
});

test('without patience or attempts nobody is asked, and the error says so', limited, async (t) => {
  const asked = replace(t, 'acquirePrepared', (own) => own());
  for (const options of [{ acquireTimeout: 0 }, { acquireAttemptsLimit: 0 }]) {
    const mutex = new Mutex(client(), 'never', options);
    assert.equal(await mutex.tryAcquire(), false);
    await assert.rejects(mutex.acquire(), ({ cause }: Error) => {
      assert.match((cause as Error).message, /^no attempt was made: /);
      return true;
    });
  }
  assert.equal(asked.mock.callCount(), 0);
});

test('a take-over that fails beside another holder has no part in its lock', limited, async (t) => {
  const own = client();
  const identifier = 'job 21';
  const holder = new Mutex(own, 'beside', { identifier, lockTimeout: 300, onLockLost: () => {} });
  await holder.acquire();
  let told: LostLockError | undefined;
  const other = new Mutex(own, 'beside', {
    identifier,
    acquiredExternally: true,
    lockTimeout: 300,
    onLockLost: (error) => {
      told = error;
    },
  });
  const failing = replace(t, 'adoptAs', () => Promise.reject(new Error('the adoption failed')));
  await assert.rejects(other.tryAcquire(), /the adoption failed/);
  assert.equal(other.isAcquired, false);
  failing.mock.restore();
  assert.equal(await other.tryAcquire(), true);
  await three.server.admin.del('mutex:beside');
  await until(() => told !== undefined, 'the news of the loss');
});

test(
  'the loss of a lock while another object fails to take it over is told',
  limited,
  async (t) => {
    const own = client();
    let told: LostLockError | undefined;
    const options = { identifier: 'job 23', lockTimeout: 300 };
    const holder = new Mutex(own, 'gone', {
      ...options,
      onLockLost: (error) => {
        told = error;
      },
    });
    await holder.acquire();
    replace(t, 'adoptAs', async (adopt) => {
      await three.server.admin.del('mutex:gone');
      await until(() => !holder.isAcquired, 'the loss');
      await new Promise(setImmediate);
      assert.equal(told, undefined, 'it is told at the end of the take-over');
      return adopt();
    });
    const other = new Mutex(own, 'gone', { ...options, acquiredExternally: true });
    assert.equal(await other.tryAcquire(), false);
    await until(() => told !== undefined, 'the news of the loss');
    assert.ok(told?.cause instanceof LockLostError);
  },
);

test(
  'a lock that was to be taken over is so again after its release has failed',
  limited,
  async (t) => {
    const options = { identifier: 'job 24', refreshInterval: 0 };
    await new Mutex(client(), 'again', options).acquire();
    const other = new Mutex(client(), 'again', { ...options, acquiredExternally: true });
    const failing = replace(t, 'adoptAs', () => Promise.reject(new Error('the adoption failed')));
    await assert.rejects(other.release(), /the adoption failed/);
    failing.mock.restore();
    assert.equal(await exists('mutex:again'), 1);
    await other.release();
    assert.equal(await exists('mutex:again'), 0);
  },
);

test('what the release of a subclass leaves is renewed no more', limited, async () => {
  class Own extends Mutex {
    protected override _release() {
      return Promise.resolve();
    }
  }
  const mutex = new Own(client(), 'left', { lockTimeout: 200 });
  await mutex.acquire();
  await mutex.release();
  assert.equal(mutex.isAcquired, false);
  await until(async () => (await exists('mutex:left')) === 0, 'the end of its lease', 5_000);
});

test(
  'a lock that is lost before its acquire has ended is told of, and no other',
  limited,
  async (t) => {
    const own = client();
    await new Semaphore(own, 'warm', 1).acquire();
    const told: string[] = [];
    const named = (name: string) =>
      new Mutex(own, name, { lockTimeout: 400, onLockLost: () => void told.push(name) });
    const [lost, kept] = [named('lost'), named('kept')];
    let letGo = () => {};
    const gone = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    replace(t, 'acquirePrepared', async (acquire) => {
      const lock = (await acquire()) as { name: string; held: boolean; signal: AbortSignal };
      if (lock.name === 'mutex:kept') {
        await gone;
        return lock;
      }
      await three.server.admin.del('mutex:lost');
      // The event loop does not turn until the loss has been found out.
      while (lock.held);
      assert.equal(lock.signal.aborted, true);
      letGo();
      return lock;
    });
    const both = [lost.tryAcquire(), kept.tryAcquire()];
    assert.deepEqual(await Promise.all(both), [true, true]);
    await until(() => told.length > 0, 'the news of the loss');
    await new Promise(setImmediate);
    assert.deepEqual([told, lost.isAcquired, kept.isAcquired], [['lost'], false, true]);
  },
);
