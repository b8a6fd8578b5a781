/** A reply, or the message of a grant, is lost after the server has executed the request. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { callsOf, SCRIPTS_AND_DELETIONS } from '../../support/command-stats.js';
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
  const theirs = await there.acquire('warm-up');
  const waiting = here.acquire('warm-up', { ...MINUTE, label: 'here' });
  await untilQueued(server, 'warm-up', ['here']);
  await theirs.release();
  const lock = await waiting;
  await until(() => lock.remaining > 10_000, 'the claim');
  await lock.extend();
  await lock.release();
  // A lock that is held for less than a few round trips has a script of its own.
  proxy.delayMs = 50;
  await (await here.acquire('brief')).release();
  proxy.delayMs = 0;
});

afterEach(async () => {
  await Promise.all([here.close(), there.close()]);
  assert.equal(openOperations(), 0);
  await quiet(server);
  await proxy.stop();
  await server.stop();
});

const MINUTE = { ttl: 60_000, wait: 60_000 };

/** From here on the lock is asked for and released by scripts, whose first request enters and serves the queue. */
async function findHeld(name: string): Promise<void> {
  assert.equal(await here.tryAcquire(name), null);
}

async function owner(): Promise<string> {
  return labelOf((await server.admin.get('lock:x')) ?? '');
}

function restore(): void {
  proxy.loseReplies = false;
  proxy.cut();
}

test('acquire: a waiter that does not know that it is queued keeps its position', async () => {
  const first = await there.acquire('x', MINUTE);
  await findHeld('x');
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

test('acquire: a lock that was taken, though nobody knows, is kept by who took it', async () => {
  proxy.loseReplies = true;
  const taking = here.acquire('x', { ...MINUTE, label: 'here' });
  await until(async () => (await owner()) === 'here', 'the lock to be taken');
  const before = Number(await server.admin.get('holdfast:fence'));
  assert.equal(await there.tryAcquire('x'), null);
  restore();
  const lock = await taking;
  assert.equal(await owner(), 'here');
  // What the lost answer said is not used.
  assert.ok(lock.fence > before, `${lock.fence} after ${before}`);
  assert.equal(await lock.release(), true);
  const next = await there.acquire('x');
  assert.ok(next.fence > lock.fence);
  assert.equal(await next.release(), true);
});

test('acquire: a lock that was taken, though nobody knows, is given back by who is cancelled', async () => {
  const cancel = new AbortController();
  proxy.loseReplies = true;
  const taking = here.acquire('x', { ...MINUTE, label: 'here', signal: cancel.signal });
  await until(async () => (await owner()) === 'here', 'the lock to be taken');
  cancel.abort(new Error('enough'));
  await assert.rejects(taking, { message: 'enough' });
  restore();
  assert.equal(await (await there.acquire('x', MINUTE)).release(), true);
});

test('release: the reply to one that nobody waits for is lost', async () => {
  const lock = await here.acquire('x', MINUTE);
  proxy.loseReplies = true;
  const released = lock.release();
  await until(async () => (await server.admin.exists('lock:x')) === 0, 'the release');
  const next = await there.acquire('x', MINUTE);
  restore();
  assert.equal(await released, true);
  await next.extend();
  assert.equal(await next.release(), true);
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
    // The message of the grant is through when its claim comes, which names these two keys and no other.
    if (chunk.includes('lock:x\r\n$16\r\n{lock:x}:waiters')) proxy.loseReplies = true;
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
  await findHeld('x');
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

test('release: the reply that another waits is lost, and it is made up for', async () => {
  // Only a lock that is held for a few round trips, as they take now, is deleted without a look for waiters.
  proxy.delayMs = 500;
  const lock = await here.acquire('x', { ...MINUTE, label: 'here' });
  proxy.delayMs = 0;
  const second = there.acquire('x', { ...MINUTE, label: 'there' });
  await untilQueued(server, 'x', ['there']);
  const calls = () => callsOf(server.admin, SCRIPTS_AND_DELETIONS);
  const before = await calls();
  proxy.loseReplies = true;
  const released = lock.release();
  await until(async () => (await calls()) > before, 'the release to be asked for');
  assert.equal(await owner(), 'here', 'the lock is deleted only if nobody waits');
  restore();
  assert.equal(await released, true);
  assert.equal(await (await second).release(), true);
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
  await findHeld('x');
  proxy.loseReplies = true;
  const second = here.acquire('x', { ...MINUTE, label: 'here', signal: cancel.signal });
  await untilQueued(server, 'x', ['here']);
  cancel.abort(new Error('enough'));
  await assert.rejects(second, { message: 'enough' });
  restore();
  await untilQueued(server, 'x', []);
  assert.equal(await first.release(), true);
});
