/** Locks on a Cluster: each on the server of its slot, and waiters with messages on shard channels. */

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { Cluster } from '../../support/cluster.js';
import { slotOf } from '../../support/hash-slots.js';
import { connect, type Lock, type LockManager, openOperations } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';

let cluster: Cluster;
let a: LockManager;
let b: LockManager;

before(async () => {
  cluster = await Cluster.start();
});

after(() => cluster.stop());

beforeEach(async () => {
  const target = { cluster: cluster.urls };
  [a, b] = await Promise.all([connect(target), connect(target)]);
});

afterEach(async () => {
  await Promise.all([a.close(), b.close()]);
  assert.equal(openOperations(), 0);
});

const LONG = { ttl: 60_000, wait: 60_000 };

async function primaryOf(name: string) {
  return cluster.primaryOf(await cluster.slotOf(`lock:${name}`));
}

/** Waits until a lock has this number of waiters in its queue. */
async function untilQueued(name: string, count: number): Promise<void> {
  const primary = await primaryOf(name);
  const queue = name.includes('{') ? `lock:${name}::queue` : `{lock:${name}}:queue`;
  await until(
    async () => (await primary.admin.zcard(queue)) === count,
    `${count} in the wait queue`,
  );
}

test('a lock lives on the server of its slot, with everything beside it', async () => {
  const names = Array.from({ length: 60 }, (_, index) =>
    index % 2 === 0 ? `item:${index}` : `cart:{${index}}:total`,
  );
  const locks = await Promise.all(names.map((name) => a.acquire(name, LONG)));
  for (const [index, name] of names.entries()) {
    const primary = await primaryOf(name);
    assert.equal(await primary.admin.get(`lock:${name}`), locks[index]?.token);
    assert.equal(await b.tryAcquire(name), null);
  }
  const used = new Set(await Promise.all(names.map(primaryOf)));
  assert.equal(used.size, 3, 'the locks are spread');
  assert.ok((await Promise.all(locks.map((lock) => lock.release()))).every(Boolean));
  assert.ok(await (await b.acquire('item:0')).release());
});

/** The keys of all servers, with their lives. */
async function keyspace(): Promise<Record<string, { type: string; ttl: number }>> {
  const all = await Promise.all(cluster.nodes.map((node) => node.keyspace()));
  return Object.assign({}, ...all);
}

/** The least number in each slot. */
function leastNumbers(): Map<number, number> {
  const numbers = new Map<number, number>();
  for (let number = 0; numbers.size < 16_384; number++) {
    const slot = slotOf(String(number));
    if (!numbers.has(slot)) numbers.set(slot, number);
  }
  return numbers;
}

test('names that are used once leave nothing but a counter in each slot that had one', async () => {
  await Promise.all(cluster.nodes.map(({ admin }) => admin.flushall()));
  const names = Array.from({ length: 400 }, (_, index) =>
    index % 2 === 0 ? `order:${index}` : `cart:{${index % 50}}:${index}`,
  );
  await Promise.all(
    names.map(async (name, index) => {
      const mode = index % 4 === 0 ? 'shared' : 'exclusive';
      const lock = await a.acquire(name, { ...LONG, mode });
      // Some have a waiter.
      const next = index % 10 === 1 ? b.acquire(name, LONG) : undefined;
      await lock.release();
      await (await next)?.release();
    }),
  );
  const slots = new Set(await Promise.all(names.map((name) => cluster.slotOf(`lock:${name}`))));
  assert.ok(slots.size > 200 && slots.size < 300, `${slots.size} slots`);
  const least = leastNumbers();
  const counters = [...slots].map((slot) => `holdfast:{${least.get(slot)}}:fence`);
  const left = await keyspace();
  assert.deepEqual(Object.keys(left).sort(), counters.sort());
  for (const { type, ttl } of Object.values(left)) {
    assert.deepEqual([type, ttl], ['string', -1]);
  }
  // Names in a slot have one counter together, which each manager may have to lift once.
  for (const manager of [a, b]) await (await manager.acquire('{order}:0')).release();
  const [one, two] = [await a.acquire('{order}:1'), await b.acquire('{order}:2')];
  assert.equal(two.fence, one.fence + 1);
  await Promise.all([one.release(), two.release()]);
});

test('a waiter is told when its turn has come', async () => {
  for (const name of ['item:1', 'cart:{1}']) {
    const held = await a.acquire(name, LONG);
    const waiting = b.acquire(name, LONG);
    await untilQueued(name, 1);
    const primary = await primaryOf(name);
    await until(
      async () => ((await primary.admin.pubsub('SHARDCHANNELS')) as string[]).length > 0,
      'somebody to listen',
    );
    const before = b.stats().requests;
    assert.ok(await held.release());
    const lock = await waiting;
    assert.ok(lock.fence > held.fence);
    // Once after subscribing, then the claim, with the script's text where the server lacks it.
    const asked = b.stats().requests - before;
    assert.ok(asked <= 3, `${asked} requests`);
    await lock.release();
  }
});

test('those who wait are served in their order', async () => {
  const order: number[] = [];
  const held = await a.acquire('queue', LONG);
  const done: Promise<unknown>[] = [];
  for (let index = 0; index < 6; index += 1) {
    const manager = await connect({ cluster: cluster.urls });
    done.push(
      manager.request('queue', LONG, () => order.push(index)).finally(() => manager.close()),
    );
    await untilQueued('queue', index + 1);
  }
  await held.release();
  await Promise.all(done);
  assert.deepEqual(order, [0, 1, 2, 3, 4, 5]);
});

test('a name whose braces are no hash tag is refused before anything is sent', async () => {
  for (const name of ['a}b', '{}x', '{}{a}']) {
    await assert.rejects(a.acquire(name), { code: 'ERR_INVALID_ARG_VALUE', name: 'TypeError' });
  }
  for (const name of ['{a}b', 'a{b', '}{a}x']) {
    assert.ok(await (await a.acquire(name)).release(), name);
  }
});

test('a lock whose slot moves is renewed, waited for and released there', async () => {
  const held = await a.acquire('mover', { ttl: 1_000, wait: 10_000 });
  const waiting = b.acquire('mover', LONG);
  await untilQueued('mover', 1);
  const slot = await cluster.slotOf('lock:mover');
  const from = await cluster.primaryOf(slot);
  const [to] = (await cluster.primaries()).filter((node) => node !== from);
  if (to === undefined) throw new Error('one primary alone');
  await cluster.moveSlot(slot, to);
  const renewals = a.stats().renewals;
  await until(() => a.stats().renewals > renewals + 1, 'renewals at the new place');
  assert.ok(held.held);
  assert.equal((await to.admin.get('lock:mover'))?.replace(/\+$/, ''), held.token);
  assert.ok(await held.release());
  const lock = await waiting;
  assert.ok(lock.fence > held.fence);
  assert.ok(await lock.release());
});

test('a lock is released and renewed while its slot is half way', async () => {
  const names = ['half:{way}:1', 'half:{way}:2', 'half:{way}:3'];
  const locks = await Promise.all(
    names.map((name) => a.acquire(name, { ttl: 1_500, wait: 20_000 })),
  );
  const slot = await cluster.slotOf('lock:half:{way}:1');
  const from = await cluster.primaryOf(slot);
  const [to] = (await cluster.primaries()).filter((node) => node !== from);
  if (to === undefined) throw new Error('one primary alone');
  const move = await cluster.startMove(slot, to);
  const renewals = a.stats().renewals;
  await until(() => a.stats().renewals > renewals + 6, 'renewals meanwhile');
  assert.ok(await locks[0]?.release(), 'what is still here is released');
  await move.keys();
  assert.ok(await locks[1]?.release(), 'what has gone ahead is released');
  // A new lock needs all its keys in one place: it is taken as soon as that is so.
  const taking = b.acquire('half:{way}:1', { ttl: 5_000, wait: 20_000 });
  await move.finish();
  const taken: Lock = await taking;
  assert.ok(taken.fence > (locks[0]?.fence ?? 0));
  assert.ok(locks[2]?.held);
  assert.ok(await locks[2]?.release());
  assert.ok(await taken.release());
});

for (const moved of ['the lock', 'the set of its shares']) {
  test(`shares whose keys are on two servers are renewed and extended: ${moved} has gone ahead`, async () => {
    const share = { mode: 'shared', limit: 3, ttl: 1_500, wait: 20_000 } as const;
    const name = `apart:${moved}`;
    const one = await a.acquire(name, share);
    const two = await b.acquire(name, share);
    const lost: string[] = [];
    for (const manager of [a, b]) manager.on('lost', (lock) => lost.push(lock.name));
    const slot = await cluster.slotOf(`lock:${name}`);
    const from = await cluster.primaryOf(slot);
    const [to] = (await cluster.primaries()).filter((node) => node !== from);
    if (to === undefined) throw new Error('one primary alone');
    const move = await cluster.startMove(slot, to);
    await move.keys((key) => (key === `lock:${name}`) === (moved === 'the lock'));
    await one.extend(2_000);
    const before = [a, b].map((manager) => manager.stats().renewals);
    await until(
      () => [a, b].every((manager, i) => manager.stats().renewals > (before[i] ?? 0) + 4),
      'renewals of both shares, longer than their leases',
    );
    assert.deepEqual(lost, []);
    const { held } = await b.query({ name });
    assert.deepEqual(new Set(held.map(({ token }) => token)), new Set([one.token, two.token]));
    await move.keys();
    await move.finish();
    assert.ok(await one.release());
    assert.ok(await two.release());
    assert.ok(await (await a.acquire(name, LONG)).release());
  });
}

test('a query shows every lock while a slot moves', async () => {
  const [owner] = await cluster.primaries();
  if (owner === undefined) throw new Error('no primary');
  const names = Array.from({ length: 20 }, (_, index) => `{seen}:${index}`);
  const modeOf = (index: number) => (index % 2 === 0 ? 'exclusive' : 'shared');
  const locks = await Promise.all(
    names.map((name, index) => a.acquire(name, { ...LONG, mode: modeOf(index) })),
  );
  const second = await b.acquire('{seen}:1', { ...LONG, mode: 'shared' });
  const waiting = b.acquire('{seen}:0', LONG);
  await untilQueued('{seen}:0', 1);
  const seen = async () => {
    const { held, pending } = await b.query({ startsWith: '{seen}' });
    const shown = held.map(({ name, mode, token }) => `${name} ${mode} ${token}`);
    const expected = locks.map(({ name, mode, token }) => `${name} ${mode} ${token}`);
    expected.push(`{seen}:1 shared ${second.token}`);
    assert.deepEqual(shown.sort(), expected.sort());
    assert.deepEqual(
      pending.map(({ name, position }) => ({ name, position })),
      [{ name: '{seen}:0', position: 1 }],
    );
    for (const name of ['{seen}:0', '{seen}:1']) {
      const one = await b.query({ name });
      assert.equal(one.held.length, name === '{seen}:0' ? 1 : 2);
    }
  };
  await seen();
  const slot = await cluster.slotOf('lock:{seen}:0');
  // In both directions: to a server that a query reads later, and to one that it reads earlier.
  const from = await cluster.primaryOf(slot);
  for (const to of [...(await cluster.primaries()).filter((node) => node !== from), from]) {
    const move = await cluster.startMove(slot, to);
    await seen();
    await move.keys((key) => /:(queue|shared|[0-9])$/.test(key));
    await seen();
    await move.keys();
    await seen();
    await move.finish();
    await seen();
  }
  await Promise.all([...locks, second].map((lock) => lock.release()));
  await (await waiting).release();
});

test('a query meets a slot that moves to a server which it has read', async () => {
  const names = Array.from({ length: 40 }, (_, index) => `{met}:${index}`);
  const locks = await Promise.all(names.map((name) => a.acquire(name, LONG)));
  const slot = await cluster.slotOf('lock:{met}:0');
  for (let round = 0; round < 3; round += 1) {
    const from = await cluster.primaryOf(slot);
    for (const to of (await cluster.primaries()).filter((node) => node !== from)) {
      const found = new Set<string>();
      let first = true;
      for await (const { held } of b.queryPages({ startsWith: '{met}' })) {
        for (const { name } of held) found.add(name);
        // Its first server was read.
        if (first) await cluster.moveSlot(slot, to);
        first = false;
      }
      assert.deepEqual([...found].sort(), [...names].sort());
      await cluster.moveSlot(slot, from);
    }
  }
  await Promise.all(locks.map((lock) => lock.release()));
});

test('a numbered database is refused by servers whose Cluster has none', async () => {
  const target = { cluster: cluster.urls.map((url) => `${url}/3`) };
  await assert.rejects(
    connect(target),
    /SELECT is not allowed in cluster mode|DB index is out of range/,
  );
});

test('a server that starts again without its data: what it had is told lost, renewed or not', async () => {
  const kinds = [
    { renew: true },
    { renew: false },
    { renew: false, leaveToExpire: true },
    { renew: false, mode: 'shared', limit: 2 },
  ] as const;
  const held = await Promise.all(
    kinds.map((kind, i) => a.acquire(`lost:{one}:${i}`, { ...LONG, ...kind })),
  );
  const reasons = new Set<string>();
  a.on('lost', ({ name }, { reason }) => reasons.add(`${name} ${reason}`));
  await (await primaryOf('lost:{one}:0')).restart();
  await until(() => reasons.size === held.length, 'every loss to be told');
  assert.deepEqual([...reasons].sort(), held.map(({ name }) => `${name} expired`).sort());
});
