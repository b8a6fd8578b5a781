/** Holding a lock, learning of its loss, working under it, and cancelling an acquire. */

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { connect, type Lock, type LockManager, openOperations } from '../support/holdfast.js';
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

test('renewal: an event loop that is blocked for three leases does not lose the lock', async () => {
  const lock = await direct.acquire('blocked', { ttl: 1_000 });
  blockEventLoop(3_000);
  assert.equal(lock.held, true);
  lock.assertHeld();
  assert.equal(await server.admin.get('lock:blocked'), lock.token);
  assert.equal(await lock.release(), true);
});

test('renewal: ends with the release, and the lock can be taken by others', async () => {
  const lock = await locks.acquire('ended', { ttl: 1_000 });
  await renewal(lock);
  assert.equal(await lock.release(), true);
  assert.equal(await server.admin.exists('lock:ended'), 0);
  const other = await direct.acquire('ended', { ttl: 60_000, renew: false });
  // The next renewal would have come by now.
  await sleep(500);
  assert.equal(await server.admin.get('lock:ended'), other.token);
  assert.equal(await other.release(), true);
});

test('stallTimeout: a process that hangs does not hold for ever', async () => {
  const lock = await direct.acquire('stalled', { ttl: 1_000, stallTimeout: 300 });
  const reason = aborted(lock);
  // One renewal comes before the limit, so the lease ends after 1.3 s.
  blockEventLoop(2_200);
  assert.equal(lock.held, false, 'in the first line after');
  assert.equal(((await reason) as { reason: string }).reason, 'stalled');
});

test('maxHold: the lock is given up, and its holder is told', async () => {
  const lock = await direct.acquire('max', { ttl: 1_000, maxHold: 1_500 });
  const error = (await aborted(lock)) as Error & { reason: string };
  assert.equal(error.reason, 'maxHold');
  assert.match(error.message, /lock "max".*maxHold/);
  assert.equal(lock.held, false);
  await becomesFree('max');
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

test('loss: of a lock that nobody watched, the signal tells afterwards', async () => {
  const lock = await locks.acquire('unwatched', { ttl: 100, renew: false });
  await until(() => !lock.held, 'the lease to end');
  await until(() => lock.signal.aborted, 'the signal');
});

test('loss: `held` tells in the middle of a turn, the signal in a later one', async () => {
  const lock = await locks.acquire('polled', { ttl: 100, renew: false });
  assert.equal(lock.signal.aborted, false);
  while (lock.held);
  assert.equal(lock.signal.aborted, false, 'no listener runs in the middle of other code');
  assert.throws(() => lock.assertHeld(), { code: 'ERR_LOCK_LOST' });
  assert.equal(((await aborted(lock)) as { reason: string }).reason, 'expired');
});

test('loss: while the event loop was blocked and the grant not read yet', async () => {
  const pending = direct.acquire('unread', { ttl: 500, renew: false });
  await Promise.resolve();
  blockEventLoop(1_200);
  const lock = await pending;
  assert.equal(lock.held, false);
  assert.equal(((await aborted(lock)) as { reason: string }).reason, 'expired');
});

test('request: holds the lock while the callback runs, and returns its result', async () => {
  const result = await locks.request('work', async (lock) => {
    assert.equal(await server.admin.get('lock:work'), lock.token);
    return lock.name.length;
  });
  assert.equal(result, 4);
  assert.equal(await server.admin.exists('lock:work'), 0);
  assert.equal(await locks.request('work', { ttl: 1_000 }, () => 'not a promise'), 'not a promise');
});

test("request: the callback's own error wins, and the lock is released", async () => {
  const failure = new Error('mine');
  const failing = locks.request('fails', () => {
    throw failure;
  });
  await assert.rejects(failing, (error) => error === failure);
  assert.equal(await server.admin.exists('lock:fails'), 0);

  const lost = locks.request('fails', async (lock) => {
    await server.admin.del('lock:fails');
    await lock.extend().catch(() => {});
    throw failure;
  });
  await assert.rejects(lost, (error) => error === failure);
});

test('request: a loss is reported with the result of the callback', async () => {
  const lost = locks.request('loses', { ttl: 200 }, async (lock) => {
    await server.admin.del('lock:loses');
    await aborted(lock);
    return 42;
  });
  await assert.rejects(lost, { code: 'ERR_LOCK_LOST', reason: 'expired', result: 42 });
});

test('request: a callback that releases the lock itself has lost nothing', async () => {
  const result = await locks.request('early', async (lock) => {
    await lock.release();
    return 'done';
  });
  assert.equal(result, 'done');
});

test('request: waits without a deadline unless told otherwise', async () => {
  const brief = await connect(server.url, { wait: 50 });
  const holder = await locks.acquire('patient');
  const impatient = [
    brief.acquire('patient'),
    brief.request('patient', () => {}),
    locks.request('patient', { wait: 50 }, () => {}),
  ];
  const refused = { code: 'ERR_LOCK_TIMEOUT' };
  await Promise.all(impatient.map((waiting) => assert.rejects(waiting, refused)));
  const patient = brief.request('patient', { wait: Number.POSITIVE_INFINITY }, () => 'got it');
  const byDefault = locks.request('patient', () => 'got it, too');
  await sleep(150);
  await holder.release();
  assert.deepEqual(await Promise.all([patient, byDefault]), ['got it', 'got it, too']);
  await brief.close();
});

test('signal: an aborted one sends nothing', async () => {
  const before = proxy.requestBytes;
  const reason = new Error('not today');
  const refused = locks.acquire('never', { signal: AbortSignal.abort(reason) });
  await assert.rejects(refused, (error) => error === reason);
  assert.equal(proxy.requestBytes, before);
});

test('signal: ends the wait at once, with its own reason, and leaves nothing behind', async () => {
  const holder = await locks.acquire('awaited');
  const controller = new AbortController();
  const waiting = locks.acquire('awaited', {
    wait: Number.POSITIVE_INFINITY,
    signal: controller.signal,
  });
  await sleep(50);
  controller.abort();
  await assert.rejects(waiting, (error) => error === controller.signal.reason);
  assert.equal(openOperations(), 0);
  await holder.release();
  const again = await locks.tryAcquire('awaited');
  assert.ok(again !== null);
  await again.release();
});

test('signal: one ends any number of waits, and Node takes them for no leak', async () => {
  const warnings: Error[] = [];
  const listen = (warning: Error) => warnings.push(warning);
  process.on('warning', listen);
  const holder = await locks.acquire('besieged');
  const controller = new AbortController();
  const wait = { wait: Number.POSITIVE_INFINITY, signal: controller.signal };
  const waiting = Array.from({ length: 30 }, () => locks.acquire('besieged', wait));
  const ended = Promise.allSettled(waiting);
  // One more that has its lock: it is not one of those that wait.
  const other = await locks.acquire('beside', wait);
  controller.abort();
  for (const end of await ended) {
    assert.equal(end.status, 'rejected');
    assert.equal(end.reason, controller.signal.reason);
  }
  assert.equal(openOperations(), 0);
  assert.equal(other.held, true);
  await Promise.all([holder.release(), other.release()]);
  process.off('warning', listen);
  assert.deepEqual(warnings, []);
});

test('signal: an abort in the very moment of the grant never leaves the lock held', async () => {
  const fate = { aborted: 0, granted: 0 };
  for (let round = 0; round < 300; round++) {
    const controller = new AbortController();
    const pending = locks.acquire('crossing', { signal: controller.signal, ttl: 60_000 });
    const moment = round % 3;
    if (moment === 0) controller.abort();
    if (moment === 1) queueMicrotask(() => controller.abort());
    if (moment === 2) setImmediate(() => controller.abort());
    await pending.then(
      async (lock) => {
        fate.granted += 1;
        await lock.release();
      },
      () => {
        fate.aborted += 1;
      },
    );
  }
  assert.ok(fate.aborted > 0, JSON.stringify(fate));
  await becomesFree('crossing');
});

test('signal: an abort never ends another operation, whatever happens in the same turn', async () => {
  const controller = new AbortController();
  const lossy = await direct.acquire('lossy', { ttl: 500, renew: false });
  let fresh: Promise<Lock> | undefined;
  lossy.signal.addEventListener('abort', () => {
    // The acquire below has just ended, and its name is free for this one.
    fresh = direct.acquire('fresh');
    controller.abort();
  });
  const ended = direct.acquire('ended', { signal: controller.signal }).catch(() => undefined);
  await Promise.resolve();
  await Promise.resolve();
  blockEventLoop(800);
  await until(() => fresh !== undefined, 'the loss');
  assert.equal(await (await fresh)?.release(), true);
  await (await ended)?.release();
});

test('signal: an abort after the grant has no effect', async () => {
  const controller = new AbortController();
  const lock = await locks.acquire('granted', { signal: controller.signal });
  controller.abort();
  assert.equal(lock.held, true);
  assert.equal(lock.signal.aborted, false);
  assert.equal(await lock.release(), true);
});
