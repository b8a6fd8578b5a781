/** `connect` with what a service already has: a client of another library, or the parts of an address. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, connect as dial } from 'node:net';
import { after, afterEach, before, test } from 'node:test';
import { Cluster as IoredisCluster, Redis } from 'ioredis';
import { createClient, createClientPool } from 'redis';
import { Cluster } from '../support/cluster.js';
import { type ConnectTarget, connect, type LockManager } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';

const PASSWORD = 's3cret/?@';
let server: RedisServer;
const opened: LockManager[] = [];

before(async () => {
  server = await RedisServer.start();
  await server.admin.call('CONFIG', 'SET', 'requirepass', PASSWORD);
});

after(() => server.stop());

afterEach(async () => {
  await Promise.all(opened.splice(0).map((manager) => manager.close()));
});

async function open(...args: Parameters<typeof connect>): Promise<LockManager> {
  const manager = await connect(...args);
  opened.push(manager);
  return manager;
}

/** The keys of the database 2, with locks held. */
async function keysOf(manager: LockManager): Promise<string[]> {
  const lock = await manager.acquire('item:42');
  const admin = new Redis({ port: server.port, password: PASSWORD, db: 2 });
  const keys = await admin.keys('*item:42');
  admin.disconnect();
  await lock.release();
  return keys;
}

test('a client of ioredis: its address, login, database and keyPrefix; it may end first', async () => {
  const address = { port: server.port, password: PASSWORD, db: 2 };
  const client = new Redis({ ...address, keyPrefix: 'app:', lazyConnect: true });
  const locks = await open(client);
  client.disconnect();
  assert.deepEqual(await keysOf(locks), ['app:lock:item:42']);
  assert.deepEqual(await keysOf(await open(client, { prefix: '' })), ['app:item:42']);
  assert.deepEqual(await keysOf(await open(client, { prefix: 'own:' })), ['app:own:item:42']);
});

test('a client of node-redis', async () => {
  const url = `redis://:${encodeURIComponent(PASSWORD)}@127.0.0.1:${server.port}/2`;
  assert.deepEqual(await keysOf(await open(createClient({ url }))), ['lock:item:42']);
});

test('a Cluster of ioredis', async () => {
  const cluster = await Cluster.start();
  const [{ port }] = cluster.nodes as [RedisServer];
  const client = new IoredisCluster([{ host: '127.0.0.1', port }], { lazyConnect: true });
  const locks = await open(client);
  const lock = await locks.acquire('item:42');
  assert.equal(await locks.tryAcquire('item:42'), null);
  await lock.release();
  await locks.close();
  client.disconnect();
  await cluster.stop();
});

test('a client that does not tell its address: what to pass in its place', async () => {
  const told = {
    code: 'ERR_INVALID_ARG_VALUE',
    message:
      /^the client does not reveal the address of its server: it is an object of the class \w+; .*connect\('redis:\/\/host:6379'\)$/,
  };
  await assert.rejects(connect(createClientPool()), told);
  await assert.rejects(connect({ customCommand() {} } as never), told);
  await assert.rejects(connect({ cluster: () => {}, defineCommand() {} } as never), told);
});

test('the parts of an address', async () => {
  const { port } = server;
  const parts = { host: '127.0.0.1', port, password: PASSWORD, db: 2 };
  assert.deepEqual(await keysOf(await open(parts)), ['lock:item:42']);
  const text = { port: String(port), password: PASSWORD, db: 2, tls: false };
  assert.deepEqual(await keysOf(await open(text)), ['lock:item:42']);
  await assert.rejects(connect({ port, password: 'wrong' }), {
    code: 'ERR_LOCK_SERVER',
    message: /^cannot connect to redis:\/\/127\.0\.0\.1:\d+\/0: /,
  });
  // An object that is meant for TLS asks for it.
  await assert.rejects(connect({ port, tls: {} }, { connectTimeout: 2_000 }), {
    code: 'ERR_LOCK_CONNECTION',
    message: /^cannot connect to rediss:/,
  });
});

test('parts of an address that are wrong are refused', async () => {
  const wrong: [object, RegExp][] = [
    [{ host: '' }, /host must not be empty/],
    [{ host: 5 }, /host must be a string/],
    [{ port: 0 }, /port must be a whole number/],
    [{ port: 'x' }, /port must be a whole number/],
    [{ port: 6379, database: 1 }, /a server has no option "database"/],
    [{ host: 'a', db: -1 }, /db must be/],
    [{ host: 'a', tls: 'yes' }, /options of tls must be an object/],
    [{ host: 'a', tls: { crt: '' } }, /tls has no option "crt"; did you mean "c/],
    [{ path: '/run/redis.sock', tls: true }, /a socket speaks no TLS/],
    [{}, /must be a URL, \{ host, port \}, \{ cluster \}/],
  ];
  for (const [target, message] of wrong) {
    await assert.rejects(connect(target as ConnectTarget), { message }, JSON.stringify(target));
  }
});

test('nobody names a server: a warning that tells which it is', async (t) => {
  const own = await RedisServer.start();
  const forward = createServer((client) => {
    client.pipe(dial(own.port, '127.0.0.1').on('error', () => client.destroy())).pipe(client);
    client.on('error', () => {});
  });
  const { HOLDFAST_URL, REDIS_URL } = process.env;
  try {
    // Whoever has the port already is not to be disturbed.
    const listening = once(forward.listen(6379, '127.0.0.1'), 'listening').then(() => true);
    if (!(await listening.catch(() => false))) return t.skip('the port 6379 is taken');
    Object.assign(process.env, { HOLDFAST_URL: '', REDIS_URL: '' });
    assert.match(await warningOf(await open()), /WARN_LOCK_TARGET .*redis:\/\/127\.0\.0\.1:6379/);
    assert.equal(await warningOf(await open('redis://127.0.0.1:6379')), '');
    process.env['REDIS_URL'] = 'redis://127.0.0.1:6379';
    assert.equal(await warningOf(await open()), '');
  } finally {
    Object.assign(process.env, { HOLDFAST_URL: HOLDFAST_URL ?? '', REDIS_URL: REDIS_URL ?? '' });
    await Promise.all(opened.splice(0).map((manager) => manager.close()));
    forward.close();
    await own.stop();
  }
});

/** The first warning of a new manager, if it has one. */
async function warningOf(manager: LockManager): Promise<string> {
  let told = '';
  manager.on('warning', ({ code, message }) => {
    told ||= `${code} ${message}`;
  });
  await manager.tryAcquire('told');
  await new Promise(setImmediate);
  return told;
}
