/** The common promises of redis-semaphore and `holdfast/redis-semaphore`: each is tested on both. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect } from 'holdfast';
import type * as Drop from 'holdfast/redis-semaphore';
import { Lock } from 'holdfast/redis-semaphore';
import { spawnProgram } from '../../support/program.js';
import { sleep, until } from '../../support/wait.js';
import { threeServers } from '../../three-servers.js';

/** Lasts for a whole test. */
const LONG_MS = 60_000;

const three = threeServers();
const { client } = three;

const OLD = 'redis-semaphore';
const NEW = 'holdfast/redis-semaphore';

for (const name of [OLD, NEW]) {
  const { LostLockError, Mutex, RedlockMutex, Semaphore, TimeoutError, ...rest } = require(
    name,
  ) as typeof Drop;
  const once = { acquireAttemptsLimit: 1 };

  test(`${name}: arguments are checked, and times have defaults`, () => {
    const own = client();
    const wrong: [() => unknown, string][] = [
      [() => new Mutex(null as never, 'a'), '"client" is required'],
      [() => new Mutex(own, ''), '"key" is required'],
      [() => new Mutex(own, {} as never), '"key" must be a string'],
      [() => new Semaphore(own, 'a', 0), '"limit" is required'],
      [() => new Semaphore(own, 'a', '1' as never), '"limit" must be a number'],
      [() => new RedlockMutex(own as never, 'a'), '"clients" array is required'],
      [() => new Mutex(own, 'a', { identifier: '' }), 'identifier must be not empty random string'],
      [
        () => new Mutex(own, 'a', { acquiredExternally: true }),
        'acquiredExternally=true meanless without custom identifier',
      ],
    ];
    const external = { externallyAcquiredIdentifier: 'job 1' };
    for (const given of [
      { identifier: 'job 1' },
      { identifier: 'job 1', acquiredExternally: true },
    ]) {
      const make = () => new Mutex(own, 'a', { ...external, ...given } as object);
      wrong.push([make, 'Invalid usage. Use custom identifier and acquiredExternally: true']);
    }
    assert.ok(new Mutex(own, 'a', external));
    for (const [make, message] of wrong) assert.throws(make, { name: 'Error', message });
    assert.deepEqual(rest.defaultTimeoutOptions, {
      lockTimeout: 10_000,
      acquireTimeout: 10_000,
      acquireAttemptsLimit: Number.POSITIVE_INFINITY,
      retryInterval: 10,
    });
  });

  test(`${name}: acquire tries in the way of a subclass`, async () => {
    const answers = [true, false];
    class Own extends Mutex {
      override async tryAcquire(): Promise<boolean> {
        return answers.shift() ?? true;
      }
    }
    const own = new Own(client(), 'own');
    assert.equal(await own.acquire(), undefined);
    await assert.rejects(own.acquire(), {
      constructor: TimeoutError,
      message: 'Acquire mutex mutex:own timeout',
    });
  });

  test(`${name}: a mutex has one holder, its key and its lease`, async () => {
    const [one, other] = [new Mutex(client(), 'a'), new Mutex(client(), 'a', once)];
    assert.equal(one.isAcquired, false);
    await one.acquire();
    assert.equal(one.isAcquired, true);
    const ttl = await three.server.admin.pttl('mutex:a');
    assert.ok(ttl > 5_000 && ttl <= 10_000, `${ttl}`);
    assert.equal(await other.tryAcquire(), false);
    await assert.rejects(other.acquire(), {
      constructor: TimeoutError,
      message: 'Acquire mutex mutex:a timeout',
    });
    await one.release();
    assert.equal(one.isAcquired, false);
    assert.equal(await other.tryAcquire(), true);
    await other.release();
    await other.release();
    assert.equal(await three.server.admin.exists('mutex:a'), 0);
  });

  test(`${name}: a waiter gets the mutex when it is released, or gives up in time`, async () => {
    const holder = new Mutex(client(), 'a');
    await holder.acquire();
    const short = { acquireTimeout: 100 };
    assert.equal(await new Mutex(client(), 'a', short).tryAcquire(), false);
    const few = { acquireAttemptsLimit: 3, retryInterval: 20 };
    assert.equal(await new Mutex(client(), 'a', few).tryAcquire(), false);
    const waiter = new Mutex(client(), 'a');
    const waiting = waiter.acquire();
    await sleep(50);
    await holder.release();
    await waiting;
    assert.equal(waiter.isAcquired, true);
    await waiter.release();
  });

  test(`${name}: a signal ends the wait with its reason`, async () => {
    const holder = new Mutex(client(), 'a');
    await holder.acquire();
    const [abort, reason] = [new AbortController(), new Error('stop')];
    const waiting = assert.rejects(new Mutex(client(), 'a').acquire(abort.signal), reason);
    await sleep(30);
    abort.abort(reason);
    await waiting;
    await assert.rejects(new Mutex(client(), 'b').tryAcquire(abort.signal), reason);
    await holder.release();
  });

  test(`${name}: a mutex is refreshed while it is held, but not after stopRefresh`, async () => {
    const mutex = new Mutex(client(), 'a', { lockTimeout: 300, refreshInterval: 100 });
    await mutex.acquire();
    await sleep(700);
    assert.equal(mutex.isAcquired, true);
    assert.equal(await three.server.admin.exists('mutex:a'), 1);
    await mutex.stopRefresh();
    await until(
      async () => (await three.server.admin.exists('mutex:a')) === 0,
      'the end of the lease',
    );
    await mutex.release();
  });

  test(`${name}: without refresh the mutex expires, and the callback is not called`, async () => {
    let called = false;
    const mutex = new Mutex(client(), 'a', {
      lockTimeout: 150,
      refreshInterval: 0,
      onLockLost: () => {
        called = true;
      },
    });
    await mutex.acquire();
    await until(
      async () => (await three.server.admin.exists('mutex:a')) === 0,
      'the end of the lease',
    );
    const next = new Mutex(client(), 'a', once);
    assert.equal(await next.tryAcquire(), true);
    await mutex.release();
    assert.equal(await three.server.admin.exists('mutex:a'), 1, "another's");
    assert.equal(called, false);
    await next.release();
  });

  test(`${name}: onLockLost gets a LostLockError, with the mutex as this`, async () => {
    let lost: { error: Error; mutex: unknown } | undefined;
    const mutex = new Mutex(client(), 'a', {
      lockTimeout: 300,
      refreshInterval: 50,
      onLockLost(error) {
        lost = { error, mutex: this };
      },
    });
    await mutex.acquire();
    await three.server.admin.set('mutex:a', 'another', 'PX', LONG_MS);
    await until(() => lost !== undefined, 'the callback');
    assert.ok(lost?.error instanceof LostLockError);
    assert.equal(lost.error.message, 'Lost mutex for key mutex:a');
    assert.equal(lost.mutex, mutex);
    assert.equal(mutex.isAcquired, false);
    await mutex.release();
    assert.equal(await three.server.admin.get('mutex:a'), 'another');
  });

  for (const [what, callback, expected] of [
    ['a loss without onLockLost', '', 'LostLockError: Lost mutex for key mutex:a'],
    ['what onLockLost throws', "onLockLost() { throw new Error('told') },", 'Error: told'],
  ] as const) {
    test(`${name}: ${what} is an unhandled rejection`, async () => {
      const program = spawnProgram(`
        import { Redis } from 'ioredis'
        import { Mutex } from '${name}'
        process.on('unhandledRejection', (error) => {
          console.log(\`rejected: \${error.constructor.name}: \${error.message}\`)
        })
        const client = new Redis(${three.server.port}, '127.0.0.1')
        const mutex = new Mutex(client, 'a', { ${callback} lockTimeout: 300, refreshInterval: 50 })
        await mutex.acquire()
        await client.set('mutex:a', 'another')
      `);
      await program.said(`rejected: ${expected}`);
      await program.kill();
      await three.server.admin.del('mutex:a');
    });
  }

  for (const identifier of [undefined, 'job 7']) {
    const which = identifier === undefined ? 'the default identifier' : 'an identifier';
    test(`${name}: another process takes a mutex over by ${which}`, async () => {
      const given = identifier === undefined ? {} : { identifier };
      const scheduler = new Mutex(client(), 'a', { ...given, refreshInterval: 0 });
      await scheduler.acquire();
      const told = scheduler.identifier;
      if (identifier !== undefined) assert.equal(told, identifier);
      const options = { identifier: told, acquiredExternally: true, lockTimeout: LONG_MS } as const;
      const handler = new Mutex(client(), 'a', options);
      await handler.acquire();
      assert.equal(handler.isAcquired, true);
      assert.equal(handler.identifier, told);
      assert.ok((await three.server.admin.pttl('mutex:a')) > 30_000);
      assert.equal(await new Mutex(client(), 'a', once).tryAcquire(), false);
      await handler.release();
      assert.equal(await three.server.admin.exists('mutex:a'), 0);
      const late = new Mutex(client(), 'a', options);
      assert.equal(await late.tryAcquire(), false);
    });
  }

  test(`${name}: a semaphore has so many holders, and a waiter gets the next permit`, async () => {
    const permits = [1, 2, 3].map(() => new Semaphore(client(), 'api', 2));
    const [one, two, three] = permits as [Drop.Semaphore, Drop.Semaphore, Drop.Semaphore];
    await one.acquire();
    await two.acquire();
    assert.equal(await new Semaphore(client(), 'api', 2, once).tryAcquire(), false);
    const waiting = three.acquire();
    await sleep(30);
    await one.release();
    await waiting;
    assert.deepEqual(
      permits.map(({ isAcquired }) => isAcquired),
      [false, true, true],
    );
    await Promise.all([two.release(), three.release()]);
    const late = new Semaphore(client(), 'api', 1, { ...once, lockTimeout: 5_000 });
    assert.equal(await late.tryAcquire(), true);
    await late.release();
  });

  for (const options of [{}, { identifier: 'worker-7' }]) {
    const named = JSON.stringify(options);
    test(`${name}: a semaphore that is acquired twice at once has one permit, ${named}`, async () => {
      // Of redis-semaphore itself the second acquire of the only permit waits for the first to be released.
      for (const limit of name === OLD ? [2] : [1, 2]) {
        // redis-semaphore refreshes the first two for ever, and fails once the client has ended.
        const own = new Semaphore(client(), 'api', limit, { lockTimeout: LONG_MS, ...options });
        await Promise.all([own.acquire(), own.acquire(), own.acquire()]);
        assert.equal(own.isAcquired, true);
        const others = Array.from(
          { length: limit },
          () => new Semaphore(client(), 'api', limit, once),
        );
        const free = others.slice(1);
        for (const other of free) assert.equal(await other.tryAcquire(), true, `${limit}`);
        assert.equal(await others[0]?.tryAcquire(), false, `${limit}`);
        await own.release();
        assert.equal(await others[0]?.tryAcquire(), true, 'no permit stays behind');
        await Promise.all(others.map((other) => other.release()));
        await three.server.admin.flushall();
      }
    });
  }

  test(`${name}: a semaphore's second acquire ends with its signal`, async () => {
    const holder = new Semaphore(client(), 'api', 1);
    await holder.acquire();
    const own = new Semaphore(client(), 'api', 1);
    const [first, second] = [new AbortController(), new AbortController()];
    const waiting = [own.acquire(first.signal), own.acquire(second.signal)];
    second.abort(new Error('no longer wanted'));
    await assert.rejects(waiting[1] as Promise<void>, /no longer wanted/);
    first.abort(new Error('not either'));
    await assert.rejects(waiting[0] as Promise<void>, /not either/);
    await holder.release();
  });

  test(`${name}: a mutex on three servers has one holder`, async () => {
    const open = (options = {}) =>
      new RedlockMutex(
        three.servers.map((each) => client(each)),
        'a',
        options,
      );
    const one = open();
    await one.acquire();
    assert.equal(await open(once).tryAcquire(), false);
    await one.release();
    const other = open({ acquireTimeout: 5_000 });
    await other.acquire();
    await other.release();
  });
}

test('mutexes of both packages exclude each other, and one is taken over', async () => {
  const [old, ours] = [require(OLD), require(NEW)] as [typeof Drop, typeof Drop];
  const once = { acquireAttemptsLimit: 1 };
  for (const [first, second] of [
    [old, ours],
    [ours, old],
  ] as const) {
    const held = new first.Mutex(client(), 'a');
    await held.acquire();
    assert.equal(await new second.Mutex(client(), 'a', once).tryAcquire(), false);
    await held.release();
    const next = new second.Mutex(client(), 'a', once);
    assert.equal(await next.tryAcquire(), true);
    await next.release();
  }
  const scheduler = new old.Mutex(client(), 'a', { refreshInterval: 0 });
  await scheduler.acquire();
  const options = { identifier: scheduler.identifier, acquiredExternally: true } as const;
  const handler = new ours.Mutex(client(), 'a', options);
  assert.equal(await handler.tryAcquire(), true);
  await handler.release();
  assert.equal(await three.server.admin.exists('mutex:a'), 0);
});

test('permits of redis-semaphore are in the way: both packages cannot share a semaphore', async () => {
  const [old, ours] = [require(OLD), require(NEW)] as [typeof Drop, typeof Drop];
  const permit = new old.Semaphore(client(), 'api', 2);
  await permit.acquire();
  const semaphores = [
    new ours.Semaphore(client(), 'api', 2),
    new ours.MultiSemaphore(client(), 'api', 2, 2, { acquireTimeout: 60_000 }),
  ];
  for (const semaphore of semaphores) {
    await assert.rejects(semaphore.acquire(), {
      code: 'ERR_LOCK_SERVER',
      serverCode: 'WRONGTYPE',
      message: /"semaphore:api".*; if redis-semaphore has permits there, stop its instances before/,
    });
  }
  await permit.release();
});

test(`${NEW}: another refusal of a semaphore has no advice about redis-semaphore`, async () => {
  const { Semaphore } = require(NEW) as typeof Drop;
  const { admin } = three.server;
  await admin.config('SET', 'maxmemory', '1');
  try {
    await assert.rejects(new Semaphore(client(), 'full', 2).acquire(), (error: Error) => {
      assert.match(error.message, /OOM/);
      assert.doesNotMatch(error.message, /redis-semaphore/);
      return true;
    });
  } finally {
    await admin.config('SET', 'maxmemory', '0');
  }
});

test(`${NEW}: beside old code a mutex tries again by itself, as often as its options say`, async () => {
  const { Mutex, TimeoutError } = require(NEW) as typeof Drop;
  const own = client();
  const { admin } = three.server;
  await admin.set('mutex:beside', 'old code');
  const mutex = (options: object) =>
    new Mutex(own, 'beside', { retryInterval: 20, besideOldCode: true, ...options });
  const limited = mutex({ acquireAttemptsLimit: 3, acquireTimeout: LONG_MS });
  await assert.rejects(limited.acquire(), TimeoutError);
  assert.equal(await mutex({ acquireTimeout: 60 }).tryAcquire(), false);
  const controller = new AbortController();
  const aborted = mutex({ acquireTimeout: LONG_MS }).acquire(controller.signal);
  await sleep(30);
  controller.abort(new Error('enough'));
  await assert.rejects(aborted, /enough/);

  const patient = mutex({ acquireTimeout: LONG_MS });
  const waiting = patient.acquire();
  await sleep(50);
  assert.equal(await admin.exists('{mutex:beside}:queue'), 0);
  await admin.del('mutex:beside');
  await waiting;
  assert.equal(patient.isAcquired, true);
  await patient.release();
  assert.equal(await admin.exists('mutex:beside'), 0);
});

test('Lock is a base for a class with its own way to lock', async () => {
  const calls: string[] = [];
  class Own extends Lock {
    protected override _kind = 'own';
    protected override _key = 'key';
    constructor() {
      super({ refreshInterval: 0, acquireTimeout: 100 });
    }
    protected override async _acquire() {
      calls.push('acquire');
      return calls.length > 1;
    }
    protected override async _refresh() {
      return true;
    }
    protected override async _release() {
      calls.push('release');
    }
  }
  const own = new Own();
  await assert.rejects(own.acquire(), /Acquire own key timeout/);
  await own.acquire();
  assert.deepEqual([own.isAcquired, own.identifier.length], [true, 36]);
  await own.release();
  assert.deepEqual([own.isAcquired, calls], [false, ['acquire', 'acquire', 'release']]);
});

test(`${NEW}: old code takes over a mutex by its identifier, also while clients wait for it`, async () => {
  const { Mutex } = require(NEW) as typeof Drop;
  const Old = (require(OLD) as typeof Drop).Mutex;
  const server = three.server;
  const queued = (length: number) =>
    until(async () => (await server.admin.zcard('{mutex:a}:queue')) === length, 'the queue');
  const own = { identifier: 'workflow+', lockTimeout: LONG_MS, acquireTimeout: LONG_MS };
  const others = await connect(server.url, { prefix: '' });
  try {
    const first = new Mutex(client(), 'a', { lockTimeout: LONG_MS });
    await first.acquire();
    const mutex = new Mutex(client(), 'a', { ...own, refreshInterval: 0 });
    const acquired = mutex.acquire();
    await queued(1);
    const waiting = others.acquire('mutex:a', { wait: LONG_MS });
    await queued(2);
    await first.release();
    await acquired;
    assert.equal(await server.admin.get('mutex:a'), 'workflow+');
    const taken = { ...own, refreshInterval: 0, acquiredExternally: true } as const;
    const old = new Old(client(), 'a', taken);
    assert.equal(await old.tryAcquire(), true);
    await mutex.release();
    const next = await waiting;
    assert.equal(next.held, true);
    await next.release();
  } finally {
    await others.close();
  }
});
