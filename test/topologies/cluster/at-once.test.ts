/** Clusters whose slots move at once, by one command: Valkey from 9.0 on, with numbered databases, and Redis from 8.4 on. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { delimiter } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { Cluster } from '../../support/cluster.js';
import { connect, type LockManager } from '../../support/holdfast.js';
import type { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

const NAME = 'stock:{fair}';
const MOVES = 4;
const DATABASE = 3;

let cluster: Cluster;

/** Which of the servers that `HOLDFAST_SERVERS` names says this of its version, or the reason for leaving out a suite. */
function serverThatSays(version: RegExp, name: string): { binary?: string; skip: string | false } {
  const files = (process.env['HOLDFAST_SERVERS'] ?? '').split(delimiter).filter(Boolean);
  const says = (file: string) => execFileSync(file, ['--version'], { encoding: 'utf8' });
  const binary = files.find((file) => version.test(says(file)));
  if (binary !== undefined) return { binary, skip: false };
  return { skip: `HOLDFAST_SERVERS names no ${name}; .ci/servers fetches one` };
}

async function pair(path = ''): Promise<[LockManager, LockManager]> {
  const target = { cluster: cluster.urls.map((url) => `${url}${path}`) };
  return [await connect(target), await connect(target)];
}

/** Moves the slot of the locks to another primary. */
async function move(): Promise<void> {
  const slot = await cluster.slotOf('{fair}');
  const from = await cluster.primaryOf(slot);
  const others = (await cluster.primaries()).filter((node) => node !== from);
  await cluster.moveSlotAtOnce(slot, others[0] as RedisServer);
}

/** Begins a Cluster of a server, and ends it with the suite. */
function clusterOf(binary: string | undefined, args: readonly string[] = []): void {
  before(async () => {
    if (binary !== undefined) cluster = await Cluster.start({ binary, args });
  });

  after(() => cluster?.stop());
}

function movesAtOnce(): void {
  test('a held lock stays held while its slot moves at once, and its waiter is told', async () => {
    const [a, b] = await pair();
    for (let fence = 0, moves = 0; moves < MOVES; moves += 1) {
      const held = await a.acquire(NAME, { ttl: 600_000 });
      assert.ok(held.fence > fence, `${held.fence} after ${fence}`);
      const waiting = b.acquire(NAME, { wait: 60_000 });
      await until(() => b.stats().waiting === 1, 'the waiter');
      await move();
      assert.equal(held.held, true);
      assert.equal(await held.release(), true);
      const next = await waiting;
      assert.ok(next.fence > held.fence, `${next.fence} after ${held.fence}`);
      fence = next.fence;
      await next.release();
    }
    assert.deepEqual([a.stats().lost, b.stats().lost], [0, 0]);
    await Promise.all([a.close(), b.close()]);
  });

  test('slots that move at once under load cost nobody a lock', async () => {
    const managers = await pair();
    let [busy, fence, uses, over] = [false, 0, 0, false];
    const work = async (locks: LockManager) => {
      while (!over) {
        await locks.request(NAME, { wait: 60_000 }, async (lock) => {
          assert.ok(!busy, 'two at a time');
          assert.ok(lock.fence > fence, `the fence ${lock.fence} after ${fence}`);
          [busy, fence] = [true, lock.fence];
          await new Promise(setImmediate);
          [busy, uses] = [false, uses + 1];
        });
      }
    };
    const working = managers.flatMap((locks) => [work(locks), work(locks)]);
    for (let moves = 0; moves < MOVES; moves += 1) {
      await move();
      const before = uses;
      await until(() => uses > before + 20, 'all to go on at the new server');
    }
    over = true;
    await Promise.all(working);
    assert.ok(managers.every((locks) => locks.stats().lost === 0));
    await Promise.all(managers.map((locks) => locks.close()));
  });
}

const valkey = serverThatSays(/valkey.* v=(9|\d\d)\./i, 'Valkey 9');
const redis = serverThatSays(/redis.* v=(8\.([4-9]|\d\d)|9|\d\d)\./i, 'Redis 8.4');

suite('Valkey', { skip: valkey.skip }, () => {
  clusterOf(valkey.binary, ['--cluster-databases', '16']);

  movesAtOnce();

  test('a numbered database of a Cluster has locks of its own', async () => {
    const [a, b] = await pair(`/${DATABASE}`);
    const [zero, other] = await pair();
    const held = await a.acquire(NAME, { ttl: 600_000 });
    const same = await zero.acquire(NAME);
    const waiting = b.acquire(NAME, { wait: 60_000 });
    await until(() => b.stats().waiting === 1, 'the waiter');
    const page = await a.query({ startsWith: 'stock:' });
    assert.deepEqual(
      page.held.map(({ token }) => token),
      [held.token],
    );
    await held.release();
    await (await waiting).release();
    assert.equal(await same.release(), true);
    await Promise.all([a, b, zero, other].map((locks) => locks.close()));
  });
});

suite('Redis', { skip: redis.skip }, () => {
  clusterOf(redis.binary);

  movesAtOnce();
});
