/**
 * A lock, half of whose callers use old code: with `besideOldCode` both halves get their share, whether the lock is nearly
 * always held, half of the time, or seldom. Only the shares are compared, not times.
 */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import { Mutex as DropMutex } from 'holdfast/redis-semaphore';
import { Redlock as Drop5 } from 'holdfast/redlock';
import { Redlock as Drop4 } from 'holdfast/redlock4';
import type { Redis } from 'ioredis';
import { Mutex } from 'redis-semaphore';
import Redlock4 from 'redlock4';
import Redlock5 from 'redlock5';
import { connect, type LockManager } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';
import { sleep } from '../support/wait.js';
import { byHand } from './by-hand.js';

/** Callers of each kind. */
const CALLERS = 4;
const ENTRIES = 500;
/** How long a caller does not want the lock after its release, in ms on average: held nearly always, about half of the time, seldom. */
const PAUSES = { hot: 4, warm: 40, cold: 100 };
/** Longer than a run. */
const LONG_MS = 60_000;
const DELAYS = { retryDelay: 20, retryJitter: 10 };
const PATIENT = { ...DELAYS, retryCount: -1 };
const BESIDE = { ...PATIENT, besideOldCode: true };
const MUTEX = { lockTimeout: LONG_MS, acquireTimeout: LONG_MS, retryInterval: 20 };

/** Takes the lock in its own way, and answers how to release it. */
type Take = (name: string) => Promise<() => Promise<unknown>>;

let server: RedisServer;
const clients: Redis[] = [];
const managers: LockManager[] = [];

before(async () => {
  server = await RedisServer.start();
});

after(async () => {
  await Promise.all(managers.map((each) => each.close()));
  for (const each of clients) each.disconnect();
  await server.stop();
});

function client(): Redis {
  const made = server.client();
  clients.push(made);
  return made;
}

/** Callers of one manager. */
async function holdfast(options: object): Promise<Take> {
  const manager = await connect(server.url, options);
  managers.push(manager);
  return async (name) => {
    const lock = await manager.acquire(name, { wait: LONG_MS });
    return () => lock.release();
  };
}

function redlock5(redlock: Redlock5 | Drop5): Take {
  return async (name) => {
    const lock = await redlock.acquire([name], LONG_MS);
    return () => lock.release();
  };
}

function redlock4(redlock: Redlock4 | InstanceType<typeof Drop4>): Take {
  return async (name) => {
    const lock = await redlock.acquire([name], LONG_MS);
    return () => Promise.resolve(lock.unlock());
  };
}

function mutex(make: (name: string) => Mutex | DropMutex): Take {
  return async (name) => {
    const held = make(name);
    await held.acquire();
    return () => held.release();
  };
}

function loop(): Take {
  const own = client();
  const peer = byHand({
    setNx: (key, value, ttl) => own.set(key, value, 'PX', ttl, 'NX'),
    eval: (script, key, args) => own.eval(script, 1, key, ...args),
    close: async () => {},
  });
  return async (name) => {
    for (;;) {
      const held = await peer.tryAcquire(name, LONG_MS);
      if (held !== null) return () => held.release();
      await sleep(10 + Math.random() * 20);
    }
  };
}

/** The part of the entries that the old callers get. */
async function oldShare(old: Take, others: Take, pause = PAUSES.hot): Promise<number> {
  const name = `busy ${randomUUID()}`;
  const got = new Map([
    [old, 0],
    [others, 0],
  ]);
  let entries = 0;
  let inside = 0;
  const call = async (take: Take) => {
    while (entries < ENTRIES) {
      const release = await take(name);
      inside += 1;
      assert.equal(inside, 1, 'one holder at a time');
      entries += 1;
      got.set(take, (got.get(take) as number) + 1);
      await sleep(3);
      inside -= 1;
      await release();
      // Without this the holder would always be first again, with any code.
      await sleep(Math.random() * 2 * pause);
    }
  };
  const both = Array.from({ length: CALLERS }, () => [call(old), call(others)]);
  await Promise.all(both.flat());
  return (got.get(old) as number) / entries;
}

function assertFair(share: number): void {
  // Fair is a half; nobody gets less than 0.8 of that.
  assert.ok(share > 0.4 && share < 0.6, `the old code got ${share} of all entries`);
}

test('without the option a loop by hand starves', async () => {
  const share = await oldShare(loop(), await holdfast({ prefix: '' }));
  assert.ok(share < 0.25, `the old code got ${share} of all entries`);
});

for (const [heat, pause] of Object.entries(PAUSES)) {
  test(`beside a loop by hand: a ${heat} lock`, async () => {
    assertFair(
      await oldShare(loop(), await holdfast({ prefix: '', besideOldCode: DELAYS }), pause),
    );
  });
}

test('beside redlock 5: connect, and its drop-in', async () => {
  const old = redlock5(new Redlock5([client()], PATIENT));
  assertFair(await oldShare(old, await holdfast({ prefix: '', besideOldCode: DELAYS })));
  assertFair(await oldShare(old, redlock5(new Drop5([client()], BESIDE))));
});

test('beside redlock 4: its drop-in', async () => {
  const old = redlock4(new Redlock4([client()], PATIENT));
  assertFair(await oldShare(old, redlock4(new Drop4([client()], BESIDE))));
});

test('beside redis-semaphore: connect, and its drop-in', async () => {
  const [own, others] = [client(), client()];
  const old = mutex((name) => new Mutex(own, name, MUTEX));
  const besideOldCode = { retryDelay: 20, retryJitter: 0 };
  assertFair(await oldShare(old, await holdfast({ prefix: 'mutex:', besideOldCode })));
  const beside = { ...MUTEX, besideOldCode: true };
  assertFair(
    await oldShare(
      old,
      mutex((name) => new DropMutex(others, name, beside)),
    ),
  );
});
