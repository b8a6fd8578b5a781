/** Slots move from server to server while their locks are contended. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cluster } from '../../support/cluster.js';
import { connect, type LockManager, openOperations } from '../../support/holdfast.js';
import type { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

const MANAGERS = 3;
const CALLERS = 4;
const NAMES = ['stock:{fair}:1', 'stock:{fair}:2', 'stock:{fair}:3'];
const MOVES = 6;

let cluster: Cluster;

before(async () => {
  cluster = await Cluster.start({ spare: 1 });
});

after(() => cluster.stop());

/** The resource of a lock: one user at a time, with rising fences. */
class Resource {
  fence = 0;
  uses = 0;
  #busy = false;

  async use(fence: number): Promise<void> {
    assert.ok(!this.#busy, 'two at a time');
    assert.ok(fence > this.fence, `the fence ${fence} after ${this.fence}`);
    this.#busy = true;
    this.fence = fence;
    await new Promise(setImmediate);
    this.uses += 1;
    this.#busy = false;
  }
}

/** All managers request the locks of a slot, which moves a few times to the server that `next` names. */
async function moveUnderLoad(
  moves: number,
  urls: string[],
  next: (move: number, others: RedisServer[]) => RedisServer | undefined,
): Promise<void> {
  const managers = await Promise.all(
    Array.from({ length: MANAGERS }, () => connect({ cluster: urls })),
  );
  const resources = new Map(NAMES.map((name) => [name, new Resource()]));
  let over = false;
  const work = async (locks: LockManager, name: string) => {
    const resource = resources.get(name) as Resource;
    while (!over) {
      await locks.request(name, { ttl: 10_000, wait: 30_000 }, (lock) => resource.use(lock.fence));
    }
  };
  const working = managers.flatMap((locks) =>
    Array.from({ length: CALLERS }, (_, index) =>
      work(locks, NAMES[index % NAMES.length] as string),
    ),
  );
  try {
    const slot = await cluster.slotOf('{fair}');
    for (let move = 0; move < moves; move += 1) {
      const from = await cluster.primaryOf(slot);
      const others = (await cluster.primaries()).filter((node) => node !== from);
      const to = next(move, others);
      if (to === undefined) throw new Error('one primary alone');
      await cluster.moveSlot(slot, to);
      const before = [...resources.values()].map(({ uses }) => uses);
      // All managers go on at the new server before the next move.
      while ([...resources.values()].some(({ uses }, index) => uses < (before[index] ?? 0) + 20)) {
        await Promise.race([new Promise((resolve) => setTimeout(resolve, 5)), ...working]);
      }
    }
  } finally {
    over = true;
    await Promise.all(working);
    await Promise.all(managers.map((locks) => locks.close()));
  }
  assert.ok(managers.every((locks) => locks.stats().lost === 0));
  assert.equal(openOperations(), 0);
}

test('a slot that moves under load costs nobody a lock, an order or an error', async () => {
  await moveUnderLoad(MOVES, cluster.urls, (move, others) => others[move % others.length]);
});

test('nor does one that moves to a primary that had none before', async () => {
  const spare = cluster.nodes.at(-1);
  // The managers do not know this server: they learn of it by a redirection.
  await moveUnderLoad(1, cluster.urls.slice(0, -1), () => spare);
});

test('shares and permits are kept and given up while their slot moves for longer than a lease', async () => {
  const locks = await connect({ cluster: cluster.urls });
  const options = { mode: 'shared', ttl: 2_000 } as const;
  const share = await locks.acquire('{slow}', options);
  const permits = await Promise.all(
    [1, 2].map(() => locks.acquire('{slow}:permits', { ...options, limit: 2 })),
  );
  const slot = await cluster.slotOf('{slow}');
  const from = await cluster.primaryOf(slot);
  const to = (await cluster.primaries()).find((node) => node !== from);
  if (to === undefined) throw new Error('one primary alone');
  const move = await cluster.startMove(slot, to);
  const renewals = locks.stats().renewals;
  // Each is renewed a few times, which takes longer than a lease.
  await until(() => locks.stats().renewals >= renewals + 15, 'renewals while the slot moves');
  assert.ok([share, ...permits].every(({ held }) => held));
  assert.equal(await share.release(), true);
  assert.equal(await permits[0]?.release(), true);
  await move.keys();
  await move.finish();
  await until(() => locks.stats().renewals >= renewals + 25, 'renewals at the new place');
  assert.equal(await permits[1]?.release(), true);
  assert.equal(locks.stats().lost, 0);
  await locks.close();
});

test('servers that contradict each other about a slot are not asked without end, and the error tells', async () => {
  const locks = await connect({ cluster: cluster.urls });
  const slot = await cluster.slotOf('{torn}');
  const from = await cluster.primaryOf(slot);
  const to = (await cluster.primaries()).find((node) => node !== from);
  if (to === undefined) throw new Error('one primary alone');
  const move = await cluster.startMove(slot, to);
  // Each says from now on that the other one has it: the resharding stops here.
  await from.admin.cluster('SETSLOT', slot, 'NODE', move.toId);
  const before = locks.stats().requests;
  await assert.rejects(locks.acquire('{torn}', { wait: 1_000 }), {
    serverCode: 'REDIRECTED',
    message: new RegExp(`slot ${slot} .*redis-cli --cluster fix`),
  });
  const asked = locks.stats().requests - before;
  assert.ok(asked >= 2 && asked < 200, `${asked} requests in a second`);
  await move.finish();
  const lock = await locks.acquire('{torn}', { wait: 30_000 });
  assert.ok(await lock.release());
  await locks.close();
  assert.equal(openOperations(), 0);
});
