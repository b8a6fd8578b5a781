/** The lock passes from one task to the next of the same manager, and each is an owner of its own. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { quiet, untilQueued } from '../../support/crew.js';
import { connect, type Lock, type LockManager, openOperations } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { sleep, until } from '../../support/wait.js';

let server: RedisServer;
let locks: LockManager;

beforeEach(async () => {
  server = await RedisServer.start();
  locks = await connect(server.url);
});

afterEach(async () => {
  await locks.close();
  assert.equal(openOperations(), 0);
  await quiet(server);
  await server.stop();
});

interface LockRequest {
  readonly ttl?: number;
  readonly maxHold?: number;
}

/**
 * Makes the first of `requests` an owner with a grant of its own and fences for the others, which wait
 * in this order.
 */
async function ownerWithSuccessors(
  ...requests: readonly LockRequest[]
): Promise<[Lock, ...Promise<Lock>[]]> {
  const acquire = (request: LockRequest) =>
    locks.acquire('x', { ttl: 60_000, wait: 60_000, label: 'x', ...request });
  // Fences are reserved for the callers that wait when a manager is queued, so two callers come before.
  const [first, second, ...successors] = [acquire({}), acquire({}), ...requests.map(acquire)];
  await (await first)?.release();
  const before = await (second as Promise<Lock>);
  await untilQueued(server, 'x', ['x']);
  const handedOff = locks.stats().handedOff;
  // A token that was read goes through the server.
  assert.match(before.token, /^hf1\./);
  await before.release();
  const owner = await (successors[0] as Promise<Lock>);
  assert.equal(locks.stats().handedOff, handedOff);
  await until(async () => (await server.admin.pttl('lock:x')) > 3_000, 'the claim');
  return [owner, ...successors.slice(1)];
}

const handedOff = () => locks.stats().handedOff;

test('a lock is handed off under the same token, with the next fence', async () => {
  const [owner, second, third] = await ownerWithSuccessors({}, {}, {});
  const value = await server.admin.get('lock:x');
  const [before, { requests }] = [handedOff(), locks.stats()];
  assert.equal(await owner.release(), true);
  const successor = (await second) as Lock;
  assert.equal(successor.fence, owner.fence + 1);
  assert.equal(await successor.release(), true);
  const last = (await third) as Lock;
  assert.equal(last.fence, successor.fence + 1);
  assert.equal(handedOff() - before, 2);
  assert.equal((await server.admin.get('lock:x'))?.replace('+', ''), value?.replace('+', ''));
  // The last of them gives up the position in the wait queue.
  await untilQueued(server, 'x', []);
  assert.ok(locks.stats().requests - requests <= 1);
  assert.equal(await last.release(), true);
  assert.equal(await server.admin.exists('lock:x'), 0);
});

test('a lock whose token was read is never handed off', async () => {
  const [owner, second] = await ownerWithSuccessors({}, {});
  const before = handedOff();
  const { token } = owner;
  assert.equal(await owner.release(), true);
  const successor = (await second) as Lock;
  assert.equal(handedOff(), before);
  assert.notEqual(successor.token, token);
  assert.ok(successor.fence > owner.fence);
  assert.equal(await successor.release(), true);
});

test('a released lock tells no token: its successor may own the lock with that', async () => {
  const [owner, second] = await ownerWithSuccessors({}, {});
  const before = handedOff();
  assert.equal(await owner.release(), true);
  const successor = (await second) as Lock;
  assert.equal(handedOff(), before + 1);
  const told = JSON.parse(JSON.stringify(owner));
  assert.deepEqual([owner.token, told.token, told.fence], ['', '', owner.fence]);
  const { requests } = locks.stats();
  await assert.rejects(locks.adopt(told), {
    code: 'ERR_LOCK_LOST',
    reason: 'released',
    message: /it was released before its toJSON\(\) was called/,
  });
  assert.equal(locks.stats().requests, requests);
  assert.equal(successor.held, true);
  assert.equal(await successor.release(), true);
});

test('maxHold counts for each owner, not from the grant', async () => {
  const maxHold = 1_500;
  const [first, ...others] = await ownerWithSuccessors({}, ...Array(4).fill({ maxHold }));
  const before = handedOff();
  const lost: string[] = [];
  locks.on('lost', (_lock, error) => lost.push(error.reason));
  await sleep(600);
  // A lock that the server has just confirmed is handed off in the process.
  await first.extend();
  await first.release();
  for (const successor of others.slice(0, 3)) {
    const lock = (await successor) as Lock;
    await sleep(600);
    assert.equal(lock.held, true, 'all together had it for longer than maxHold');
    await lock.extend();
    assert.equal(await lock.release(), true);
  }
  assert.equal(handedOff() - before, 4);
  assert.deepEqual(lost, []);
  // And the lease does end, though the caller keeps the lock.
  const last = (await others[3]) as Lock;
  const got = performance.now();
  await until(() => lost.length === 1, 'the loss');
  assert.ok(performance.now() - got > maxHold / 2);
  assert.deepEqual(lost, ['maxHold']);
  assert.equal(last.held, false);
  await until(async () => (await server.admin.exists('lock:x')) === 0, 'the lock to be free');
});

test('an owner who is over cannot touch the hold of the next', async () => {
  const [owner, second, third] = await ownerWithSuccessors({}, { ttl: 50_000 }, {});
  // Under way when the lock is handed off.
  const extending = owner.extend(600_000).then(
    () => 'done',
    (error: { code: string }) => error.code,
  );
  const releasing = owner.release();
  const again = owner.release();
  assert.equal(await releasing, true);
  assert.equal(await again, false);
  assert.match(await extending, /done|ERR_LOCK_LOST/);
  const successor = (await second) as Lock;
  assert.equal(owner.held, false);
  assert.equal(owner.remaining, 0);
  await assert.rejects(owner.extend(600_000), { code: 'ERR_LOCK_LOST', reason: 'released' });
  assert.equal(await owner.release(), false);
  assert.equal(successor.held, true);
  await successor.extend();
  assert.match((await server.admin.get('lock:x')) ?? '', /^hf1\./);
  assert.equal(await successor.release(), true);
  const last = (await third) as Lock;
  assert.equal(successor.held, false);
  assert.equal(last.held, true);
  assert.equal(await last.release(), true);
});

test('an owner who was lost by maxHold does not take the next with it', async () => {
  const [owner, second] = await ownerWithSuccessors({ maxHold: 300 }, {});
  let lost = 0;
  locks.on('lost', (lock) => {
    assert.equal(lock, owner);
    lost += 1;
  });
  await until(() => lost === 1, 'the loss');
  const successor = (await second) as Lock;
  assert.ok(successor.fence > owner.fence);
  assert.equal(owner.held, false);
  assert.equal(await owner.release(), false);
  assert.equal(successor.held, true);
  await successor.extend();
  assert.equal(await successor.release(), true);
  assert.equal(lost, 1);
});
