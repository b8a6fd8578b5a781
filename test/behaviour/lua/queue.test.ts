/** The wait queue of the scripts, in states that no schedule of well-behaved managers shows. */

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import type { Redis } from 'ioredis';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';
import { FENCE, LOCK, QUEUE, type Scripts, scripts, source, WAITERS, WAITING } from './scripts.js';

let redis: Redis;
let script: Scripts;

const server = serverOfFile({}, () => {
  redis = server.admin;
  script = scripts(redis);
});

beforeEach(() => redis.flushall());

const [A, B, C] = ['hf1.a.1', 'hf1.b.1', 'hf1.c.1'] as const;

/** The owner without the mark that a waiter leaves. */
async function owner(): Promise<string | undefined> {
  return (await redis.get(LOCK))?.replace(/\+$/, '');
}

test('a grant that nobody claimed costs its manager all its queue entries', async () => {
  await script.acquire(A);
  for (const n of [1, 2, 3]) await script.acquire(`hf1.b.${n}`, { seq: '0' });
  await script.acquire(C, { seq: '0' });
  await script.release(A);
  assert.equal(await owner(), 'hf1.b.1');
  await redis.del(LOCK);
  assert.ok((await script.acquire(C, { seq: 'poll' })) !== null, 'C is next');
  assert.deepEqual(await redis.zrange(QUEUE, '0', '-1'), []);
});

test('a manager that claims its grant keeps its other places', async () => {
  await script.acquire(A);
  for (const n of [1, 2]) await script.acquire(`hf1.b.${n}`, { seq: '0' });
  await script.acquire(C, { seq: '0' });
  await script.release(A);
  await script.acquire('hf1.b.1', { seq: 'poll' });
  await redis.del(LOCK);
  await script.acquire(C, { seq: 'poll' });
  assert.equal(await owner(), 'hf1.b.2');
});

test('a line of the dead is walked a bounded way at a time, and to its end', async () => {
  await script.acquire(A, { ttl: 600_000 });
  for (let n = 0; n < 300; n++) {
    await redis.zadd(QUEUE, String(n + 1), `hf1.dead${n}.1`);
    await redis.hset(WAITERS, `hf1.dead${n}.1`, '1 10000 1 0 nobody');
  }
  await script.acquire(B, { seq: '0' });
  await script.release(A);
  assert.equal(await redis.zcard(QUEUE), 301 - 128);
  assert.equal(await script.acquire(C), null, 'nobody knows yet whether somebody waits');
  const reply = async () => (await script.acquire(B, { seq: 'poll' })) ?? 0;
  await until(async () => (await reply()) > 0, 'the lock');
  assert.equal(await redis.exists(QUEUE), 0);
});

test('a place without its details is no place', async () => {
  await script.acquire(A);
  await script.acquire(B, { seq: '0' });
  await redis.del(WAITERS);
  await script.release(A);
  assert.equal(await redis.exists(LOCK, QUEUE), 0);
});

test('a key of the wrong type is named, and nothing is changed', async () => {
  for (const [key, kind] of [
    [QUEUE, 'a queue of waiters'],
    [WAITERS, 'a table of waiters'],
    [FENCE, 'a fence counter'],
  ] as const) {
    await redis.flushall();
    await script.acquire(A);
    await script.acquire(B, { seq: '0' });
    await redis.del(key);
    await redis.rpush(key, 'something else');
    const before = await dump();
    const message = new RegExp(`^WRONGTYPE ${key.replace(/[{}]/g, '\\$&')} is not ${kind}`);
    if (key !== FENCE) await assert.rejects(script.release(A), { message });
    await assert.rejects(script.acquire(B, { seq: 'poll' }), { message });
    // To enter the queue of a lock that is held needs no fence.
    if (key !== FENCE) await assert.rejects(script.acquire(C, { seq: '0' }), { message });
    await assert.rejects(script.acquire(C, { seq: 'poll' }), { message });
    assert.deepEqual(await dump(), before);
    // To free the lock needs none either: it is granted to nobody, and who waits is told why.
    if (key === FENCE) {
      assert.equal(await script.release(A), 1);
      await assert.rejects(script.acquire(B, { seq: 'poll' }), { message });
      assert.equal(await script.release(B), 0);
      assert.equal(await redis.exists(LOCK, QUEUE, WAITERS), 0);
    }
  }
});

test('at maxmemory a release still passes the lock on', async () => {
  await script.acquire(A);
  await script.acquire(B, { seq: '0' });
  await redis.config('SET', 'maxmemory', '1');
  try {
    await assert.rejects(script.acquire(C, { seq: '0' }), { message: /OOM/ });
    assert.equal(await script.release(A), 1);
    assert.equal(await owner(), B);
  } finally {
    await redis.config('SET', 'maxmemory', '0');
  }
});

test('every key of a line has an end', async () => {
  await script.acquire(A);
  await script.acquire(B, { seq: '0' });
  await script.release(A);
  await script.acquire(C, { seq: '0' });
  const { [FENCE]: counter, ...keys } = await server.keyspace();
  assert.equal(counter?.ttl, -1);
  assert.deepEqual(Object.keys(keys), [LOCK, QUEUE, WAITERS, WAITING].sort());
  for (const [key, { ttl }] of Object.entries(keys)) {
    assert.ok(ttl > 0 && ttl <= 30_000, `${key}: ${ttl}`);
  }
});

test('a key says that somebody waits, as long as somebody does', async () => {
  const lasts = async () => [await redis.exists(QUEUE), await redis.exists(WAITING)];
  await script.acquire(A);
  await script.acquire(B);
  assert.deepEqual(await lasts(), [0, 0], 'who only tries does not wait');
  await script.acquire(B, { seq: '0' });
  await script.acquire(C, { seq: '0' });
  assert.equal(await redis.type(WAITING), 'string');
  await redis.del(WAITING);
  await script.acquire(B, { seq: 'poll' });
  assert.deepEqual(await lasts(), [1, 1], 'a poll writes it again');
  await script.release(B);
  assert.deepEqual(await lasts(), [1, 1], 'C waits on');
  await script.release(A);
  assert.equal(await owner(), C);
  assert.deepEqual(await lasts(), [0, 0]);
});

test('a lock that somebody waits for is not deleted, but released', async () => {
  await script.acquire(A);
  await script.acquire(B, { seq: '0' });
  const before = await dump();
  assert.equal(await script.delete(A), 0);
  assert.deepEqual(await dump(), before);
  assert.equal(await script.release(A), 1);
  assert.equal(await owner(), B);
});

/** SET takes a lock whose lease has ended although others wait for it, and writes no flag for the release. */
test('a lock that was taken ahead of the queue goes to the queue when it is released', async () => {
  await script.acquire(A);
  await script.acquire(B, { seq: '0' });
  // The lease of A ends, and SET takes the lock for C, without a look at the queue.
  await redis.set(LOCK, C, 'PX', 10_000);
  assert.equal(await script.release(C), 1);
  assert.equal(await owner(), B);
});

/** Without the flag the owner would only delete the key, and the queue would wait for its next poll. */
test('the script that confirms a lock taken ahead of the queue sets the flag', async () => {
  const confirm = {
    acquire: () => script.acquire(C, { seq: 'try' }),
    acquire_all: () => redis.eval(source('acquire_all'), 3, LOCK, FENCE, QUEUE, 10_000, 0, C),
  };
  for (const [name, confirms] of Object.entries(confirm)) {
    await redis.flushall();
    await script.acquire(A);
    await script.acquire(B, { seq: '0' });
    await redis.set(LOCK, C, 'PX', 10_000);
    await confirms();
    assert.equal(await redis.get(LOCK), `${C}+`, name);
    assert.ok((await redis.pttl(LOCK)) > 9_000, name);
  }
});

/** SET arrives late, from a connection that was given up, and takes a share for the only entry of the queue. */
test('a share that was taken late for the only waiter can be adopted', async () => {
  await script.acquire(A);
  await script.acquire(B, { seq: '0', limit: '0' });
  await redis.set(LOCK, `hf1.shared.${B}`, 'PX', 10_000);
  assert.ok(Number(await script.adoptShare(C, B)) > 0);
  assert.equal(await owner(), 'hf1.shared');
  assert.equal(await redis.exists(QUEUE, WAITING), 0);
});

test("old code's value is never marked, whatever it ends in", async () => {
  for (const value of ['old code', 'old code+', '+']) {
    await redis.set(LOCK, value, 'PX', 60_000);
    await script.acquire(B, { seq: '0' });
    assert.equal(await redis.get(LOCK), value);
  }
});

async function dump(): Promise<unknown> {
  const keys = (await redis.keys('*')).sort();
  const values = keys.map(async (key) => [key, (await redis.dumpBuffer(key))?.toString('hex')]);
  return Promise.all(values);
}
