/** A server that answers, but more slowly than it is asked. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { connect, type LockManager, openOperations } from '../support/holdfast.js';
import { FaultProxy } from '../support/proxy.js';
import { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';

/** What an acquire of a free lock sends. */
const BYTES_PER_ACQUIRE = 235;

let server: RedisServer;
let proxy: FaultProxy;
let locks: LockManager;
let disconnects: string[];

beforeEach(async () => {
  server = await RedisServer.start();
  proxy = await FaultProxy.start(server.port);
  locks = await connect(proxy.url, { commandTimeout: 1_000 });
  disconnects = [];
  locks.on('disconnect', (error) => disconnects.push(error.message));
  const lock = await locks.acquire('warm-up');
  await lock.extend();
  await lock.release();
});

afterEach(async () => {
  proxy.bytesPerSecond = Number.POSITIVE_INFINITY;
  await locks.close();
  assert.equal(openOperations(), 0);
  await proxy.stop();
  await server.stop();
});

/** The server takes so many acquires per second from now on. */
function slow(perSecond: number): void {
  proxy.bytesPerSecond = perSecond * BYTES_PER_ACQUIRE;
}

/** Free locks that nobody else wants, asked for at once. */
function burst(count: number, wait = Number.POSITIVE_INFINITY) {
  const names = Array.from({ length: count }, (_, i) => `burst:${i}`);
  return names.map((name) => locks.acquire(name, { ttl: 60_000, renew: false, wait }));
}

test('a burst of more work than commandTimeout: each lock is asked for once and granted', async () => {
  const kept = await locks.acquire('kept', { ttl: 3_000 });
  const { requests } = locks.stats();
  slow(1_000);
  const granted = Promise.all(burst(3_500));
  // What a lease depends on does not wait behind the burst.
  await kept.extend();
  await granted;
  await kept.extend();
  assert.equal(kept.held, true);
  assert.deepEqual(disconnects, []);
  const asked = locks.stats().requests - requests;
  assert.ok(asked <= 3_500 * 1.05, `${asked} requests`);
});

test('who leaves before its lock is asked for leaves no trace', async () => {
  let asked = '';
  proxy.onRequest = (chunk) => {
    asked += chunk.toString('latin1');
  };
  slow(400);
  const granted = Promise.all(burst(1_200));
  const aborted = locks.acquire('aborted', { signal: AbortSignal.timeout(100) });
  const impatient = locks.acquire('impatient', { wait: 1_200 });
  await assert.rejects(aborted, { name: 'TimeoutError' });
  await assert.rejects(impatient, {
    code: 'ERR_LOCK_CONNECTION',
    message: /lock "impatient".*not sent within \d+ ms: the server answers more slowly/,
  });
  await granted;
  // After the burst, since whatever was to be given back would have been sent by now.
  await (await locks.acquire('last')).release();
  assert.match(asked, /lock:last/);
  assert.doesNotMatch(asked, /aborted|impatient/);
  assert.deepEqual(disconnects, []);
});

test('a server that stops to answer in a burst is noticed, and the burst goes on after it', async () => {
  slow(1_000);
  const all = burst(1_000);
  await all[0];
  proxy.blackhole = true;
  await until(() => disconnects.length > 0, 'the connection to be given up');
  assert.match(disconnects[0] ?? '', /no answer within 1000 ms/);
  proxy.blackhole = false;
  await Promise.all(all);
});
