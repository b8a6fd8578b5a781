/** What tenants of one server can do to each other, each with the user of the documentation: SECURITY.md lists it. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import type { ConnectOptions } from 'holdfast';
import { Redis } from 'ioredis';
import { connect, type LockManager } from '../support/holdfast.js';
import { enrol, leastRights } from '../support/least-rights.js';
import { RedisServer } from '../support/server.js';
import { sleep, until } from '../support/wait.js';

const COUNTER = 'holdfast:fence';
const YEAR_US = 366 * 86_400_000_000;

let server: RedisServer;
/** The locks of one tenant, and the connection by which another one attacks. */
let locks: LockManager;
let attacker: Redis;

/** The login of a tenant with its own prefix. */
async function tenant(name: string, ...without: readonly string[]): Promise<string> {
  const rules = leastRights()
    .rules.map((rule) => rule.replace('lock:*', `${name}:*`))
    .filter((rule) => !without.includes(rule));
  return enrol(server, { ...leastRights(), name, rules });
}

async function open(url: string, options: ConnectOptions = {}): Promise<LockManager> {
  const manager = await connect(url, { prefix: 'a:', ...options });
  manager.on('warning', () => {});
  return manager;
}

beforeEach(async () => {
  server = await RedisServer.start();
  locks = await open(await tenant('a'));
  attacker = new Redis(await tenant('b'));
});

afterEach(async () => {
  attacker.disconnect();
  await locks.close();
  await server.stop();
});

const denied = { message: /NOPERM|permission|can't (run|access)/i };

test('a tenant reads, takes, keeps and frees no lock of another one', async () => {
  const lock = await locks.acquire('x');
  const waiting = locks.acquire('x', { wait: 20_000 });
  await until(async () => (await server.admin.zcard('{a:x}:queue')) === 1, 'the waiter');
  for (const key of ['a:x', '{a:x}:queue', '{a:x}:waiters', '{a:x}:shared', '{a:x}:fence']) {
    for (const [name, ...args] of [
      ['GET', key],
      ['SET', key, 'hf1.b.1'],
      ['DEL', key],
      ['PEXPIRE', key, '1'],
      ['ZREM', key, 'hf1.b.1'],
      ['HDEL', key, 'hf1.b.1'],
    ] as const) {
      await assert.rejects(attacker.call(name, ...args), denied);
      const script = `return redis.call('${name}', KEYS[1], unpack(ARGV))`;
      await assert.rejects(attacker.eval(script, 1, key, ...args.slice(1)), denied);
    }
  }
  assert.equal(await lock.release(), true);
  assert.equal(await (await waiting).release(), true);
});

test('a tenant learns of no inbox, and takes no lock away by a message', async () => {
  for (const command of ['MONITOR', 'PSUBSCRIBE *', 'PUBSUB CHANNELS', 'PUBSUB SHARDCHANNELS']) {
    const [name = '', ...args] = command.split(' ');
    await assert.rejects(attacker.call(name, ...args), denied, command);
  }
  const lock = await locks.acquire('x', { ttl: 60_000 });
  const { requests } = locks.stats();
  const token = (await server.admin.get('a:x')) ?? '';
  for (let i = 0; i < 100; i++) {
    await attacker.publish(`holdfast:${locks.clientId}`, `stolen ${token} a:x`);
  }
  await until(() => locks.stats().requests > requests, 'the manager to ask');
  await sleep(100);
  assert.equal(lock.held, true);
  assert.equal(await lock.release(), true);
});

test('a tenant that raises the common counter stops all locks, and spoils no fence', async () => {
  const lock = await locks.acquire('x');
  const raised = Date.now() * 1_000 + YEAR_US;
  await attacker.set(COUNTER, raised);
  await assert.rejects(locks.acquire('y'), { serverCode: 'FENCE', key: COUNTER });
  await lock.extend();
  assert.equal(await lock.release(), true);
  await server.admin.del(COUNTER);
  const later = await locks.acquire('x');
  assert.ok(later.fence > lock.fence && later.fence < raised);
});

test('a tenant that raises the common counter by less than a year and lowers it makes fences fall', async () => {
  await attacker.set(COUNTER, Date.now() * 1_000 + YEAR_US * 0.9);
  const high = await locks.acquire('x');
  await high.release();
  await attacker.del(COUNTER);
  const low = await locks.acquire('x');
  assert.ok(low.fence < high.fence);
});

test('tenants without the common counter cannot touch the fences of each other', async () => {
  const apart = await open(await tenant('a', '~holdfast:*'));
  const fences: number[] = [];
  for (let i = 0; i < 3; i++) {
    const lock = await apart.acquire('x');
    fences.push(lock.fence);
    await attacker.set(COUNTER, Date.now() * 1_000 + YEAR_US * (i % 2 ? 0.9 : 2));
    assert.equal(await lock.release(), true);
  }
  await apart.close();
  assert.deepEqual(
    fences,
    [...fences].sort((x, y) => x - y),
  );
  const now = Date.now() * 1_000;
  assert.ok(fences.every((fence) => Math.abs(fence - now) < 60_000_000));
});

test('a tenant can block the server for all by a script', async () => {
  const blocked = attacker.eval('while true do end', 0).catch(() => {});
  const isBusy = (error: unknown) => String(error).includes('BUSY');
  await until(() => server.admin.get('x').then(() => false, isBusy), 'the server to be busy');
  await server.admin.call('SCRIPT', 'KILL');
  await blocked;
  assert.equal(await (await locks.acquire('x')).release(), true);
});
