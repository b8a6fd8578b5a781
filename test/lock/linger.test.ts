/** Locks that a manager keeps for its next caller. */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import type { ConnectOptions } from 'holdfast';
import { closeManagers, connect, type LockManager } from '../support/holdfast.js';
import { serverOfFile } from '../support/server-of-file.js';
import { sleep, until } from '../support/wait.js';

const LONG = 3_000;

const server = serverOfFile();

afterEach(async () => {
  await closeManagers();
  assert.equal(await server.admin.exists('lock:x'), 0);
});

const manager = (options?: ConnectOptions) => connect(server.url, options);

/** A manager that keeps the lock `x`, and the fence of its last hold. */
async function idle(linger = LONG): Promise<[LockManager, number]> {
  const locks = await manager({ linger });
  const lock = await locks.acquire('x');
  assert.equal(await lock.release(), true);
  assert.deepEqual([locks.stats().held, locks.stats().idle], [0, 1]);
  return [locks, lock.fence];
}

test('a query of its manager finds it idle, until the next caller has it; others find it held', async () => {
  const [locks] = await idle();
  const other = await manager();
  const seen = async (from: LockManager) => (await from.query({ name: 'x' })).held[0];
  const kept = await seen(locks);
  assert.equal(kept?.state, 'idle');
  assert.ok((kept?.idleFor ?? -1) >= 0 && (kept?.idleFor ?? LONG) < LONG);
  const elsewhere = await seen(other);
  assert.deepEqual([elsewhere?.state, elsewhere?.idleFor], ['held', null]);
  await locks.request('x', async () => {
    const again = await seen(locks);
    assert.deepEqual([again?.state, again?.idleFor], ['held', null]);
  });
  // On memory: the same.
  const memory = await connect('memory:', { linger: LONG });
  await memory.request('y', () => {});
  assert.equal((await memory.query({ name: 'y' })).held[0]?.state, 'idle');
});

test('the next callers get the lock without a request, each with a greater fence', async () => {
  const [locks, first] = await idle();
  const { requests } = locks.stats();
  const fences = [first];
  for (let i = 0; i < 3; i++) await locks.request('x', ({ fence }) => fences.push(fence));
  const tried = await locks.tryAcquire('x');
  fences.push(tried?.fence ?? 0);
  await tried?.release();
  assert.equal(locks.stats().requests, requests);
  assert.deepEqual(
    fences,
    [...new Set(fences)].sort((a, b) => a - b),
  );
  assert.equal(await server.admin.exists('lock:x'), 1);
});

test('it is held for others, who wait for `linger` at most', async () => {
  const [locks] = await idle(200);
  const others = await manager();
  assert.equal(await others.tryAcquire('x'), null);
  // By its lease it would be held for ten seconds.
  await others.request('x', { wait: 5_000 }, () => {});
  assert.equal(locks.stats().idle, 0);
});

test('callers who are in no queue get a lock that is taken again and again', async () => {
  const locks = await manager({ linger: 300 });
  const others = await manager();
  let ends = false;
  const busy = (async () => {
    while (!ends) {
      await locks.request('x', { wait: 10_000 }, () => sleep(2));
      await sleep(20);
    }
  })();
  await until(() => locks.stats().handedOff > 0, 'an idle lock that is taken');
  const tries = async () => (await others.request('x', { ifAvailable: true }, (it) => it)) !== null;
  await until(tries, 'a try that gets it');
  const setNx = async () => (await server.admin.set('lock:x', 'old', 'PX', 5_000, 'NX')) !== null;
  await until(setNx, 'old code that gets it');
  await server.admin.del('lock:x');
  ends = true;
  await busy;
});

test('callers here and elsewhere share it, and each is alone', async () => {
  const all = await Promise.all([manager({ linger: 50 }), manager({ linger: 50 }), manager()]);
  let holders = 0;
  let last = 0;
  const runs = all.map(() => 0);
  const body = ({ fence }: { fence: number }, who: number) => {
    assert.equal(holders, 0);
    assert.ok(fence > last);
    last = fence;
    runs[who] = (runs[who] ?? 0) + 1;
  };
  const loop = async (locks: LockManager, who: number) => {
    for (let i = 0; i < 100; i++) {
      await locks.request('x', { wait: 60_000 }, async (lock) => {
        body(lock, who);
        holders += 1;
        await undefined;
        holders -= 1;
      });
    }
  };
  await Promise.all(all.map(loop));
  assert.deepEqual(runs, [100, 100, 100]);
});

test('closing releases it at once', async () => {
  const [locks] = await idle();
  await locks.close();
  assert.equal(await server.admin.exists('lock:x'), 0);
});

test('its loss is no event, and the next caller asks the server', async () => {
  const [locks, fence] = await idle();
  const lost: string[] = [];
  locks.on('lost', ({ name }) => lost.push(name));
  const others = await manager();
  const stolen = await others.acquire('x', { steal: true });
  await until(() => locks.stats().idle === 0, 'the message about the theft');
  await stolen.release();
  await locks.request('x', (lock) => assert.ok(lock.fence > fence));
  assert.deepEqual([lost, locks.stats().lost], [[], 0]);
});

test('a lock whose token was read does not linger', async () => {
  const locks = await manager({ linger: LONG });
  const lock = await locks.acquire('x');
  assert.match(lock.token, /^hf1/);
  await lock.release();
  assert.equal(locks.stats().idle, 0);
});

test('what needs the server gets it behind the release of the idle lock', async () => {
  const [locks, first] = await idle();
  await using share = await locks.acquire('x', { mode: 'shared' });
  assert.ok(share.fence > first);
  await share.release();
  await locks.request('x', () => {});
  assert.equal(locks.stats().idle, 1);
  await using both = await locks.acquire(['x', 'y']);
  assert.equal(both.held, true);
});

test('a blocked event loop does not lengthen it', async () => {
  const [locks] = await idle(100);
  const end = performance.now() + 1_000;
  while (performance.now() < end);
  // Nothing of this thread has run since: the release is there if the native thread has sent it.
  const { requests } = locks.stats();
  assert.equal(await server.admin.exists('lock:x'), 0);
  assert.equal(locks.stats().requests, requests);
});

test('at most `lingerMax` linger, the oldest go first', async () => {
  const locks = await manager({ linger: LONG, lingerMax: 2 });
  for (const name of ['x', 'y', 'z']) await locks.request(name, () => {});
  await until(async () => (await server.admin.exists('lock:x')) === 0, 'the release of the first');
  assert.equal(await server.admin.exists('lock:y', 'lock:z'), 2);
  assert.equal(locks.stats().idle, 2);
});

test('a lock of `runOnce` does not linger', async () => {
  const locks = await manager({ linger: LONG });
  await locks.runOnce('x', { slot: 'now' }, () => {});
  assert.equal(locks.stats().idle, 0);
});

test('a lock that is kept for longer than its first lease, with pauses, is not lost', async () => {
  const locks = await manager({ ttl: 1_500, linger: 500 });
  const fences = new Set<number>();
  for (let i = 0; i < 12; i++) {
    await locks.request('x', ({ fence }) => fences.add(fence));
    await sleep(200);
  }
  assert.equal(fences.size, 12);
  assert.equal(locks.stats().lost, 0);
});

test('it works in the store of the process', async () => {
  const locks = await connect('memory:', { linger: LONG });
  await locks.request('x', () => {});
  assert.equal(locks.stats().idle, 1);
  await locks.request('x', () => {});
  assert.equal(locks.stats().handedOff, 1);
});

test('what is no time of up to a third of the lease is refused', async () => {
  const locks = await manager({ ttl: 9_000 });
  const code = 'ERR_OUT_OF_RANGE';
  await assert.rejects(locks.acquire('x', { linger: 3_001 }), { code });
  await assert.rejects(locks.acquire('x', { linger: -1 }), { code });
  await assert.rejects(connect(server.url, { ttl: 900, linger: 301 }), { code });
  await assert.rejects(connect(server.url, { lingerMax: 0.5 }), { code });
  // A shorter lease than that of `connect` lingers for a third of it.
  const brief = await manager({ ttl: 9_000, linger: 3_000 });
  await brief.request('x', { ttl: 300 }, () => {});
  await until(() => brief.stats().idle === 0, 'the end of a short one', 2_000);
});
