/** Connections over TLS that break. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { connect, type LockManager, openOperations } from '../../support/holdfast.js';
import { FaultProxy } from '../../support/proxy.js';
import type { RedisServer } from '../../support/server.js';
import { sleep, until } from '../../support/wait.js';
import { NAMES, newAuthority, Servers } from './support.js';

const authority = newAuthority();
const servers = new Servers(authority);
const tls = { ca: authority.ca.cert };

let server: RedisServer;
let proxy: FaultProxy;
let locks: LockManager;
let events: string[];

beforeEach(async () => {
  server = await servers.start();
  proxy = await FaultProxy.start(server.port);
  const patience = { commandTimeout: 1_500, connectTimeout: 1_500 };
  locks = await connect(`rediss://127.0.0.1:${proxy.port}`, { tls, ...patience });
  events = [];
  locks.on('disconnect', () => events.push('disconnect'));
  locks.on('reconnect', () => events.push('reconnect'));
});

afterEach(async () => {
  await locks.close();
  assert.equal(openOperations(), 0);
  await proxy.stop();
  await servers.stopAll();
});

test('killed by the server, cut on the way: nobody notices', async () => {
  const lock = await locks.acquire('a', { ttl: 60_000 });
  for (let round = 1; round <= 3; round++) {
    await server.killClients();
    await lock.extend();
    proxy.cut();
    await lock.extend();
    assert.equal(events.length, 4 * round);
  }
  assert.equal(lock.held, true);
  assert.equal(await lock.release(), true);
});

test('killed and started again: who waits meanwhile gets the lock', async () => {
  await server.kill();
  const pending = locks.acquire('a', { wait: 20_000 });
  await sleep(100);
  await server.start();
  assert.equal(await (await pending).release(), true);
});

test('a waiter whose connection breaks keeps its place', async () => {
  const other = await connect(server.url, { tls });
  const lock = await other.acquire('a', { ttl: 60_000 });
  const waiting = locks.acquire('a', { wait: 60_000 });
  await until(async () => (await server.admin.exists('{lock:a}:queue')) === 1, 'the waiter');
  proxy.cut();
  await until(() => events.includes('reconnect'), 'the reconnect');
  assert.equal(await lock.release(), true);
  assert.equal(await (await waiting).release(), true);
  await other.close();
});

test('a certificate that expires meanwhile: an error that says so, and a lock once it is renewed', async () => {
  const expired = authority.issue(NAMES, { days: -1 });
  await server.kill();
  await server.start(['--tls-cert-file', expired.certFile, '--tls-key-file', expired.keyFile]);
  await assert.rejects(locks.acquire('a', { wait: 600 }), {
    code: 'ERR_LOCK_CONNECTION',
    message: /certificate has expired/,
  });
  await server.restart();
  assert.equal(await (await locks.acquire('a', { wait: 20_000 })).release(), true);
});

test('a connection that is given up is reset, so that nothing arrives late', async () => {
  await (await locks.acquire('warm-up')).release();
  proxy.blackhole = true;
  await assert.rejects(locks.tryAcquire('a'), { code: 'ERR_LOCK_CONNECTION' });
  await until(() => proxy.resets > 0, 'the reset');
  proxy.blackhole = false;
  proxy.cut();
  await (await locks.acquire('a', { wait: 20_000 })).release();
});
