/** Scripts that are refused to who comes too late, on a server and on a Cluster. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type FenceRedis, fencedEval, fencedSet } from 'holdfast/fence';
import { Cluster as IoredisCluster } from 'ioredis';
import { createClient, createCluster } from 'redis';
import { Cluster } from '../support/cluster.js';
import { RedisServer } from '../support/server.js';

const [EARLY, LATER] = [
  { name: 'item:42', fence: 1_800_000_000_000_033 },
  { name: 'item:42', fence: 1_800_000_000_000_034 },
];
const STALE = {
  code: 'ERR_LOCK_STALE_FENCE',
  lock: 'item:42',
  fence: EARLY.fence,
  seen: LATER.fence,
};

let server: RedisServer;
let cluster: Cluster;
const clients = new Map<string, FenceRedis>();
const closing: (() => unknown)[] = [];

before(async () => {
  server = await RedisServer.start();
  cluster = await Cluster.start();
  const prefixed = server.client({ keyPrefix: 'shop:' });
  closing.push(() => prefixed.disconnect());
  const nodeRedis = await createClient({ url: server.url }).connect();
  const [{ port } = { port: 0 }] = cluster.nodes;
  const ioredis = new IoredisCluster([{ host: '127.0.0.1', port }]);
  const rootNodes = cluster.nodes.map(({ url }) => ({ url }));
  const nodeRedisCluster = await createCluster({ rootNodes }).connect();
  clients
    .set('ioredis', server.admin)
    .set('ioredis with a prefix', prefixed)
    .set('node-redis', nodeRedis as FenceRedis)
    .set('a Cluster by ioredis', ioredis)
    .set('a Cluster by node-redis', nodeRedisCluster as unknown as FenceRedis);
  closing.push(
    () => nodeRedis.destroy(),
    () => ioredis.disconnect(),
  );
  closing.push(() => nodeRedisCluster.destroy());
});

after(async () => {
  for (const close of closing) close();
  await Promise.all([server?.stop(), cluster?.stop()]);
});

const get = (client: FenceRedis, key: string, lock = LATER) =>
  fencedEval(client, lock, "return redis.call('GET', KEYS[1])", { keys: [key] });

test('a late write is refused when the later owner has only read, and equal fences may write', async () => {
  for (const [kind, client] of clients) {
    const key = `stock:${kind}`;
    await fencedSet(client, EARLY, key, '5');
    assert.equal(await get(client, key), '5', kind);
    await assert.rejects(fencedSet(client, EARLY, key, '4'), STALE, kind);
    await assert.rejects(get(client, key, EARLY), STALE, kind);
    await fencedSet(client, LATER, key, '3');
    await fencedSet(client, LATER, key, '2');
    assert.equal(await get(client, key), '2', kind);
  }
});

test('the fence outlives the data: what was deleted or has expired does not come back', async () => {
  const [client] = clients.values();
  assert.ok(client);
  await fencedSet(client, LATER, 'short', '1', { ttl: 5_000 });
  const ttl = await server.admin.pttl('short');
  assert.ok(ttl > 0 && ttl <= 5_000);
  await server.admin.del('short');
  await assert.rejects(fencedSet(client, EARLY, 'short', '1'), STALE);
  assert.equal(await server.admin.get('short'), null);
});

test('a script sees the keys and arguments that it was given, and its errors come through', async () => {
  for (const [kind, client] of clients) {
    const keys = [`{${kind}}:a`, `{${kind}}:b`] as const;
    const script = 'return {#KEYS, KEYS[1], KEYS[2], #ARGV, ARGV[1], ARGV[2]}';
    const options = { keys: [...keys], arguments: ['x', 'y'] } as const;
    const prefix = kind.endsWith('prefix') ? 'shop:' : '';
    const [a, b] = keys.map((key) => prefix + key);
    const seen = await fencedEval(client, LATER, script, options as never);
    assert.deepEqual(seen, [2, a, b, 2, 'x', 'y'], kind);
    const broken = fencedEval(client, LATER, "return redis.call('LPUSH')", { keys: [keys[0]] });
    await assert.rejects(
      broken,
      (error: Error) => !/STALE/.test(`${error}`) && error.name !== 'StaleFenceError',
    );
  }
});

test('wrong arguments are told before anything is sent', async () => {
  const client = { eval: () => assert.fail('nothing may be sent') };
  const wrong: [Promise<unknown>, RegExp][] = [
    [fencedSet(client, { name: 'a', fence: 0 }, 'k', 'v'), /1 or more, got 0/],
    [fencedSet(client, EARLY, 'k', 'v', { ttl: 0 }), /"ttl" must be whole ms/],
    [fencedEval(client, EARLY, 1 as never, { keys: ['k'] }), /the script must be a string/],
    [
      fencedEval(client, EARLY, 'return 1', { keys: [] as never }),
      /the first key must be a string/,
    ],
  ];
  for (const [call, message] of wrong) await assert.rejects(call, message);
});

/** The key of the guard that a script of `key` gets. */
async function guardOf(key: string): Promise<string> {
  let guard = '';
  const client = {
    eval: async (_script: string, _keys: number, first: string) => {
      guard = first;
    },
  };
  await fencedEval(client, LATER, 'return 1', { keys: [key] });
  return guard;
}

test('no two keys share a guard, whatever their braces, and each is in the slot of its key', async () => {
  const parts = ['{', '}', 'x', ':', '::guard', ':braced:guard'];
  let keys = [''];
  const all = new Set(keys);
  for (let length = 0; length < 4; length++) {
    keys = keys.flatMap((key) => parts.map((part) => key + part));
    for (const key of keys) all.add(key);
  }
  const guards = new Map<string, string>();
  for (const key of all) {
    const guard = await guardOf(key);
    assert.match(guard, /:guard$/);
    assert.equal(guards.get(guard), undefined, `the guard of ${key}`);
    guards.set(guard, key);
  }
  const pipeline = (cluster.nodes[0] as RedisServer).admin.pipeline();
  for (const pair of guards) for (const key of pair) pipeline.cluster('KEYSLOT', key);
  const slots = (await pipeline.exec())?.map(([, slot]) => slot) ?? [];
  assert.equal(slots.length, 2 * guards.size);
  const pairs = [...guards].map((pair, at) => [pair, slots[2 * at], slots[2 * at + 1]]);
  assert.deepEqual(
    pairs.filter(([, guard, key]) => guard !== key),
    [],
  );
});

test('keys with braces of every sort are guarded on a Cluster', async () => {
  for (const [kind, client] of clients) {
    if (!kind.includes('Cluster')) continue;
    const own = kind.replaceAll(' ', '-');
    for (const key of ['a}_', '{}_', 'a{}_', '{_', '_}{y}', '{{_}', '{_}b', '{_', '']) {
      await fencedSet(client, EARLY, key.replace('_', own), '1');
    }
    await fencedSet(client, LATER, own, '2');
    await fencedSet(client, EARLY, `{${own}}`, '1');
    await assert.rejects(fencedSet(client, EARLY, own, '1'), STALE, kind);
  }
});
