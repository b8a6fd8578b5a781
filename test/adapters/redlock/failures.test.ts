/** Steps of `holdfast/redlock` that fail or are overtaken in the middle: nothing is held then, and the right error is told. */

import assert from 'node:assert/strict';
import { once as event } from 'node:events';
import { before, type TestContext, test } from 'node:test';
import { connect, LockClosedError, LockConnectionError, LockManager } from 'holdfast';
import { ExecutionError, Lock, Redlock } from 'holdfast/redlock';
import { until } from '../../support/wait.js';
import { threeServers } from '../../three-servers.js';
import { errorOf } from './implementations.js';

const LONG_MS = 60_000;
/** A test that expects an early end fails by this. */
const limited = { timeout: 20_000 };
const once = { retryCount: 0 };

const three = threeServers();
const { client } = three;

const open = (settings: object = once) => new Redlock([client()], settings);
const openThree = (settings: object = once) =>
  new Redlock(
    three.servers.map((each) => client(each)),
    settings,
  );
const exists = (...keys: string[]) => three.server.admin.exists(...keys);

type Step = (...args: unknown[]) => Promise<unknown>;
type Methods = Record<string, Step>;

const manager = LockManager.prototype as unknown as Methods;
let held: Methods;

before(async () => {
  const locks = await connect('memory:');
  held = Object.getPrototypeOf(await locks.acquire('any'));
  await locks.close();
});

/** Puts `instead` in the place of a method, until the end of the test; it gets the method, and the number of the call. */
function replace(
  t: TestContext,
  methods: Methods,
  name: string,
  instead: (own: () => Promise<unknown>, n: number) => Promise<unknown>,
): void {
  const own = methods[name] as Step;
  let calls = 0;
  t.mock.method(methods, name, function (this: unknown, ...args: unknown[]) {
    calls += 1;
    return instead(() => own.apply(this, args), calls);
  });
}

test('a lock that was handed off and cannot be extended is released', limited, async (t) => {
  t.mock.getter(held as object, 'remaining' as never, (() => 0) as never);
  replace(t, held, 'extend', () => Promise.reject(new Error('the extension failed')));
  const error = await errorOf(open().acquire(['a'], LONG_MS));
  assert.match(String(error.cause), /the extension failed/);
  assert.equal(await exists('a'), 0);
});

for (const failing of [1, 2]) {
  test(
    `of two locks that are to get one value number ${failing} fails: both are released`,
    limited,
    async (t) => {
      replace(t, manager, 'adoptAs', (own, n) =>
        n === failing ? Promise.reject(new Error('the adoption failed')) : own(),
      );
      const error = await errorOf(open().acquire(['a', 'b'], LONG_MS));
      assert.match(String(error.cause), /the adoption failed/);
      assert.equal(await exists('a', 'b'), 0);
    },
  );
}

test(
  'quit in the moment of the grant: the lock is released, and not handed out',
  limited,
  async (t) => {
    const redlock = open();
    let quit: Promise<void> | undefined;
    replace(t, manager, 'acquirePrepared', async (own) => {
      const lock = await own();
      quit = redlock.quit();
      return lock;
    });
    const error = await errorOf(redlock.acquire(['a'], LONG_MS));
    assert.ok(error.cause instanceof LockClosedError);
    await quit;
    await until(async () => (await exists('a')) === 0, 'the release');
  },
);

test(
  'using: a lock that is lost before the routine begins: it does not begin',
  limited,
  async (t) => {
    replace(t, manager, 'acquirePrepared', async (own) => {
      const lock = (await own()) as Lock;
      await lock.release();
      return lock;
    });
    let runs = 0;
    const used = open().using(['a'], LONG_MS, async () => {
      runs += 1;
    });
    assert.ok((await errorOf(used)) instanceof ExecutionError);
    assert.equal(runs, 0);
  },
);

test('using: the error of the routine is told, also if the release fails', limited, async (t) => {
  replace(t, held, 'release', async (own) => {
    await own();
    throw new Error('the release failed');
  });
  const wrong = new Error('wrong');
  assert.equal(await errorOf(open().using(['a'], LONG_MS, () => Promise.reject(wrong))), wrong);
});

test(
  'using: a release that does not reach the server is no error; one that is refused is',
  limited,
  async (t) => {
    const away = await errorOf(connect('redis://127.0.0.1:1', { connectTimeout: 100 }));
    assert.ok((away as Error) instanceof LockConnectionError);
    replace(t, held, 'release', async (own, n) => {
      await own();
      throw n === 1 ? away : new Error('refused');
    });
    const redlock = open();
    assert.equal(await redlock.using(['a'], LONG_MS, async () => 42), 42);
    const error = await errorOf(redlock.using(['a'], LONG_MS, async () => 42));
    assert.ok(error instanceof ExecutionError);
    assert.deepEqual([error.result, String(error.cause)], [42, 'Error: refused']);
  },
);

test('using: its own settings, and those of the Redlock otherwise', limited, async () => {
  const lock = await open().acquire(['a'], LONG_MS);
  const patient = open({ retryCount: 3, retryDelay: 10, retryJitter: 0 });
  const routine = async () => {};
  const impatient = await errorOf(patient.using(['a'], 1_000, once, routine));
  const usual = await errorOf(patient.using(['a'], 1_000, routine));
  assert.deepEqual([impatient.attempts.length, usual.attempts.length], [1, 4]);
  await lock.release();
});

test('the end of one of three clients ends no wait', limited, async (t) => {
  const lock = await openThree().acquire(['a'], LONG_MS);
  let asked = false;
  replace(t, manager, 'acquirePrepared', (own) => {
    asked = true;
    return own();
  });
  const clients = three.servers.map((each) => client(each));
  const waiting = new Redlock(clients, { retryCount: 100 }).acquire(['a'], LONG_MS);
  await until(() => asked, 'the wait');
  const [leaving] = clients;
  await Promise.all([event(leaving as never, 'end'), leaving?.quit()]);
  await lock.release();
  await (await waiting).release();
});

test('a lock of another process is never shortened by its value', limited, async () => {
  const lock = await open().acquire(['a'], LONG_MS);
  const told = new Lock(open(), lock.resources, lock.value, [], lock.expiration);
  await told.extend(1_000);
  assert.ok((await three.server.admin.pttl('a')) > LONG_MS / 2);
});

test(
  'a value that one of three servers has is no lock: it cannot be extended',
  limited,
  async () => {
    await three.server.admin.set('a', 'old code', 'PX', 10_000);
    const told = new Lock(openThree(), ['a'], 'old code', [], Date.now() + 10_000);
    const error = await errorOf(told.extend(LONG_MS));
    assert.ok(error instanceof ExecutionError);
    const { attempts } = await told.release();
    assert.deepEqual([(await attempts[0])?.votesFor.size, await exists('a')], [1, 0]);
  },
);

test('a release by value that a server refuses is an error', limited, async () => {
  const rules = ['on', '>secret', '~*', '&*', '+@all', '-del'];
  await three.server.admin.call('ACL', 'SETUSER', 'service', ...rules);
  await three.server.admin.set('a', 'old code', 'PX', LONG_MS);
  const redlock = new Redlock([client(three.server, { username: 'service', password: 'secret' })]);
  const error = await errorOf(new Lock(redlock, ['a'], 'old code', [], 0).release());
  assert.ok(error instanceof ExecutionError, String(error));
  assert.match(String(error.cause), /NOPERM|can't run this command|ACL failure in script/);
  await three.server.admin.call('ACL', 'DELUSER', 'service');
});

test(
  'using: a loss during a block of the event loop is seen at the first look',
  limited,
  async () => {
    let seen: unknown[] = [];
    const error = await errorOf(
      open().using(['a'], 700, async (signal) => {
        assert.equal(signal.aborted, false);
        await three.server.admin.del('a');
        // A native thread asks to renew the lease meanwhile, and is denied.
        const end = performance.now() + 600;
        while (performance.now() < end);
        seen = [signal.aborted, signal.error instanceof ExecutionError];
      }),
    );
    assert.deepEqual(seen, [true, true]);
    assert.ok(error instanceof ExecutionError);
  },
);
