/** A quorum in which the clock of one server is set an hour ahead, or back, while locks are in use. */

import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { NO_CLOCKS, SteppedServer } from '../../support/clock.js';
import { connect, type LockManager, openOperations } from '../../support/holdfast.js';
import { sleep, until } from '../../support/wait.js';

const HOUR = 3_600;

describe('the clock of one server of three is set', { skip: NO_CLOCKS ?? false }, () => {
  let servers: SteppedServer[] = [];
  let managers: LockManager[] = [];

  before(async () => {
    servers = await Promise.all([0, 1, 2].map(() => SteppedServer.start()));
  });
  afterEach(async () => {
    await Promise.all(managers.splice(0).map((each) => each.close()));
    for (const each of servers) {
      each.server.resume();
      await each.step(0);
      await each.server.admin.flushall();
    }
    assert.equal(openOperations(), 0);
  });
  after(() => Promise.all(servers.map((each) => each.stop())));

  async function open(longestLease = 0): Promise<LockManager[]> {
    const quorum = servers.map(({ server }) => server.url);
    managers = await Promise.all([0, 1, 2].map(() => connect({ quorum }, { longestLease })));
    return managers;
  }

  /** Sets the clock of the first server. */
  const set = (seconds: number) => servers[0]?.step(seconds);

  for (const [how, steps] of [
    ['an hour ahead and back again', [HOUR, 0]],
    ['an hour back and ahead again', [-HOUR, 0]],
    ['to and fro', [HOUR, -HOUR, HOUR, 0]],
  ] as const) {
    test(`${how}: a lock stays held, is renewed, and goes to its waiter`, async () => {
      const [a, b, c] = (await open()) as [LockManager, LockManager, LockManager];
      const held = await a.acquire('held', { ttl: 1_500 });
      let over = false;
      const waiting = b.acquire('held', { ttl: 1_500, wait: 60_000 }).finally(() => {
        over = true;
      });
      for (const seconds of steps) {
        await set(seconds);
        const { renewals } = a.stats();
        // More than a lease.
        await until(() => a.stats().renewals >= renewals + 5, 'five renewals more');
        assert.equal(held.held, true);
        assert.equal(over, false, 'somebody else waits no longer');
        assert.equal(await c.tryAcquire('held'), null);
      }
      await held.extend();
      assert.equal(await held.release(), true);
      const next = await waiting;
      assert.ok(next.fence > held.fence, 'fences rise');
      assert.equal(await next.release(), true);
    });
  }

  test('in the middle of a contest: one holder at a time, with rising fences', async () => {
    const contenders = await open();
    const fences: number[] = [];
    let inside = 0;
    let over = false;
    const contests = contenders.map(async (manager) => {
      while (!over) {
        const lock = await manager.acquire('x', { ttl: 1_000, wait: 60_000 });
        inside += 1;
        assert.equal(inside, 1, 'two hold it');
        fences.push(lock.fence);
        await sleep(1);
        inside -= 1;
        // Not asserted: a lock that only a bare majority has ends where the clock of one of these is set ahead.
        await lock.release();
      }
    });
    for (const seconds of [HOUR, 0, -HOUR, 0]) {
      await set(seconds);
      const { length } = fences;
      await until(() => fences.length > length + 50, 'the contest to go on');
    }
    over = true;
    await Promise.all(contests);
    assert.deepEqual(
      fences,
      [...fences].sort((one, other) => one - other),
    );
    assert.equal(new Set(fences).size, fences.length);
  });

  test('back: who keeps a lock for an hour too long there is outvoted', async () => {
    const [locks] = (await open()) as [LockManager];
    // The keys of a process that was killed.
    const dead = 'hf1.dead.1.1';
    await Promise.all(servers.map(({ server }) => server.admin.set('lock:x', dead, 'PX', 1_000)));
    await set(-HOUR);
    const lock = await locks.acquire('x', { ttl: 1_000, wait: 10_000 });
    await until(() => locks.stats().renewals > 3, 'three renewals');
    assert.match(String(await servers[0]?.server.admin.get('lock:x')), /^hf1\.dead\.1\.1/);
    assert.equal(await lock.release(), true);
  });

  test('back: by a new connection its uptime is less than nothing, and it votes again', async () => {
    const ttl = 1_000;
    const [locks] = (await open(ttl)) as [LockManager];
    await (await locks.acquire('x', { ttl, wait: 20_000 })).release();
    await set(-HOUR);
    await servers[0]?.server.killClients();
    // Without it there is no majority.
    servers[1]?.server.pause();
    const lock = await locks.acquire('x', { ttl, wait: 20_000 });
    assert.equal(await lock.release(), true);
  });
});
