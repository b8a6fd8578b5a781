/** Locks on a Cluster: each on the server of its slot, and waiters with messages on shard channels. */

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { Cluster } from '../../support/cluster.js';
import { connect, type Lock, type LockManager, openOperations } from '../../support/holdfast.js';
import { slotOf } from '../../support/slots.js';
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

test('a lock whose slot is half way hides none of the others from a query', async () => {
  const names = Array.from({ length: 30 }, (_, index) => `seen:${index}`);
  await Promise.all(names.map((name) => a.acquire(name, LONG)));
  const [from, to] = await cluster.primaries();
  if (from === undefined || to === undefined) throw new Error('one primary alone');
  // The first that the server is asked about: some of its keys are there, and the rest do not exist.
  const [, keys] = await from.admin.scan(0, 'MATCH', 'lock:seen:*', 'COUNT', 1_000);
  const first = keys[0] ?? '';
  const move = await cluster.startMove(await cluster.slotOf(first), to);
  await from.admin.script('FLUSH');
  const { held } = await b.query({ startsWith: 'seen:' });
  assert.deepEqual(
    held.map(({ name }) => name),
    names.filter((name) => `lock:${name}` !== first).sort(),
  );
  await move.keys();
  await move.finish();
  assert.equal((await b.query({ startsWith: 'seen:' })).held.length, names.length);
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
