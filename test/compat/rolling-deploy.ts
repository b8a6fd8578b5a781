/**
 * The promises of a rolling deploy: while some instances still lock with another client and some
 * with holdfast, both exclude each other by the same name. One set of promises for all clients.
 */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { connect, holdfast, type LockManager, openOperations } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';
import { sleep, until } from '../support/wait.js';

/** A lock that another client holds, or believes to hold. */
export interface PeerLock {
  /** Whether it was freed; undefined if the client does not tell. */
  release(): Promise<boolean | undefined>;
  /** Makes the lease end `ttl` ms from now, if the lock is still the client's: whether it was. */
  extend(ttl: number): Promise<boolean>;
}

/** Another client of the same locks. */
export interface Peer {
  /** One attempt; null if the lock is held. */
  tryAcquire(name: string, ttl: number): Promise<PeerLock | null>;
  /** Waits in the client's own way. */
  acquire(name: string, ttl: number): Promise<PeerLock>;
  close(): Promise<void>;
}

/** The subjects of the tests; complete as soon as the first test runs. */
export interface Stage<P extends Peer = Peer> {
  server: RedisServer;
  locks: LockManager;
  peer: P;
}

/** A lease that lasts for the whole test. */
export const LONG_MS = 60_000;
/** A lease that a test sees the end of. Long enough for two busy cores to take the lock in. */
const SHORT_MS = 750;

/** The ways in which the owner loses a lock that it still believes to hold. */
type Fault = 'lease ran out' | 'key deleted';
const FAULTS: readonly Fault[] = ['lease ran out', 'key deleted'];

/** Tests all promises between holdfast and the client that `open` makes. */
export function testRollingDeploy<P extends Peer>(
  title: string,
  open: (server: RedisServer) => Promise<P>,
  prefix = '',
): Stage<P> {
  const stage = prepare(open, prefix);
  testExclusion(stage, title);
  for (const fault of FAULTS) {
    testLatePeer(stage, title, fault, prefix);
    testLateHoldfast(stage, title, fault, prefix);
  }
  testLeaseEnd(stage, title, prefix);
  testContention(stage, title);
  return stage;
}

function prepare<P extends Peer>(
  open: (server: RedisServer) => Promise<P>,
  prefix: string,
): Stage<P> {
  const started: Partial<Stage<P>> = {};
  before(async () => {
    started.server = await RedisServer.start();
    started.peer = await open(started.server);
    started.locks = await connect(started.server.url, { prefix });
  });
  // Whatever did start is ended, also if the rest did not.
  after(async () => {
    await started.peer?.close();
    await started.locks?.close();
    await started.server?.stop();
    assert.equal(openOperations(), 0);
  });
  return started as Stage<P>;
}

function testExclusion(stage: Stage, title: string): void {
  test(`${title}: we are refused while it holds the lock, and get it after its release`, async () => {
    const { locks, peer } = stage;
    const held = await take(peer, 'its', LONG_MS);
    assert.equal(await locks.tryAcquire('its'), null);
    await assert.rejects(locks.acquire('its', { wait: 100 }), isTimeoutByOtherCode);
    assert.equal(await held.extend(LONG_MS), true);

    const waiting = locks.acquire('its', { wait: LONG_MS });
    // Sent after it on the same connection: when this is answered, the other was refused once.
    assert.equal(await locks.tryAcquire('its'), null);
    assert.notEqual(await held.release(), false);
    const lock = await waiting;
    assert.equal(await lock.release(), true);
  });

  test(`${title}: it is refused while we hold the lock, and gets it after our release`, async () => {
    const { locks, peer } = stage;
    const lock = await locks.acquire('ours', { ttl: LONG_MS });
    assert.equal(await peer.tryAcquire('ours', LONG_MS), null);
    await lock.extend(2 * LONG_MS);
    assert.equal(await peer.tryAcquire('ours', LONG_MS), null);

    const waiting = peer.acquire('ours', LONG_MS);
    assert.equal(await lock.release(), true);
    const held = await waiting;
    assert.equal(await locks.tryAcquire('ours'), null);
    assert.notEqual(await held.release(), false);
    const again = await take(peer, 'ours', LONG_MS);
    assert.notEqual(await again.release(), false);
  });
}

/** The other client lost its lock to us and acts on it all the same. */
function testLatePeer(stage: Stage, title: string, fault: Fault, prefix: string): void {
  for (const action of ['release', 'extend'] as const) {
    test(`${title}: its late ${action} leaves our lock alone (${fault})`, async () => {
      const { server, locks, peer } = stage;
      const name = `late peer, ${action}, ${fault}`;
      const stale = await take(peer, name, leaseFor(fault));
      await lose(server, prefix + name, fault);
      const lock = await locks.acquire(name, { ttl: LONG_MS, wait: 0 });

      if (action === 'release') assert.notEqual(await stale.release(), true);
      else assert.equal(await stale.extend(LONG_MS / 4), false);

      await assertUntouched(server, prefix + name, lock.token);
      assert.equal(lock.held, true);
      assert.equal(await lock.release(), true);
    });
  }
}

/** We lost our lock to the other client and act on it all the same. */
function testLateHoldfast(stage: Stage, title: string, fault: Fault, prefix: string): void {
  for (const action of ['release', 'extend'] as const) {
    test(`${title}: our late ${action} leaves its lock alone (${fault})`, async () => {
      const { server, locks, peer } = stage;
      const name = `late holdfast, ${action}, ${fault}`;
      const stale = await locks.acquire(name, { ttl: leaseFor(fault), renew: false });
      await lose(server, prefix + name, fault);
      const held = await take(peer, name, LONG_MS);
      const value = await server.admin.get(prefix + name);

      if (action === 'release') assert.equal(await stale.release(), false);
      else await assert.rejects(stale.extend(4 * LONG_MS), isLost);

      await assertUntouched(server, prefix + name, value);
      assert.equal(stale.held, false);
      assert.notEqual(await held.release(), false);
    });
  }
}

/** At the end of a lease holdfast cleans up by itself, on the server too. */
function testLeaseEnd(stage: Stage, title: string, prefix: string): void {
  test(`${title}: the end of our lease leaves its lock alone (key deleted)`, async () => {
    const { server, locks, peer } = stage;
    const name = 'lease end';
    const stale = await locks.acquire(name, { ttl: SHORT_MS, renew: false });
    await lose(server, prefix + name, 'key deleted');
    const held = await take(peer, name, LONG_MS);
    const value = await server.admin.get(prefix + name);

    await until(() => !stale.held, 'the end of our lease');
    // One round trip on the same connection: whatever was sent at the end has been executed.
    assert.equal(await locks.tryAcquire(name), null);
    await assertUntouched(server, prefix + name, value);
    assert.notEqual(await held.release(), false);
  });
}

const TASKS = 4;
const INCREMENTS_EACH = 50;

function testContention(stage: Stage, title: string): void {
  test(`${title}: no update is lost between four of its tasks and four of ours`, async () => {
    const { server, locks, peer } = stage;
    const fences: number[] = [];
    const done = { ours: 0, its: 0 };
    // A process that is done first goes on until the others are done, so that they contend to the end.
    const unfinished = () => Math.min(done.ours, done.its) < INCREMENTS_EACH;

    const ours = async () => {
      while (unfinished()) {
        const lock = await locks.acquire('contended', { ttl: LONG_MS, wait: LONG_MS });
        fences.push(lock.fence);
        await increment(server);
        done.ours += 1;
        assert.equal(await lock.release(), true);
        // The other client polls: it gets in only when none of ours waits.
        await sleep(Math.random() * 40);
      }
    };
    const its = async () => {
      while (unfinished()) {
        const held = await peer.acquire('contended', LONG_MS);
        await increment(server);
        done.its += 1;
        assert.notEqual(await held.release(), false);
      }
    };
    const tasks = Array.from({ length: TASKS }, () => [ours(), its()]);
    await Promise.all(tasks.flat());

    assert.equal(await server.admin.get('count'), String(done.ours + done.its));
    const increasing = [...new Set(fences)].sort((a, b) => a - b);
    assert.deepEqual(fences, increasing, 'every fence must be greater than the one before');
  });
}

/** Adds one in a way that loses updates if two do it at the same time. */
async function increment(server: RedisServer): Promise<void> {
  const count = Number(await server.admin.get('count'));
  await sleep(1);
  await server.admin.set('count', count + 1);
}

/** Takes a lock that is free. */
export async function take(peer: Peer, name: string, ttl: number): Promise<PeerLock> {
  const held = await peer.tryAcquire(name, ttl);
  assert.ok(held !== null, `the other client was refused the free lock "${name}"`);
  return held;
}

function leaseFor(fault: Fault): number {
  return fault === 'lease ran out' ? SHORT_MS : LONG_MS;
}

/** Takes a lock away from its owner behind the owner's back. */
async function lose(server: RedisServer, key: string, fault: Fault): Promise<void> {
  if (fault === 'key deleted') assert.equal(await server.admin.del(key), 1);
  else await until(async () => (await server.admin.exists(key)) === 0, `the end of ${key}`);
}

/** Fails unless `key` stands as its owner made it: the same value, and a lease of `LONG_MS`. */
export async function assertUntouched(
  server: RedisServer,
  key: string,
  value: string | null,
): Promise<void> {
  assert.equal(await server.admin.get(key), value);
  const remaining = await server.admin.pttl(key);
  assert.ok(remaining <= LONG_MS, `the lease was lengthened to ${remaining} ms`);
  assert.ok(remaining > LONG_MS / 2, `the lease was shortened to ${remaining} ms`);
}

function isTimeoutByOtherCode(error: unknown): true {
  assert.ok(error instanceof holdfast.LockTimeoutError);
  assert.equal(error.code, 'ERR_LOCK_TIMEOUT');
  assert.match(
    error.message,
    /it is held by other code, and its lease ends in [\d.hms]+; the caller was number 1 in the wait queue$/,
  );
  assert.equal(error.holderLabel, undefined);
  assert.ok(error.remaining !== undefined && error.remaining <= LONG_MS);
  return true;
}

function isLost(error: unknown): true {
  assert.ok(error instanceof holdfast.LockLostError);
  assert.equal(error.code, 'ERR_LOCK_LOST');
  assert.equal(error.reason, 'expired');
  return true;
}
