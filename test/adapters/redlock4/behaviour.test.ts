/** The common promises of redlock 4 and `holdfast/redlock4`: each is tested on both. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import type Redlock = require('holdfast/redlock4');

import { until } from '../../support/wait.js';
import { threeServers } from '../../three-servers.js';

type Bluebird = { using<T>(resource: unknown, callback: (lock: Redlock.Lock) => T): Promise<T> };
const Bluebird = require('bluebird') as Bluebird;

/** The `catch` of Bluebird, which takes several classes. */
type Several = { catch(...filters: unknown[]): Promise<unknown> };

/** Lasts for a whole test. */
const LONG_MS = 60_000;
const FEW = { retryCount: 2, retryDelay: 60, retryJitter: 0 };

const three = threeServers();
const { client } = three;

/** What `begin` gives to its callback. */
function called<T>(begin: (callback: (error: unknown, result?: T) => void) => unknown) {
  return new Promise<{ error: unknown; result: T | undefined }>((resolve) => {
    begin((error, result) => resolve({ error, result }));
  });
}

/** The `LockError` that `attempt` rejects with. */
async function failureOf(attempt: PromiseLike<unknown>): Promise<Redlock.LockError> {
  const failed = await attempt.then(
    () => undefined,
    (error: unknown) => error as Redlock.LockError,
  );
  assert.ok(failed !== undefined, 'it did not fail');
  assert.equal(failed.name, 'LockError');
  return failed;
}

for (const name of ['redlock4', 'holdfast/redlock4']) {
  const Redlock4 = require(name) as typeof Redlock;
  const open = (options: object = {}) => new Redlock4([client()], options);

  test(`${name}: a lease may be a text, as of the environment`, async () => {
    const lock = await open().lock('text', '60000' as never);
    assert.ok((await three.server.admin.pttl('text')) > 50_000);
    await lock.unlock();
  });

  test(`${name}: the first object releases a lock that another has extended past its lease`, async () => {
    const redlock = open();
    const { admin } = three.server;
    const lock = await redlock.lock('kept', 200);
    await admin.pexpire('kept', LONG_MS);
    await until(() => lock.expiration < Date.now(), 'the end of its own lease');
    await lock.unlock();
    assert.equal(await admin.exists('kept'), 0);
  });

  test(`${name}: a lock is the key and its value, for as long as was said`, async () => {
    const redlock = open();
    const began = Date.now();
    const lock = await redlock.lock('a', 10_000);
    assert.ok(lock instanceof Redlock4.Lock);
    assert.deepEqual([lock.redlock, lock.resource], [redlock, ['a']]);
    assert.deepEqual([lock.attempts, lock.attemptsRemaining], [1, 9]);
    assert.ok(lock.expiration > began + 9_000 && lock.expiration < Date.now() + 10_000);
    assert.equal(await three.server.admin.get('a'), lock.value);
    assert.ok((await three.server.admin.pttl('a')) > 9_000);
    await lock.unlock();
    assert.equal(lock.expiration, 0);
    assert.equal(await three.server.admin.exists('a'), 0);
  });

  test(`${name}: settings have defaults and stand on the Redlock`, () => {
    const { driftFactor, retryCount, retryDelay, retryJitter } = open({ retryCount: 3 });
    assert.deepEqual([driftFactor, retryCount, retryDelay, retryJitter], [0.01, 3, 200, 100]);
    const message = 'Redlock must be instantiated with at least one redis server.';
    assert.throws(() => new Redlock4([]), { name: 'Error', message });
  });

  test(`${name}: several resources have one value, and all of them or none`, async () => {
    const redlock = open(FEW);
    const lock = await redlock.lock(['a', 'b'], LONG_MS);
    assert.equal(await three.server.admin.get('a'), lock.value);
    assert.equal(await three.server.admin.get('b'), lock.value);
    await failureOf(redlock.lock(['b', 'c'], LONG_MS));
    assert.equal(await three.server.admin.exists('c'), 0);
    await lock.unlock();
    assert.equal(await three.server.admin.exists('a', 'b'), 0);
  });

  test(`${name}: retries count, on success and on failure`, async () => {
    const redlock = open(FEW);
    await redlock.lock('a', 90);
    const lock = await redlock.lock('a', LONG_MS);
    assert.ok(lock.attempts > 1);
    assert.equal(lock.attemptsRemaining, FEW.retryCount - lock.attempts);
    const error = await failureOf(redlock.lock('a', LONG_MS));
    assert.ok(error instanceof Redlock4.LockError && error instanceof Error);
    assert.equal(error.message, 'Exceeded 2 attempts to lock the resource "a".');
    assert.equal(error.attempts, 3);
  });

  test(`${name}: callbacks get what promises do`, async () => {
    const redlock = open(FEW);
    const locked = await called<Redlock.Lock>((callback) => redlock.lock('a', LONG_MS, callback));
    const lock = locked.result as Redlock.Lock;
    assert.deepEqual([locked.error, lock.resource], [null, ['a']]);
    const extended = await called<Redlock.Lock>((callback) => lock.extend(LONG_MS, callback));
    assert.equal(extended.result, lock);
    const freed = await called<void>((callback) => lock.unlock(callback));
    assert.deepEqual(freed, { error: null, result: undefined });
    const again = await called<void>((callback) => redlock.unlock(lock, callback));
    assert.ok(again.error instanceof Redlock4.LockError);
    const late = await called<Redlock.Lock>((callback) => lock.extend(LONG_MS, callback));
    assert.equal((late.error as Redlock.LockError).attempts, 0);
  });

  test(`${name}: to unlock twice, or what another has, is an error`, async () => {
    const redlock = open();
    const lock = await redlock.lock('a', LONG_MS);
    await lock.unlock();
    const message = 'Unable to fully release the lock on resource "a".';
    assert.equal((await failureOf(lock.unlock())).message, message);
    const other = await redlock.lock('a', LONG_MS);
    await failureOf(lock.unlock());
    assert.equal(await three.server.admin.get('a'), other.value);
    const { value, expiration, attempts } = other;
    await failureOf(new Redlock4.Lock(redlock, ['b'], value, expiration, attempts, 0).unlock());
    other.resource = ['b'];
    await failureOf(other.unlock());
    other.resource = ['a'];
    await other.unlock();
  });

  test(`${name}: a plain object with the properties of a lock stands for it`, async () => {
    const redlock = open(FEW);
    const copy = (lock: Redlock.Lock) => ({ ...lock }) as Redlock.Lock;
    const lock = await redlock.lock('a', 10_000);
    assert.equal(copy(lock).value, lock.value);
    assert.deepEqual(Object.keys(copy(lock)).sort(), Object.keys(lock).sort());
    const plain = copy(lock);
    await redlock.extend(plain, LONG_MS);
    assert.equal(plain.value, await three.server.admin.get('a'));
    assert.ok((await three.server.admin.pttl('a')) > LONG_MS / 2);
    await redlock.unlock(copy(lock));
    assert.equal(await three.server.admin.exists('a'), 0);
  });

  test(`${name}: a lock whose value was changed is another, until it has its own again`, async () => {
    const lock = await open().lock('a', LONG_MS);
    const { value } = lock;
    lock.value = 'another';
    await failureOf(lock.unlock());
    assert.equal(await three.server.admin.get('a'), value);
    lock.value = value;
    await lock.unlock();
    assert.equal(await three.server.admin.exists('a'), 0);
  });

  test(`${name}: a release that no server has heard is an error`, async () => {
    const redlock = open(FEW);
    const lock = await redlock.lock('a', LONG_MS);
    await redlock.quit();
    const { message } = await failureOf(lock.unlock());
    assert.equal(message, 'Unable to fully release the lock on resource "a".');
  });

  test(`${name}: extend returns the same lock, and only while it is held`, async () => {
    const redlock = open(FEW);
    const lock = await redlock.lock('a', 5_000);
    const before = lock.expiration;
    assert.equal(await lock.extend(20_000), lock);
    assert.ok(lock.expiration > before + 10_000);
    assert.ok((await three.server.admin.pttl('a')) > 19_000);
    await three.server.admin.set('a', 'another');
    const lost = await failureOf(lock.extend(20_000));
    assert.equal(lost.message, 'Exceeded 2 attempts to lock the resource "a".');
    lock.expiration = 0;
    const late = await failureOf(redlock.extend(lock, 20_000));
    const message = 'Cannot extend lock on resource "a" because the lock has already expired.';
    assert.deepEqual([late.message, late.attempts], [message, 0]);
  });

  test(`${name}: a lock is unlocked by what another process tells of it`, async () => {
    const lock = await open().lock(['a', 'b'], LONG_MS);
    const there = open();
    const { resource, value, expiration } = JSON.parse(
      JSON.stringify({ resource: lock.resource, value: lock.value, expiration: lock.expiration }),
    );
    await new Redlock4.Lock(there, resource, value, expiration, 1, 0).unlock();
    assert.equal(await three.server.admin.exists('a', 'b'), 0);
  });

  test(`${name}: the other names of the methods, and options of one call`, async () => {
    const redlock = open();
    const lock = await redlock.acquire('a', LONG_MS);
    const one = { retryCount: 1, retryDelay: 20 };
    const error = await failureOf(redlock.acquireWithOptions('a', LONG_MS, one));
    assert.equal(error.attempts, 2);
    assert.equal((await failureOf(redlock.lockWithOptions('a', LONG_MS, one))).attempts, 2);
    await redlock.release(lock);
    assert.equal(await three.server.admin.exists('a'), 0);
  });

  test(`${name}: a server's error is told by the event clientError, for each attempt`, async () => {
    const redlock = open(FEW);
    const told: unknown[] = [];
    redlock.on('clientError', (error) => told.push(error));
    const held = await redlock.lock('b', LONG_MS);
    await failureOf(redlock.lock('b', LONG_MS));
    assert.equal(told.length, 0, 'a lock that is held is no error');
    await held.unlock();
    await three.server.admin.sadd('a', 'x');
    await failureOf(redlock.lock('a', LONG_MS));
    assert.equal(told.length, 3);
    assert.match(String(told[0]), /WRONGTYPE/);
  });

  test(`${name}: promises are those of Bluebird, as far as callers use them`, async () => {
    const redlock = open(FEW);
    const lock = await redlock.lock('a', LONG_MS).tap((each) => assert.equal(each.attempts, 1));
    const none = await redlock.lock('a', LONG_MS).catch(Redlock4.LockError, () => 'none');
    assert.equal(none, 'none');
    const byName = ({ name }: Error) => name === 'LockError';
    for (const type of [byName, { name: 'LockError' }, Error]) {
      const caught = await redlock.lock('a', LONG_MS).catch(type as never, () => 'caught');
      assert.equal(caught, 'caught');
    }
    for (const type of [(error: Error) => !byName(error), { name: 'TypeError' }, RangeError]) {
      const missed = redlock.lock('a', LONG_MS).catch(type as never, () => 'wrong');
      assert.ok((await failureOf(missed)) instanceof Redlock4.LockError);
    }
    const either = await (redlock.lock('a', LONG_MS) as never as Several).catch(
      TypeError,
      Redlock4.LockError,
      () => 'either',
    );
    assert.equal(either, 'either');
    const passed = redlock.lock('a', LONG_MS).catch(TypeError, () => 'wrong');
    await failureOf(passed);
    const done = new Promise((resolve) => lock.unlock().return('freed').done(resolve));
    assert.equal(await done, 'freed');
    assert.equal(await redlock.lock('b', LONG_MS).then(({ resource }) => resource[0]), 'b');
    assert.equal(
      await redlock
        .lock('c', LONG_MS)
        .finally(() => {})
        .return(1),
      1,
    );
  });

  test(`${name}: using of Bluebird releases the lock, and tells of a release that fails`, async () => {
    const redlock = open();
    const seen = await Bluebird.using(redlock.disposer('a', LONG_MS), async (lock) => {
      assert.equal(await three.server.admin.get('a'), lock.value);
      return 42;
    });
    assert.equal(seen, 42);
    assert.equal(await three.server.admin.exists('a'), 0);
    const told: unknown[] = [];
    const disposer = redlock.disposer('a', LONG_MS, (error: unknown) => told.push(error));
    await Bluebird.using(disposer, () => three.server.admin.del('a'));
    assert.equal(told.length, 1);
  });

  test(`${name}: three servers hold the value of the lock; quit ends the clients`, async () => {
    const own = three.servers.map((each) => client(each));
    const redlock = new Redlock4(own, FEW);
    const lock = await redlock.lock('a', LONG_MS);
    const holds = async (value: string | null) => {
      const values = await Promise.all(three.servers.map(({ admin }) => admin.get('a')));
      return values.every((each) => each === value);
    };
    await until(() => holds(lock.value), 'all servers');
    await lock.unlock();
    await until(() => holds(null), 'all servers to be free');
    assert.ok(Array.isArray(await redlock.quit()));
    await until(() => own.every(({ status }) => status === 'end'), 'the end of the clients');
  });
}

for (const name of ['redlock4', 'holdfast/redlock4']) {
  const Redlock4 = require(name) as typeof Redlock;
  const open = (options: object = {}) => new Redlock4([client()], options);

  test(`${name}: a callback may come later, and what is no callback is left alone`, async () => {
    const lock = open().lock('late', LONG_MS);
    const told = await called<Redlock.Lock>((callback) => lock.asCallback(callback));
    assert.deepEqual([told.error, told.result], [null, await lock]);
    for (const none of [undefined, null]) {
      assert.equal(await lock.asCallback(none), told.result);
      assert.equal(await lock.nodeify(none), told.result);
    }
    await told.result?.unlock();
    const ended = open().unlock(told.result as Redlock.Lock);
    assert.ok((await called((callback) => ended.asCallback(callback))).error instanceof Error);
    await assert.rejects(Promise.resolve(ended));
  });

  test(`${name}: what done leaves unhandled ends the process, and what it handles does not`, async () => {
    const uncaught: unknown[] = [];
    process.setUncaughtExceptionCaptureCallback((error) => uncaught.push(error));
    try {
      const results: unknown[] = [];
      const chain = () => open().lock('done', LONG_MS).return(7);
      chain().done((result) => results.push(result));
      await until(() => results.length > 0, 'the result');
      open(FEW)
        .lock('done', LONG_MS)
        .done(null, () => results.push('handled'));
      await until(() => results.length > 1, 'the error');
      assert.deepEqual([results, uncaught], [[7, 'handled'], []]);
      // Bluebird ends the process by itself.
      if (name === 'redlock4') return;
      open({ retryCount: 0 }).lock('done', LONG_MS).done();
      await until(() => uncaught.length > 0, 'the uncaught error');
      assert.equal((uncaught[0] as Error).name, 'LockError');
    } finally {
      process.setUncaughtExceptionCaptureCallback(null);
    }
  });
}

test('scripts of a caller are refused', () => {
  const Redlock4 = require('holdfast/redlock4') as typeof Redlock;
  const make = () => new Redlock4([client()], { lockScript: (text: string) => text } as object);
  assert.throws(make, { code: 'ERR_INVALID_ARG_VALUE', message: /"lockScript" is not supported/ });
});

test('the signature of redlock 3 acquires, or extends the lock that has the value', async () => {
  const Redlock4 = require('holdfast/redlock4') as typeof Redlock;
  type Third = {
    _lock(
      resource: string,
      value: string | null,
      ttl: number,
      ...rest: unknown[]
    ): Promise<Redlock.Lock>;
  };
  const redlock = new Redlock4([client()], FEW);
  const third = redlock as unknown as Third;
  const lock = await third._lock('a', null, 10_000);
  assert.equal(await three.server.admin.get('a'), lock.value);
  const extended = await third._lock('a', lock.value, LONG_MS);
  assert.ok((await three.server.admin.pttl('a')) > LONG_MS / 2);
  assert.equal(extended.value, lock.value);
  assert.deepEqual([extended.attempts, extended.attemptsRemaining], [1, FEW.retryCount - 1]);
  const again = await called<Redlock.Lock>((callback) =>
    third._lock('a', lock.value, LONG_MS, callback),
  );
  assert.deepEqual([again.error, again.result?.resource], [null, ['a']]);
  await again.result?.unlock();
  assert.equal(await three.server.admin.exists('a'), 0);
});

test('a disposer tells its lock once that is acquired, and releases no other', async () => {
  const Redlock4 = require('holdfast/redlock4') as typeof Redlock;
  const open = () => new Redlock4([client()], { retryCount: 0 });
  type Parts = {
    promise(): PromiseLike<Redlock.Lock>;
    resource(): Redlock.Lock | null;
    tryDispose(): PromiseLike<unknown> | null;
  };
  const disposer = open().disposer('disposed', LONG_MS) as unknown as Parts;
  assert.deepEqual([disposer.resource(), disposer.tryDispose()], [null, null]);
  const lock = await disposer.promise();
  assert.equal(disposer.resource(), lock);
  const other = open().disposer('disposed', LONG_MS) as unknown as Parts;
  await failureOf(other.promise());
  assert.deepEqual([other.resource(), other.tryDispose()], [null, null]);
  assert.equal(await three.server.admin.exists('disposed'), 1);
  await disposer.tryDispose();
  assert.equal(await three.server.admin.exists('disposed'), 0);
});
