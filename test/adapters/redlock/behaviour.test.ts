/** The common promises of node-redlock 5 and `holdfast/redlock`: each is tested on both. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RedisServer } from '../../support/server.js';
import { sleep, until } from '../../support/wait.js';
import { threeServers } from '../../three-servers.js';
import { clientOf, errorOf, load, NEW, OLD, type Redlock } from './implementations.js';

const NO_QUORUM = 'The operation was unable to achieve a quorum during its retry window.';
const FRACTION = 'Duration must be an integer value in milliseconds.';
/** Lasts for a whole test. */
const LONG_MS = 60_000;

const three = threeServers();
const { client } = three;

for (const name of [OLD, NEW]) {
  const { default: Redlock, ExecutionError, Lock, ResourceLockedError } = load(name);
  const open = (settings: object = {}): Redlock => new Redlock([client()], settings);
  const once = { retryCount: 0 };

  test(`${name}: settings have defaults, also in place of what is no number`, () => {
    const defaults = {
      driftFactor: 0.01,
      retryCount: 10,
      retryDelay: 200,
      retryJitter: 100,
      automaticExtensionThreshold: 500,
    };
    assert.deepEqual({ ...open().settings }, defaults);
    const given = { retryCount: -1, retryDelay: undefined, retryJitter: '5' };
    assert.deepEqual({ ...open(given).settings }, { ...defaults, retryCount: -1 });
  });

  test(`${name}: an operation may have settings that say nothing, or for ever`, async () => {
    const redlock = open();
    for (const settings of [
      { retryCount: undefined, retryDelay: undefined, retryJitter: Number.NaN },
      { retryCount: Number.NaN, driftFactor: undefined, automaticExtensionThreshold: undefined },
      { retryCount: Number.MAX_SAFE_INTEGER },
      { retryCount: Number.POSITIVE_INFINITY },
    ]) {
      const lock = await redlock.acquire(['a'], 1_000, settings as object);
      await lock.release();
    }
  });

  test(`${name}: the first object releases a lock that another has extended past its lease`, async () => {
    const redlock = open();
    const { admin } = three.server;
    const first = await redlock.acquire(['kept'], 200);
    const other = new Lock(redlock, ['kept'], first.value, [], first.expiration);
    await other.extend(LONG_MS);
    await until(() => first.expiration < Date.now(), 'the end of its own lease');
    await first.release();
    assert.equal(await admin.exists('kept'), 0);
  });

  test(`${name}: a lock that was released twice is not the next holder's`, async () => {
    const redlock = open({ retryCount: 20, retryDelay: 20 });
    const first = await redlock.acquire(['twice'], LONG_MS);
    const extended = await redlock.extend(first, LONG_MS);
    const next = redlock.acquire(['twice'], LONG_MS);
    await first.release();
    const { value } = await next;
    // The original rejects, and the drop-in reports it.
    await extended.release().catch(() => {});
    assert.equal(await three.server.admin.get('twice'), value);
    await (await next).release();
  });

  test(`${name}: using calls the methods that a service has replaced`, async () => {
    const calls: string[] = [];
    class Counting extends Redlock {
      override acquire(...args: Parameters<Redlock['acquire']>) {
        calls.push('acquire');
        return super.acquire(...args);
      }
      override release(...args: Parameters<Redlock['release']>) {
        calls.push('release');
        return super.release(...args);
      }
    }
    const redlock = new Counting([client()]);
    assert.equal(await redlock.using(['counted'], 1_000, async () => 'run'), 'run');
    assert.deepEqual(calls, ['acquire', 'release']);
    const failure = new Error('of the routine');
    const failing = redlock.using(['counted'], 1_000, () => Promise.reject(failure));
    await assert.rejects(failing, failure);
    assert.deepEqual(calls, ['acquire', 'release', 'acquire', 'release']);
    assert.equal(await three.server.admin.exists('counted'), 0);
  });

  test(`${name}: the value of a lock is a property that can be set`, async () => {
    const redlock = open(once);
    const lock = await redlock.acquire(['named'], LONG_MS);
    const copy = Object.assign(new Lock(redlock, [], '', [], 0), lock);
    assert.equal(copy.value, lock.value);
    await copy.release();
    assert.equal(await three.server.admin.exists('named'), 0);
  });

  test(`${name}: what comes after the end of its client gets no lock`, async () => {
    const own = client();
    const redlock = new Redlock([own], once);
    await (await redlock.acquire(['ended'], 1_000)).release();
    await own.quit();
    await until(() => own.status === 'end', 'the end of the client');
    await assert.rejects(redlock.acquire(['ended'], LONG_MS), ExecutionError);
    assert.equal(await three.server.admin.exists('ended'), 0);
    await own.connect();
    await (await redlock.acquire(['ended'], 1_000)).release();
  });

  test(`${name}: at least one client, from whatever can be iterated, each once`, () => {
    const message = 'Redlock must be instantiated with at least one redis client.';
    assert.throws(() => new Redlock([]), { name: 'Error', message });
    const one = client();
    const redlock = new Redlock(new Set([one]));
    assert.deepEqual([...redlock.clients], [one]);
    assert.equal(new Redlock([one, one]).clients.size, 1);
  });

  test(`${name}: a lock is the key, with the client's keyPrefix, for as long as was said`, async () => {
    const redlock = new Redlock([client(three.server, { keyPrefix: 'shop:' })]);
    const began = Date.now();
    const lock = await redlock.acquire(['tea'], 10_000);
    assert.ok(lock instanceof Lock);
    assert.equal(lock.redlock, redlock);
    assert.deepEqual(lock.resources, ['tea']);
    assert.equal(await three.server.admin.get('shop:tea'), lock.value);
    const ttl = await three.server.admin.pttl('shop:tea');
    assert.ok(ttl > 9_000 && ttl <= 10_000, `${ttl}`);
    assert.ok(
      lock.expiration > began + 9_000,
      'not less than was asked for, drift and delay apart',
    );
    assert.ok(lock.expiration <= Date.now() + 10_000 - 102, 'a hundredth and 2 ms before its end');
    await lock.release();
    assert.equal(await three.server.admin.exists('shop:tea'), 0);
  });

  test(`${name}: a copy of a lock has its properties, and stands for it`, async () => {
    const redlock = open();
    const lock = await redlock.acquire(['tea'], 10_000);
    const copy = { ...lock } as typeof lock;
    const { resources, value, attempts, expiration } = lock;
    assert.deepEqual(copy, { redlock, resources, value, attempts, expiration });
    assert.equal(JSON.parse(JSON.stringify({ ...copy, redlock: null })).value, value);
    await redlock.release(copy);
    assert.equal(await three.server.admin.exists('tea'), 0);
  });

  test(`${name}: a larger driftFactor ends a lock earlier`, async () => {
    const lock = await open({ driftFactor: 0.5 }).acquire(['tea'], 10_000);
    assert.ok(lock.expiration <= Date.now() + 5_000 - 2);
    const other = await open().acquire(['cake'], 10_000, { driftFactor: 0.5 });
    assert.ok(other.expiration <= Date.now() + 5_000 - 2);
  });

  test(`${name}: of several resources all are locked, or none`, async () => {
    const redlock = open(once);
    const lock = await redlock.acquire(['b'], LONG_MS);
    const error = await errorOf(redlock.acquire(['a', 'b'], LONG_MS));
    assert.ok(error instanceof ExecutionError);
    assert.equal(await three.server.admin.exists('a'), 0);
    await lock.release();
    const both = await redlock.acquire(['a', 'b'], LONG_MS);
    assert.deepEqual(both.resources, ['a', 'b']);
    assert.equal(await three.server.admin.exists('a', 'b'), 2);
    await both.release();
    assert.equal(await three.server.admin.exists('a', 'b'), 0);
  });

  test(`${name}: with retryCount 0 a lock that is held is refused at once, and told`, async () => {
    const redlock = open();
    const told: Error[] = [];
    const lock = await redlock.acquire(['a'], LONG_MS);
    redlock.on('error', (error) => told.push(error));
    const error = await errorOf(redlock.acquire(['a', 'b'], LONG_MS, once));
    assert.ok(error instanceof ExecutionError && error instanceof Error);
    assert.equal(error.name, 'ExecutionError');
    assert.equal(error.message, NO_QUORUM);
    assert.equal(error.attempts.length, 1);
    const stats = await error.attempts[0];
    assert.deepEqual([stats?.membershipSize, stats?.quorumSize, stats?.votesFor.size], [1, 1, 0]);
    const [[voter, reason]] = [...(stats?.votesAgainst ?? [])] as [[unknown, Error]];
    assert.equal(voter, [...redlock.clients][0]);
    assert.ok(reason instanceof ResourceLockedError && reason instanceof Error);
    assert.equal(reason.name, 'ResourceLockedError');
    assert.equal(reason.message, 'The operation was applied to: 0 of the 2 requested resources.');
    assert.ok(told.includes(reason));
    await lock.release();
  });

  test(`${name}: retries get the lock when it is released`, async () => {
    const redlock = open({ retryDelay: 20, retryJitter: 10, retryCount: -1 });
    const lock = await redlock.acquire(['a'], LONG_MS);
    const waiting = redlock.acquire(['a'], LONG_MS);
    await sleep(50);
    await lock.release();
    const next = await waiting;
    // A value of holdfast ends with a mark while a client waits.
    assert.equal((await three.server.admin.get('a'))?.replace(/\+$/, ''), next.value);
    assert.notEqual(next.value, lock.value);
    await next.release();
  });

  test(`${name}: attempts count the retries, on success and on failure, each with its votes`, async () => {
    const redlock = open({ retryCount: 4, retryDelay: 200, retryJitter: 0 });
    await redlock.acquire(['a', 'b'], 520);
    const lock = await redlock.acquire(['b'], LONG_MS);
    assert.ok(lock.attempts.length > 1 && lock.attempts.length <= 5, `${lock.attempts.length}`);
    assert.equal((await lock.attempts.at(-1))?.votesFor.size, 1);
    const error = await errorOf(redlock.acquire(['a', 'b'], LONG_MS));
    assert.equal(error.attempts.length, 5);
    for (const stats of [...error.attempts, ...lock.attempts.slice(0, -1)]) {
      const [reason] = (await stats).votesAgainst.values();
      assert.ok(reason instanceof ResourceLockedError);
    }
  });

  test(`${name}: the value of a lock stands at each key, also after another has given up`, async () => {
    const redlock = open({ retryCount: 1, retryDelay: 20, retryJitter: 0 });
    const values = (...keys: string[]) => three.server.admin.mget(...keys);
    const lock = await redlock.acquire(['a', 'b'], LONG_MS);
    assert.deepEqual(await values('a', 'b'), [lock.value, lock.value]);
    await errorOf(redlock.acquire(['b', 'c'], LONG_MS));
    await errorOf(redlock.acquire(['b'], LONG_MS));
    const unmarked = async () => (await values('b'))[0] === lock.value;
    await until(unmarked, 'those who gave up to leave');
    assert.deepEqual(await values('a', 'b', 'c'), [lock.value, lock.value, null]);
    const extended = await lock.extend(2 * LONG_MS);
    assert.deepEqual(await values('a', 'b'), [extended.value, lock.value]);
    await extended.release();
    assert.deepEqual(await values('a', 'b'), [null, null]);
  });

  test(`${name}: the value of a lock stands at each of three servers`, async () => {
    const redlock = new Redlock(three.servers.map((each) => client(each)));
    const lock = await redlock.acquire(['a'], LONG_MS);
    const holds = async (value: string | null) => {
      const all = await Promise.all(three.servers.map(({ admin }) => admin.get('a')));
      return all.every((each) => each === value);
    };
    await until(() => holds(lock.value), 'the value on all servers');
    await lock.release();
    await until(() => holds(null), 'the release on all servers');
  });

  test(`${name}: a lock may last for centuries`, async () => {
    const redlock = open();
    const duration = Math.floor(Number.MAX_SAFE_INTEGER / 10);
    for (const resources of [['a'], ['a', 'b']]) {
      const lock = await redlock.acquire(resources, duration);
      assert.ok((await three.server.admin.pttl('a')) > duration - 5_000);
      const extended = await lock.extend(3 * duration);
      const left = await three.server.admin.pttl('a');
      assert.ok(left > 3 * duration - 5_000 && left <= 3 * duration, `${left}`);
      await extended.release();
    }
  });

  test(`${name}: retries get the lock when it expires`, async () => {
    const redlock = open();
    await redlock.acquire(['a'], 200);
    const next = await redlock.acquire(['a'], LONG_MS);
    await next.release();
  });

  test(`${name}: retries end`, async () => {
    const redlock = open();
    const lock = await redlock.acquire(['a'], LONG_MS);
    const began = performance.now();
    const few = { retryCount: 3, retryDelay: 50, retryJitter: 0 };
    const error = await errorOf(redlock.acquire(['a'], LONG_MS, few));
    assert.equal(error.message, NO_QUORUM);
    assert.ok(performance.now() - began > 140);
    await lock.release();
  });

  test(`${name}: a duration is whole`, async () => {
    const redlock = open();
    await assert.rejects(redlock.acquire(['a'], 1000.5), { name: 'Error', message: FRACTION });
    await assert.rejects(
      redlock.using(['a'], 1000.5, async () => {}),
      { message: FRACTION },
    );
    const lock = await redlock.acquire(['a'], 10_000);
    await assert.rejects(lock.extend(0.5), { message: FRACTION });
    await assert.rejects(redlock.acquire(['b'], Number.NaN), { message: FRACTION });
    await lock.release();
  });

  test(`${name}: an extension is a new lock with the same value`, async () => {
    const redlock = open();
    const lock = await redlock.acquire(['a', 'b'], 5_000);
    const began = Date.now();
    const extended = await lock.extend(20_000);
    assert.ok(extended instanceof Lock && extended !== lock);
    assert.equal(lock.expiration, 0);
    assert.equal(extended.value, lock.value);
    assert.deepEqual(extended.resources, ['a', 'b']);
    assert.ok(extended.expiration > began + 19_000 && extended.expiration < Date.now() + 20_000);
    assert.ok((await three.server.admin.pttl('b')) > 19_000);
    assert.equal((await extended.attempts[0])?.votesFor.size, 1);
    await extended.release();
    assert.equal(await three.server.admin.exists('a', 'b'), 0);
  });

  test(`${name}: what has expired, or was released, cannot be extended`, async () => {
    const redlock = open();
    const expired = { name: 'ExecutionError', message: 'Cannot extend an already-expired lock.' };
    const lock = await redlock.acquire(['a'], 100);
    await until(() => lock.expiration < Date.now(), 'the end of the lock');
    const error = await errorOf(lock.extend(1_000));
    assert.deepEqual({ name: error.name, message: error.message }, expired);
    assert.deepEqual(error.attempts, []);
    const other = await redlock.acquire(['b'], LONG_MS);
    await other.release();
    assert.equal(other.expiration, 0);
    await assert.rejects(redlock.extend(other, 1_000), expired);
  });

  test(`${name}: a lock that is not held any more cannot be extended, and stays another's`, async () => {
    const redlock = open();
    const lock = await redlock.acquire(['a'], LONG_MS);
    await three.server.admin.set('a', 'another');
    const error = await errorOf(redlock.extend(lock, 1_000, once));
    assert.ok(error instanceof ExecutionError);
    assert.equal(error.message, NO_QUORUM);
    await lock.release().catch(() => {});
    assert.equal(await three.server.admin.get('a'), 'another');
  });

  test(`${name}: a lock can be released and extended by what another process tells of it`, async () => {
    const here = open();
    const there = open();
    const lock = await here.acquire(['a'], 10_000);
    const { resources, value, expiration } = JSON.parse(
      JSON.stringify({ resources: lock.resources, value: lock.value, expiration: lock.expiration }),
    );
    const told = new Lock(there, resources, value, [], expiration);
    const extended = await told.extend(20_000);
    assert.equal(extended.value, value);
    assert.ok((await three.server.admin.pttl('a')) > 19_000);
    const { attempts } = await extended.release();
    assert.equal((await attempts[0])?.votesFor.size, 1);
    assert.equal(await three.server.admin.exists('a'), 0);
  });

  test(`${name}: using holds the lock while the routine runs, however long`, async () => {
    const redlock = open();
    let value: string | null = null;
    const result = await redlock.using(['a', 'b'], 700, once, async (signal) => {
      value = await three.server.admin.get('a');
      await sleep(1_500);
      assert.equal(await three.server.admin.get('a'), value);
      assert.equal(await three.server.admin.exists('b'), 1);
      assert.equal(signal.aborted, false);
      assert.equal(signal.error, undefined);
      return 'done';
    });
    assert.equal(result, 'done');
    assert.notEqual(value, null);
    assert.equal(await three.server.admin.exists('a', 'b'), 0);
  });

  test(`${name}: using passes the routine's error on, and releases the lock`, async () => {
    const redlock = open();
    const wrong = new Error('wrong');
    const rejected = redlock.using(['a'], 1_000, async () => {
      throw wrong;
    });
    assert.equal(await errorOf(rejected), wrong);
    assert.equal(await three.server.admin.exists('a'), 0);
  });

  test(`${name}: using tells the routine that the lock is lost`, async () => {
    const redlock = open();
    const settings = { retryCount: 1, retryDelay: 10 };
    const lost = redlock.using(['a'], 700, settings, async (signal) => {
      await three.server.admin.set('a', 'another');
      await until(() => signal.aborted, 'the signal');
      assert.equal((signal.reason as Error).name, 'AbortError');
      throw signal.error;
    });
    const error = await errorOf(lost);
    assert.ok(error instanceof ExecutionError);
    assert.equal(await three.server.admin.get('a'), 'another');
  });

  test(`${name}: using wants a routine, and a duration above its threshold`, async () => {
    const redlock = open();
    const invariant = { name: 'Error', message: 'INVARIANT: routine is not a function.' };
    await assert.rejects(redlock.using(['a'], 1_000, {}), invariant);
    const message =
      'A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.';
    const idle = async () => {};
    await assert.rejects(redlock.using(['a'], 599, idle), { name: 'Error', message });
    await redlock.using(['a'], 599, { automaticExtensionThreshold: 400 }, idle);
  });

  test(`${name}: quit ends the clients; locks stay until they expire`, async () => {
    const own = client();
    const redlock = new Redlock([own]);
    const lock = await redlock.acquire(['a'], LONG_MS);
    await redlock.quit();
    await until(() => own.status === 'end', 'the end of the client');
    assert.equal(await three.server.admin.get('a'), lock.value);
    const error = await errorOf(redlock.acquire(['b'], LONG_MS, once));
    assert.ok(error instanceof ExecutionError);
  });

  test(`${name}: the first acquire waits for a server that starts later, as long as its client does`, async (t) => {
    const server = await RedisServer.start();
    t.after(() => server.stop());
    await server.kill();
    const patient = clientOf(server, { maxRetriesPerRequest: 20, retryStrategy: () => 50 });
    const hasty = clientOf(server, { maxRetriesPerRequest: 1, retryStrategy: () => 50 });
    t.after(() => Promise.all([patient, hasty].map((each) => each.disconnect())));
    await errorOf(new Redlock([hasty], once).acquire(['a'], LONG_MS));
    const acquired = new Redlock([patient], once).acquire(['a'], LONG_MS);
    await sleep(300);
    await server.start();
    const lock = await acquired;
    assert.equal(await server.admin.get('a'), lock.value);
    await lock.release();
  });

  test(`${name}: of three servers one may be away`, async () => {
    const redlock = new Redlock(
      three.servers.map((each) => client(each)),
      once,
    );
    const [, , third] = three.servers as [RedisServer, RedisServer, RedisServer];
    const lock = await redlock.acquire(['a'], LONG_MS);
    const seen = (times: number) =>
      until(
        async () => {
          const counts = await Promise.all(three.servers.map((each) => each.admin.exists('a')));
          return counts.every((count) => count === times);
        },
        `the lock on ${times === 1 ? 'all servers' : 'none'}`,
      );
    await seen(1);
    await lock.release();
    await seen(0);
    await third.kill();
    try {
      const next = await redlock.acquire(['a'], LONG_MS);
      await errorOf(redlock.acquire(['a'], LONG_MS));
      await (await next.extend(LONG_MS)).release();
    } finally {
      await third.start();
    }
  });

  test(`${name}: of three servers two may not, and each tells why`, async () => {
    const redlock = new Redlock(
      three.servers.map((each) => client(each)),
      once,
    );
    const [, second, third] = three.servers as [RedisServer, RedisServer, RedisServer];
    await Promise.all([second.kill(), third.kill()]);
    try {
      const error = await errorOf(redlock.acquire(['a'], LONG_MS));
      assert.ok(error instanceof ExecutionError);
      const { votesAgainst } = (await error.attempts[0]) ?? { votesAgainst: new Map() };
      const against = Array.from(redlock.clients, (each) => votesAgainst.has(each));
      assert.deepEqual(against, [false, true, true]);
      for (const reason of votesAgainst.values())
        assert.ok(!(reason instanceof ResourceLockedError));
    } finally {
      await Promise.all([second.start(), third.start()]);
    }
  });
}

test('a lock of node-redlock is extended and released by its value, and the other way round', async () => {
  const old = load(OLD);
  const drop = load(NEW);
  for (const [from, to] of [
    [old, drop],
    [drop, old],
  ] as const) {
    const lock = await new from.default([client()]).acquire(['a'], 10_000);
    const there = new to.default([client()], { retryCount: 0 });
    const told = new to.Lock(there, lock.resources, lock.value, [], lock.expiration);
    const extended = await told.extend(20_000);
    assert.ok((await three.server.admin.pttl('a')) > 19_000);
    await extended.release();
    assert.equal(await three.server.admin.exists('a'), 0);
  }
});
