/** Leases that are renewed, and those that are lost, behind a network that falls silent. */

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import {
  connect,
  holdfast,
  type Lock,
  type LockManager,
  openOperations,
} from '../support/holdfast.js';
import { FaultProxy } from '../support/proxy.js';
import { RedisServer } from '../support/server.js';
import { sleep, until } from '../support/wait.js';

let server: RedisServer;
let proxy: FaultProxy;
let locks: LockManager;
/** Past the proxy, which stops with the event loop of this process. */
let direct: LockManager;

before(async () => {
  server = await RedisServer.start();
  proxy = await FaultProxy.start(server.port);
  locks = await connect(proxy.url);
  direct = await connect(server.url);
});

after(async () => {
  await Promise.all([locks.close(), direct.close()]);
  assert.equal(openOperations(), 0);
  await proxy.stop();
  await server.stop();
});

afterEach(() => {
  locks.removeAllListeners();
  proxy.blackhole = false;
});

/** A synchronous loop: no timer and no promise of this thread runs meanwhile. */
function blockEventLoop(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

function aborted(lock: Lock): Promise<unknown> {
  if (lock.signal.aborted) return Promise.resolve(lock.signal.reason);
  return new Promise((resolve) => {
    lock.signal.addEventListener('abort', () => resolve(lock.signal.reason), { once: true });
  });
}

/** Only a renewal gives a lease more time than it had. */
async function renewal(lock: Lock): Promise<void> {
  let left = lock.remaining;
  await until(() => {
    const before = left;
    left = lock.remaining;
    return left > before;
  }, `a renewal of ${lock.name}`);
}

async function becomesFree(name: string): Promise<void> {
  await until(async () => (await server.admin.exists(`lock:${name}`)) === 0, `${name} to be free`);
}

test('renewal: a lock outlives its lease many times over', async () => {
  // Renewed at a third: it stands a machine that stalls for 600 ms.
  const lock = await direct.acquire('kept', { ttl: 1_000 });
  for (let i = 0; i < 60; i++) {
    await sleep(50);
    assert.equal(lock.held, true);
  }
  assert.equal(await server.admin.get('lock:kept'), lock.token);
  assert.equal(await lock.release(), true);
  assert.equal(lock.signal.aborted, false, 'a release is no loss');
});

/** Cuts `lock` off the server until it is lost; returns how long its key still lasts there, in ms. */
async function loseToSilence(lock: Lock): Promise<{ reason: unknown; left: number }> {
  proxy.blackhole = true;
  const reason = await aborted(lock);
  const left = await server.admin.pttl(`lock:${lock.name}`);
  proxy.blackhole = false;
  proxy.cut();
  return { reason, left };
}

test('loss: the signal is aborted and the event comes, once, before another can be in', async () => {
  const losses: unknown[] = [];
  locks.on('lost', (lost, error) => losses.push([lost.name, error.reason, error.code]));
  // The lease ends here 1 % earlier than there. A busy machine may report it too late: the longer
  // the lease, the more time it has.
  let inTime = false;
  let round = 0;
  while (!inTime && round < 5) {
    round += 1;
    const ttl = round * 2_000;
    const lock = await locks.acquire(`lost:${round}`, { ttl });
    let aborts = 0;
    lock.signal.addEventListener('abort', () => {
      aborts += 1;
    });
    const { reason, left } = await loseToSilence(lock);
    inTime = left >= ttl / 200;
    assert.equal((reason as { code: string }).code, 'ERR_LOCK_LOST');
    assert.equal(lock.held, false);
    assert.throws(() => lock.assertHeld(), { code: 'ERR_LOCK_LOST', reason: 'expired' });
    await becomesFree(lock.name);
    await sleep(50);
    assert.equal(aborts, 1);
    assert.equal(await lock.release(), false);
  }
  assert.ok(inTime, 'the server still had it, at least once');
  const once = (_: unknown, i: number) => [`lost:${i + 1}`, 'expired', 'ERR_LOCK_LOST'];
  assert.deepEqual(losses, Array.from({ length: round }, once));
});

test('loss: a lock whose key was deleted is lost at the next renewal', async () => {
  const unasked = await direct.acquire('beside', { ttl: 1_500, renew: false });
  const lock = await direct.acquire('deleted', { ttl: 1_500 });
  await server.admin.del('lock:deleted');
  const error = (await aborted(lock)) as Error & { reason: string };
  assert.equal(error.reason, 'expired');
  assert.equal(unasked.held, true, 'and not at the end of its lease');
  assert.equal(await unasked.release(), true);
});

test('loss: a short blackhole is survived', async () => {
  await using hasty = await connect(proxy.url, { commandTimeout: 1_000, connectTimeout: 1_000 });
  const lock = await hasty.acquire('survives', { ttl: 5_000 });
  proxy.blackhole = true;
  await until(() => lock.remaining < 2_000, 'a renewal to be given up');
  proxy.blackhole = false;
  proxy.cut();
  await renewal(lock);
  assert.equal(lock.held, true);
  assert.equal(lock.signal.aborted, false);
  assert.equal(await lock.release(), true);
});

test('loss: while the event loop was blocked and the grant not read yet', async () => {
  const pending = direct.acquire('unread', { ttl: 500, renew: false });
  await Promise.resolve();
  blockEventLoop(1_200);
  const lock = await pending;
  assert.equal(lock.held, false);
  assert.equal(((await aborted(lock)) as { reason: string }).reason, 'expired');
});

test('a signal that was taken out of its lock tells a loss at once, also after a stop', async () => {
  const short = { ttl: 300, stallTimeout: 60_000 };
  const lock = await locks.acquire('taken:lock', short);
  const set = await locks.acquire(['taken:a', 'taken:b'], short);
  const { signal } = lock;
  const { signal: ofSet } = set;
  let ofNested: AbortSignal | undefined;
  let ofTerm: AbortSignal | undefined;
  const stop = new AbortController();
  const work = new Promise<void>((resolve) =>
    stop.signal.addEventListener('abort', () => resolve()),
  );
  const requested = locks
    .request('taken:request', short, () =>
      locks.request('taken:request', { ...short, reentrant: true }, async (nested) => {
        ofNested = nested.signal;
        await work;
      }),
    )
    .catch(() => {});
  const leading = locks.lead('taken', { ...short, signal: stop.signal }, async (term) => {
    ofTerm = term.signal;
    await work;
  });
  await until(() => ofNested !== undefined && ofTerm !== undefined, 'the callbacks to begin');
  const signals = [signal, ofSet, ofNested, ofTerm];
  assert.deepEqual(
    signals.map((each) => each?.aborted),
    [false, false, false, false],
  );
  const order: string[] = [];
  locks.once('lost', () => order.push('lost'));
  // The proxy stops as well, so no renewal arrives.
  blockEventLoop(400);
  assert.deepEqual(
    signals.map((each) => each?.aborted),
    [true, true, true, true],
  );
  assert.throws(() => ofTerm?.throwIfAborted(), holdfast.LockLostError);
  order.push('read');
  await until(() => order.length === 2, 'the event');
  assert.deepEqual(order, ['read', 'lost']);
  assert.equal(lock.signal.reason, signal.reason);
  stop.abort();
  await Promise.all([requested, leading, lock.release(), set.release()]);
});

test('of several locks one that is lost is told for all', async () => {
  const set = await locks.acquire(['several:1', 'several:2'], { ttl: 60_000 });
  assert.equal(await direct.forceRelease('several:1'), true);
  await until(() => !set.held, 'the loss');
  assert.equal(await set.stopRenewing(), false);
  assert.equal(await set.release(), false);
  assert.equal(locks.stats().held, 0);
});

test('a lock that the server has lost cannot be downgraded, nor that of a manager that closes', async () => {
  const lock = await direct.acquire('down');
  await server.admin.del('lock:down');
  assert.equal(await lock.downgrade(), false);
  const own = await connect(server.url);
  const held = await own.acquire('down');
  const downgraded = held.downgrade();
  await Promise.all([own.close(), downgraded.then((is) => assert.equal(typeof is, 'boolean'))]);
});

test('a downgrade that the server refuses rejects, and the lock stays as it is', async () => {
  const lock = await direct.acquire('refused');
  await server.admin.del('lock:refused');
  await server.admin.rpush('lock:refused', 'of other code');
  await assert.rejects(lock.downgrade(), { code: 'ERR_LOCK_SERVER', lock: 'refused' });
  assert.deepEqual([lock.held, lock.mode], [true, 'exclusive']);
  await server.admin.del('lock:refused');
  assert.equal(await lock.release(), false);
});
