/** The delay that a dead or silent holder causes for the next waiter. */

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { Contender, labelOf } from '../../support/crew.js';
import { connect, type LockManager } from '../../support/holdfast.js';
import { Ledger } from '../../support/ledger.js';
import { RedisServer } from '../../support/server.js';
import { sleep, until } from '../../support/wait.js';

let server: RedisServer;
let ledger: Ledger;
let waiter: LockManager;
const crew: Contender[] = [];

before(async () => {
  [server, ledger] = await Promise.all([RedisServer.start(), Ledger.start()]);
  waiter = await connect(server.url);
});

afterEach(async () => {
  await Promise.all(crew.splice(0).map((each) => each.kill()));
});

after(async () => {
  await waiter.close();
  await Promise.all([server.stop(), ledger.stop()]);
});

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

/** The end of each lock's lease by the server's clock, and its owner. */
const LEASES = `
  local time = redis.call('TIME')
  local leases = {}
  for i, key in ipairs(KEYS) do
    leases[i] = { redis.call('GET', key) or '', time[1] * 1000 + math.floor(time[2] / 1000) + redis.call('PTTL', key) }
  end
  return leases
`;

const TTL = 2_000;
const ROUNDS = 20;

for (const [fate, end] of [
  ['killed', (holder: Contender) => holder.kill()],
  ['stopped', (holder: Contender) => holder.pause()],
] as const) {
  test(`a holder that is ${fate} delays the next one by its lease and no more`, async () => {
    const holder = await Contender.start(fate, server.url, ledger);
    crew.push(holder);
    const names = Array.from({ length: ROUNDS }, (_, i) => `${fate}:${i}`);
    for (const name of names) {
      await holder.order('hold', name, { ttl: TTL });
      // Their renewals, and so the ends of their leases, do not fall into one moment.
      await sleep(TTL / 3 / ROUNDS);
    }
    // One server and one machine: Date.now and the server's clock are the same.
    const granted = new Map<string, number>();
    const locks = names.map(async (name) => {
      const lock = await waiter.acquire(name, { ttl: 60_000, wait: 60_000 });
      granted.set(name, Date.now());
      return lock;
    });
    const untilQueued = async (name: string) =>
      (await server.admin.zcard(`{lock:${name}}:queue`)) === 1;
    await until(
      async () => (await Promise.all(names.map(untilQueued))).every((is) => is),
      'all waiters to be queued',
    );
    await end(holder);

    // The last reading of each lease while the holder owns it: no renewal changes it any more.
    const ends = new Map<string, number>();
    const keys = names.map((name) => `lock:${name}`);
    await until(async () => {
      const leases = (await server.admin.eval(LEASES, ROUNDS, ...keys)) as [string, number][];
      for (const [i, [owner, at]] of leases.entries()) {
        if (labelOf(owner) === fate) ends.set(names[i] ?? '', at);
      }
      return granted.size === ROUNDS;
    }, 'all locks to be granted');
    for (const lock of await Promise.all(locks)) await lock.release();

    const delays = names.map((name) => (granted.get(name) ?? 0) - (ends.get(name) ?? 0));
    const told = delays.sort((x, y) => x - y).join();
    assert.ok(Math.min(...delays) >= -1, `nobody came before the end of the lease: ${told}`);
    // A waiter that misses the end asks again seconds later.
    assert.ok(median(delays) <= 500, `ms from the end of the lease to the grant: ${told}`);
  });
}

test('a foreign holder that deletes its key and tells nobody is noticed by the next poll', async () => {
  const names = Array.from({ length: ROUNDS }, (_, i) => `foreign:${i}`);
  const delays = names.map(async (name, i) => {
    await server.admin.set(`lock:${name}`, 'x', 'PX', 60_000);
    const pending = waiter.acquire(name, { wait: 60_000 });
    await until(
      async () => (await server.admin.zcard(`{lock:${name}}:queue`)) === 1,
      'the waiter to be queued',
    );
    // A random moment between two polls.
    await sleep(300 + i * 37);
    const deleted = performance.now();
    await server.admin.del(`lock:${name}`);
    const lock = await pending;
    const delay = performance.now() - deleted;
    await lock.release();
    return delay;
  });
  const all = (await Promise.all(delays)).map(Math.round).sort((x, y) => x - y);
  // Polls are 140 ms apart at most, and those behind a holder that tells are seconds apart.
  assert.ok(median(all) <= 1_000, `ms: ${all.join()}`);
});
