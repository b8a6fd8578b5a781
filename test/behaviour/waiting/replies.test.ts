/** A reply, or the message of a grant, is lost after the server has executed the request. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { labelOf, listens, quiet, untilQueued } from '../../support/crew.js';
import { connect, type LockManager, openOperations } from '../../support/holdfast.js';
import { FaultProxy } from '../../support/proxy.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

let server: RedisServer;
let proxy: FaultProxy;
/** Its connection loses replies. */
let here: LockManager;
let there: LockManager;

beforeEach(async () => {
  server = await RedisServer.start();
  proxy = await FaultProxy.start(server.port);
  here = await connect(proxy.url, { clientName: 'here', commandTimeout: 10_000 });
  there = await connect(server.url, { clientName: 'there' });
  // The server knows the scripts from here on: a request is executed when it arrives.
  const lock = await here.acquire('warm-up');
  await lock.extend();
  await lock.release();
});

afterEach(async () => {
  await Promise.all([here.close(), there.close()]);
  assert.equal(openOperations(), 0);
  await quiet(server);
  await proxy.stop();
  await server.stop();
});

const MINUTE = { ttl: 60_000, wait: 60_000 };

async function owner(): Promise<string> {
  return labelOf((await server.admin.get('lock:x')) ?? '');
}

function restore(): void {
  proxy.loseReplies = false;
  proxy.cut();
}

test('acquire: a waiter that does not know that it is queued keeps its position', async () => {
  const first = await there.acquire('x', MINUTE);
  proxy.loseReplies = true;
  const second = here.acquire('x', { ...MINUTE, label: 'here' });
  await untilQueued(server, 'x', ['here']);
  const before = await server.admin.zrange('{lock:x}:queue', 0, '-1', 'WITHSCORES');
  restore();
  await listens(server, 'here');
  await until(async () => here.stats().requests >= 5, 'it to ask again');
  const after = await server.admin.zrange('{lock:x}:queue', 0, '-1', 'WITHSCORES');
  assert.deepEqual(after, before, 'one place, the same');
  assert.equal(await first.release(), true);
  const lock = await second;
  assert.ok(lock.fence > first.fence);
  assert.equal(await lock.release(), true);
});

test('acquire: the message of the grant is lost, and a poll finds out', async () => {
  const first = await there.acquire('x', MINUTE);
  const second = here.acquire('x', { ...MINUTE, label: 'here' });
  await untilQueued(server, 'x', ['here']);
  // Answers come in order: that of the position in the wait queue is there as well now, and not lost with the message.
  await (await here.acquire('y')).release();
  proxy.loseReplies = true;
  assert.equal(await first.release(), true);
  await until(async () => (await owner()) === 'here', 'the grant');
  proxy.loseReplies = false;
  const begin = performance.now();
  const lock = await second;
  assert.ok(performance.now() - begin < 4_000, 'within one claim and a margin');
  assert.equal(await owner(), 'here');
  assert.equal(await lock.release(), true);
});

test('acquire: the claim has its reply lost, and is made sure of', async () => {
  const first = await there.acquire('x', MINUTE);
  const second = here.acquire('x', { ...MINUTE, label: 'here' });
  await untilQueued(server, 'x', ['here']);
  proxy.onRequest = (chunk) => {
    // The message of the grant is through when its claim comes.
    if (chunk.includes('poll')) proxy.loseReplies = true;
  };
  assert.equal(await first.release(), true);
  const lock = await second;
  await until(async () => (await server.admin.pttl('lock:x')) > 10_000, 'the claim');
  assert.equal(await server.admin.hget('{lock:x}:waiters', 'unclaimed'), null);
  assert.ok(lock.remaining <= 3_000, 'only the claim is known of');
  proxy.onRequest = undefined;
  restore();
  await until(() => lock.remaining > 10_000, 'the whole lease to be known of');
  assert.equal(await lock.release(), true);
});

test('acquire: also a lease that is not renewed is claimed to its whole length', async () => {
  const first = await there.acquire('x', MINUTE);
  const second = here.acquire('x', { ...MINUTE, label: 'here', renew: false });
  await untilQueued(server, 'x', ['here']);
  assert.equal(await first.release(), true);
  const lock = await second;
  await until(() => lock.remaining > 10_000, 'the whole lease');
  assert.ok((await server.admin.pttl('lock:x')) > lock.remaining);
  assert.equal(await lock.release(), true);
});

test('extend: its reply is lost while another waits', async () => {
  const lock = await here.acquire('x', { ttl: 30_000, label: 'here' });
  const second = there.acquire('x', { ...MINUTE, label: 'there' });
  await untilQueued(server, 'x', ['there']);
  proxy.loseReplies = true;
  const extended = lock.extend(600_000);
  await until(async () => (await server.admin.pttl('lock:x')) > 500_000, 'the extension');
  restore();
  await extended;
  assert.ok(lock.remaining > 500_000);
  assert.equal(await owner(), 'here');
  assert.equal(await lock.release(), true);
  assert.equal(await (await second).release(), true);
});

test('release: its reply is lost when another has the lock already', async () => {
  const lock = await here.acquire('x', MINUTE);
  const second = there.acquire('x', { ...MINUTE, label: 'there' });
  await untilQueued(server, 'x', ['there']);
  proxy.loseReplies = true;
  const released = lock.release();
  const next = await second;
  restore();
  assert.equal(await released, true);
  // The release was sent twice; the second one found no owner.
  assert.equal(next.held, true);
  await next.extend();
  assert.equal(await owner(), 'there');
  assert.equal(await next.release(), true);
});

test('release: lost on its way while another waits, it is made up for', async () => {
  const lock = await here.acquire('x', MINUTE);
  const second = there.acquire('x', { ...MINUTE, label: 'there' });
  await untilQueued(server, 'x', ['there']);
  proxy.blackhole = true;
  const released = lock.release();
  proxy.cut();
  proxy.blackhole = false;
  assert.equal(await released, true);
  assert.equal(await (await second).release(), true);
});

test('a cancelled acquire whose place is not known gives it up', async () => {
  const first = await there.acquire('x', MINUTE);
  const cancel = new AbortController();
  proxy.loseReplies = true;
  const second = here.acquire('x', { ...MINUTE, label: 'here', signal: cancel.signal });
  await untilQueued(server, 'x', ['here']);
  cancel.abort(new Error('enough'));
  await assert.rejects(second, { message: 'enough' });
  restore();
  await untilQueued(server, 'x', []);
  assert.equal(await first.release(), true);
});
