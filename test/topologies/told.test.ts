/** Holders and waiters that are told of changed keys, on every kind of target: the server that has the lock tells. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cluster } from '../support/cluster.js';
import { ended, manager } from '../support/ended.js';
import type { LockManager } from '../support/holdfast.js';
import { Sentinels } from '../support/sentinels.js';
import type { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';
import { newAuthority, Servers } from './tls/support.js';

/** The first renewal is due only after minutes. */
const TTL = 600_000;
const KEY = 'lock:{a}';

/** How many keys the server tracks. */
async function tracked(server: RedisServer): Promise<number> {
  return Number(/tracking_total_keys:(\d+)/.exec(await server.admin.info('stats'))?.[1]);
}

async function untilTracked(server: RedisServer): Promise<void> {
  await until(async () => (await tracked(server)) > 0, 'a tracked key');
}

/** A holder and then a waiter behind other code are told of what `server` does, after `change` has made it theirs. */
async function areTold(
  locks: LockManager,
  server: () => Promise<RedisServer>,
  { change = async () => {}, ttl = TTL }: { change?: () => Promise<void>; ttl?: number } = {},
): Promise<void> {
  const lock = await locks.acquire('{a}', { ttl });
  await untilTracked(await server());
  await change();
  await untilTracked(await server());
  const { renewals } = locks.stats();
  await (await server()).admin.del(KEY);
  await until(() => lock.signal.aborted, 'the loss');
  assert.equal(locks.stats().renewals, renewals);
  await (await server()).admin.set(KEY, 'other code', 'PX', TTL);
  const waiting = locks.acquire('{a}', { ttl: TTL });
  await untilTracked(await server());
  const { requests } = locks.stats();
  await (await server()).admin.del(KEY);
  await (await waiting).release();
  assert.ok(locks.stats().requests - requests <= 4, 'it has not polled');
}

test('a Cluster: the server of the slot tells, from the next renewal on also after a move', async () => {
  const cluster = await Cluster.start();
  ended.push(() => cluster.stop());
  const locks = await manager({ cluster: cluster.urls });
  const slot = await cluster.slotOf('{a}');
  const change = async () => {
    const from = await cluster.primaryOf(slot);
    const to = (await cluster.primaries()).find((node) => node !== from);
    await cluster.moveSlot(slot, to as RedisServer);
  };
  await areTold(locks, () => cluster.primaryOf(slot), { change, ttl: 12_000 });
});

test('Sentinels: the new master tells after a failover', async () => {
  const deployment = await Sentinels.start();
  ended.push(() => deployment.stop());
  const locks = await manager(deployment.target);
  const change = async () => {
    await deployment.inSync();
    await deployment.failOver();
  };
  await areTold(locks, () => deployment.master(), { change });
});

test('TLS: the server tells', async () => {
  const servers = new Servers(newAuthority());
  ended.push(() => servers.stopAll());
  const server = await servers.start();
  await areTold(
    await manager(server.url, { tls: { ca: servers.authority.ca.cert } }),
    async () => server,
  );
});

test('memory: nobody but managers changes the store, and they tell each other', async () => {
  const locks = await manager('memory:');
  const lock = await locks.acquire('{a}', { ttl: TTL });
  assert.deepEqual(locks.stats().servers, []);
  await locks.forceRelease('{a}');
  await until(() => lock.signal.aborted, 'the loss');
  assert.equal(locks.stats().renewals, 0);
});
