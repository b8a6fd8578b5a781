/** A server that has left, whose address belongs to another Cluster now: no manager requests locks there. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cluster } from '../../support/cluster.js';
import { connect, openOperations } from '../../support/holdfast.js';
import type { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

const ROUNDS = 10;
const SLOTS = 16_384;

test('who stays at its Cluster is not led astray by a server that has left it', async (t) => {
  const cluster = await Cluster.start({ primaries: 2 });
  t.after(() => cluster.stop());
  const [stays, leaves] = cluster.nodes as [RedisServer, RedisServer];
  const locks = await connect({ cluster: [stays.url] });
  t.after(() => locks.close());
  await leave(leaves, stays);
  await until(async () => {
    // On both halves of the slots.
    const taken = await Promise.all(['a', 'b', 'c', 'd'].map((name) => locks.tryAcquire(name)));
    return (await Promise.all(taken.map((lock) => lock?.release()))).every(Boolean);
  }, 'the manager to find its locks at the other server');

  await leaves.start(['--cluster-config-file', 'other.conf']);
  await leaves.admin.cluster('ADDSLOTS', ...Array.from({ length: SLOTS }, (_, slot) => slot));
  for (let round = 0; round < ROUNDS; round += 1) {
    const asked = await questions(stays);
    await stays.killClients();
    await until(async () => (await questions(stays)) > asked, 'the slots to be asked for');
    const lock = await locks.acquire(`round:${round}`, { ttl: 60_000, wait: 20_000 });
    assert.equal(await stays.admin.get(`lock:round:${round}`), lock.token);
  }
  assert.equal(await leaves.admin.dbsize(), 0);
  assert.equal(await questions(leaves), 0);
  await locks.close();
  assert.equal(openOperations(), 0);
});

/** Ends a server, and gives its slots to the other. */
async function leave(server: RedisServer, other: RedisServer): Promise<void> {
  const id = (await server.admin.cluster('MYID')) as string;
  await server.kill();
  await other.admin.cluster('FORGET', id);
  await other.admin.cluster('ADDSLOTSRANGE', SLOTS / 2, SLOTS - 1);
  await until(
    async () => (await other.admin.cluster('INFO')).includes('cluster_state:ok'),
    'the other server to serve all slots',
  );
}

/** The number of requests for the slots that a server got. */
async function questions(server: RedisServer): Promise<number> {
  const stats = await server.admin.info('commandstats');
  return Number(/cmdstat_cluster\|slots:calls=(\d+)/.exec(stats)?.[1] ?? 0);
}
