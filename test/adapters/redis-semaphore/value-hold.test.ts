/** Locks of `holdfast/redis-semaphore` on several servers under an identifier that others know. */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { type LockOptions, RedlockMutex } from 'holdfast/redis-semaphore';
import { Redis } from 'ioredis';
import { FaultProxy } from '../../support/proxy.js';
import { until } from '../../support/wait.js';
import { threeServers } from '../../three-servers.js';

const three = threeServers();
const limited = { timeout: 60_000 };
/** Longer than an attempt waits for a server, in ms. */
const SLOW_MS = 300;
const ONE_ATTEMPT: LockOptions = { acquireAttemptsLimit: 1 };
const TAKE_OVER: LockOptions = { acquiredExternally: true };

/** Proxies of all servers, until the end of a test. */
async function proxiesFor(t: TestContext): Promise<FaultProxy[]> {
  const proxies = await Promise.all(three.servers.map(({ port }) => FaultProxy.start(port)));
  t.after(() => Promise.all(proxies.map((proxy) => proxy.stop())));
  return proxies;
}

/** Clients by way of proxies, until the end of a test. */
function clientsBy(t: TestContext, proxies: readonly FaultProxy[]): Redis[] {
  const own = proxies.map(({ port }) => new Redis(port, { lazyConnect: true }));
  t.after(() => own.map((each) => each.disconnect()));
  return own;
}

const clients = () => three.servers.map((each) => three.client(each));
const lockOf = (own: Redis[], options: LockOptions) =>
  new RedlockMutex(own, 'a', { identifier: 'job', ...options });
/** Takes the lock for another to find. A refresh would throw once the next test, or who takes it over, has removed it. */
const hold = () => lockOf(clients(), { refreshInterval: 0, lockTimeout: 60_000 }).acquire();

test('clients that are about to connect take a lock over, and acquire one', limited, async (t) => {
  await hold();
  for (const options of [TAKE_OVER, ONE_ATTEMPT]) {
    const proxies = await proxiesFor(t);
    const cold = clientsBy(t, proxies);
    for (const [i, proxy] of proxies.entries()) {
      proxy.delayMs = SLOW_MS;
      cold[i]?.once('ready', () => {
        proxy.delayMs = 0;
      });
    }
    const lock = lockOf(cold, options);
    assert.equal(await lock.tryAcquire(), true);
    await lock.release();
  }
});

test('an answer that has come during a pause of the event loop counts', limited, async () => {
  const own = clients();
  await Promise.all(own.map((each) => each.ping()));
  for (const options of [ONE_ATTEMPT, TAKE_OVER]) {
    const trying = lockOf(own, options).tryAcquire();
    await turn();
    const end = performance.now() + SLOW_MS;
    while (performance.now() < end);
    assert.equal(await trying, true);
  }
});

test('a refresh may take as long as the lease lasts', limited, async (t) => {
  const lost: Error[] = [];
  const proxies = await proxiesFor(t);
  const own = clientsBy(t, proxies);
  const onLockLost = (error: Error) => void lost.push(error);
  const lock = lockOf(own, { refreshInterval: SLOW_MS, onLockLost });
  await lock.acquire();
  let refreshes = 0;
  for (const proxy of proxies) {
    proxy.delayMs = SLOW_MS;
    proxy.onRequest = () => {
      refreshes += 1;
    };
  }
  await until(() => refreshes >= 3 * proxies.length, 'the third refresh');
  assert.deepEqual([lock.isAcquired, lost], [true, []]);
  await lock.release();
});

test('an attempt that a majority refuses waits for no other server', limited, async (t) => {
  await hold();
  const proxies = await proxiesFor(t);
  const own = clientsBy(t, proxies);
  await Promise.all(own.map((each) => each.ping()));
  const [silent] = proxies;
  silent?.silence();
  const other = lockOf(own, { identifier: 'other', acquiredExternally: true });
  const began = performance.now();
  assert.equal(await other.tryAcquire(), false);
  assert.ok(performance.now() - began < 5_000, 'not for its lease of ten seconds');
});

test('a minority that refuses at once takes no lock away', limited, async (t) => {
  await hold();
  const proxies = await proxiesFor(t);
  const own = clientsBy(t, proxies);
  await Promise.all(own.map((each) => each.ping()));
  await three.servers[0]?.admin.set('mutex:a', 'other');
  for (const proxy of proxies.slice(1)) proxy.delayMs = SLOW_MS;
  const lock = lockOf(own, TAKE_OVER);
  assert.equal(await lock.tryAcquire(), true);
  await lock.release();
});
