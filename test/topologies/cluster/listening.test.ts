/** The connection that listens to shard channels: the effect of its failures on waiters. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { Cluster } from '../../support/cluster.js';
import { connect, type LockManager, openOperations } from '../../support/holdfast.js';
import type { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

const LONG = { ttl: 60_000, wait: 60_000 };

let cluster: Cluster;
let node: RedisServer;
let holder: LockManager;
let waiter: LockManager;

beforeEach(async () => {
  cluster = await Cluster.start({ primaries: 1, proxied: true });
  [node] = cluster.nodes as [RedisServer];
  const options = { connectTimeout: 1_000 };
  const target = { cluster: cluster.urls };
  [holder, waiter] = await Promise.all([connect(target, options), connect(target, options)]);
});

afterEach(async () => {
  await Promise.all([holder.close(), waiter.close()]);
  assert.equal(openOperations(), 0);
  await cluster.stop();
});

async function stat(name: string): Promise<number> {
  return Number(new RegExp(`${name}:(\\d+)`).exec(await node.admin.info())?.[1]);
}

/** The number of listeners of shard channels. */
async function listeners(): Promise<number> {
  return ((await node.admin.call('PUBSUB', 'SHARDCHANNELS')) as string[]).length;
}

test('a connection that is refused is tried again ever more seldom, until it is there', async () => {
  const held = await holder.acquire('a', LONG);
  await node.admin.config('SET', 'maxclients', await stat('connected_clients'));
  const begin = performance.now();
  const waiting = waiter.acquire('a', LONG);
  await until(async () => (await stat('rejected_connections')) >= 8, 'eight refusals');
  // Pauses of at least 25, 50, 100, 200 and 400 ms, and of half a second from then on.
  const took = performance.now() - begin;
  assert.ok(took > 1_500, `${took} ms`);
  await node.admin.config('SET', 'maxclients', 10_000);
  await until(async () => (await listeners()) === 1, 'the waiter to listen');
  assert.ok(await held.release());
  assert.ok(await (await waiting).release());
});

test('a connection that died unnoticed is made anew', async () => {
  const held = await holder.acquire('a', LONG);
  const waiting = waiter.acquire('a', LONG);
  await until(async () => (await listeners()) === 1, 'the waiter to listen');
  const before = node.proxy.accepted;
  node.proxy.silenceListeners();
  await until(() => node.proxy.accepted > before, 'another connection');
  assert.ok(await held.release());
  assert.ok(await (await waiting).release());
});

test('who cannot be told that he listens asks for that anew', async () => {
  const locks = await Promise.all(['a', 'b'].map((name) => holder.acquire(name, LONG)));
  const first = waiter.acquire('a', LONG);
  await until(async () => (await listeners()) === 1, 'the waiter to listen');
  node.proxy.silenceListeners();
  const second = waiter.acquire('b', LONG);
  await until(async () => (await listeners()) === 2, 'both to be listened to');
  assert.ok((await Promise.all(locks.map((lock) => lock.release()))).every(Boolean));
  assert.ok(await (await first).release());
  assert.ok(await (await second).release());
});
