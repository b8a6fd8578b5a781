/** The master dies, or gives its role up, while processes hold locks, wait for them and take others. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { Contender, listens } from '../../support/crew.js';
import { problemsIn } from '../../support/history.js';
import { connect, type Lock, type LockManager, openOperations } from '../../support/holdfast.js';
import { Ledger } from '../../support/ledger.js';
import { isPrimary } from '../../support/replication.js';
import { Sentinels } from '../../support/sentinels.js';
import type { RedisServer } from '../../support/server.js';
import { sleep, until } from '../../support/wait.js';

let deployment: Sentinels;
let ledger: Ledger;
const managers: LockManager[] = [];
const crew: Contender[] = [];

beforeEach(async () => {
  ledger = await Ledger.start();
});

afterEach(async () => {
  try {
    await Promise.all(managers.splice(0).map((each) => each.close()));
    assert.equal(openOperations(), 0);
    await Promise.all(crew.splice(0).map((each) => each.stop()));
    await deployment.quiet();
  } finally {
    await Promise.all([deployment.stop(), ledger.stop()]);
  }
});

async function open<T extends string[]>(...names: T): Promise<{ [I in keyof T]: LockManager }> {
  const opened = names.map((clientName) => connect(deployment.target, { clientName }));
  managers.push(...(await Promise.all(opened)));
  return [...managers] as { [I in keyof T]: LockManager };
}

async function enlist(...names: string[]): Promise<void> {
  const options = { managers: 2 };
  const started = names.map((who) => Contender.start(who, deployment.target, ledger, options));
  crew.push(...(await Promise.all(started)));
}

/** A lease and a patience that outlast a failover. */
const LONG = { ttl: 20_000, wait: 60_000 };

/** The same, and a lease that outlasts the test. */
const UNRENEWED = { ...LONG, ttl: 120_000, renew: false };

/** The outcome of a wait: a lock, or an error. */
type Ended = Lock | string;

function startToWait(manager: LockManager, name: string, wait = LONG.wait): Promise<Ended> {
  return manager.acquire(name, { ...LONG, wait }).catch((error: { code: string }) => error.code);
}

function isLock(ended: Ended): asserts ended is Lock {
  assert.equal(typeof ended, 'object', String(ended));
}

async function ownerOf(server: RedisServer, name: string): Promise<string | undefined> {
  return (await server.admin.get(`lock:${name}`))?.replace(/\+$/, '');
}

const names = (kind: string, count: number) =>
  Array.from({ length: count }, (_, i) => `${kind}:${i}`);

test('kill -9: what the replica has is held on, what it has not is told lost', async (t) => {
  deployment = await Sentinels.start();
  const [a, b, c, d] = await open('a', 'b', 'c', 'd');
  const [old, replica] = [await deployment.master(), (await deployment.replicas())[0]];
  assert.ok(replica);
  const take = (all: string[]) =>
    Promise.all(
      all.map((name, i) => (i % 2 === 0 ? a : b).acquire(name, i % 4 < 2 ? LONG : UNRENEWED)),
    );
  const waitFor = (all: string[]) => all.map((name, i) => startToWait(i % 3 === 0 ? c : d, name));
  const kept = await take(names('kept', 40));
  const keptWaiting = waitFor(names('kept', 40));
  const impatient = names('kept', 40).map((name) => startToWait(d, name, 1_000));
  const last = '{lock:kept:39}:queue';
  await until(
    async () => (await old.admin.zcard(last)) === 1,
    'the last of them to wait in the queue',
  );
  await deployment.inSync();
  // From here on the replica learns nothing.
  replica.pause();
  await old.admin.call('CLIENT', 'KILL', 'TYPE', 'replica');
  const lost = await take(names('lost', 20));
  const lostWaiting = waitFor(names('lost', 20));
  await old.kill();
  replica.resume();
  const master = await deployment.failedOver(old);

  // `held` is false ahead of it: a signal is aborted when the event loop comes to it.
  for (const lock of lost) await until(() => lock.signal.aborted, `the loss of ${lock.name}`);
  for (const lock of lost) {
    assert.equal(lock.held, false);
    assert.equal(lock.signal.reason.code, 'ERR_LOCK_LOST');
    assert.equal(await lock.release(), false);
  }
  for (const [i, waiting] of lostWaiting.entries()) {
    const next = await waiting;
    isLock(next);
    assert.ok(next.fence > (lost[i] as Lock).fence);
    assert.equal(await ownerOf(master, next.name), next.token);
    assert.equal(await next.release(), true, `${next.name}: ${next.signal.reason}`);
  }
  for (const lock of kept) {
    await lock.extend();
    assert.equal(lock.signal.aborted, false);
    assert.equal(await ownerOf(master, lock.name), lock.token);
  }
  const ended = await Promise.all(impatient);
  for (const code of ended) assert.match(String(code), /^ERR_LOCK_(TIMEOUT|CONNECTION)$/);
  assert.deepEqual(
    await Promise.all(kept.map((lock) => lock.release())),
    kept.map(() => true),
  );
  for (const [i, waiting] of keptWaiting.entries()) {
    const next = await waiting;
    isLock(next);
    assert.ok(next.fence > (kept[i] as Lock).fence);
    assert.equal(await next.release(), true);
  }
  t.diagnostic(`${kept.length} locks were held on, ${lost.length} were told lost`);
});

test('kill -9 in the middle of a contest, twice: fences rise, and nobody patient fails', async () => {
  deployment = await Sentinels.start({ replicas: 2 });
  await enlist('a', 'b', 'c');
  const contests = ['x', 'y'].map((name) => {
    const contest = { name, tasks: 2, rounds: 1e9, ttl: 5_000, wait: 60_000, stores: true };
    return crew.map((each) => each.order('contend', contest));
  });
  const goOn = async () => {
    const before = (await ledger.holds()).length;
    await until(async () => (await ledger.holds()).length > before + 200, 'the contest to go on');
  };
  await goOn();
  for (let round = 0; round < 2; round++) {
    await deployment.inSync();
    const old = await deployment.master();
    await old.kill();
    await deployment.failedOver(old);
    await goOn();
  }
  await Promise.all(crew.map((each) => each.order('halt')));
  onlyReleasesFailed(await Promise.all(contests.flat()));
  assert.deepEqual(await problemsIn(ledger, { dataLost: true }), []);
});

/** A release without an answer in time rejects, and is repeated later. */
function onlyReleasesFailed(tallies: readonly Record<string, number>[]): void {
  for (const tally of tallies) {
    const ended = Object.keys(tally).filter((code) => code !== 'release:ERR_LOCK_CONNECTION');
    assert.deepEqual(ended, ['ok'], JSON.stringify(tallies));
  }
}

test('kill -9: an acquire with enough patience gets its lock, whenever it began', async () => {
  deployment = await Sentinels.start();
  const [a, b] = await open('a', 'b');
  const old = await deployment.master();
  const asked: Promise<Ended>[] = [];
  let over = false;
  const ask = async () => {
    for (let i = 0; !over; i++) {
      asked.push(startToWait(i % 2 === 0 ? a : b, `patient:${i}`));
      await sleep(10);
    }
  };
  const asking = ask();
  await until(() => asked.length > 20, 'some to have begun');
  await deployment.inSync();
  await old.kill();
  const failover = asked.length;
  await deployment.failedOver(old);
  const afterwards = asked.length;
  await until(() => asked.length > afterwards + 20, 'some more to have begun');
  over = true;
  await asking;
  assert.ok(afterwards > failover + 20, 'many began during the failover');
  for (const waiting of asked) {
    const lock = await waiting;
    isLock(lock);
    await lock.release();
  }
});

test('kill -9: an extension and a connect outlast the failover', async () => {
  deployment = await Sentinels.start();
  const patient = { connectTimeout: 30_000, commandTimeout: 15_000 };
  const locks = await connect(deployment.target, patient);
  managers.push(locks);
  const old = await deployment.master();
  const lock = await locks.acquire('extended', LONG);
  await deployment.inSync();
  await old.kill();
  const extended = lock.extend();
  const later = await connect(deployment.target, patient);
  managers.push(later);
  await extended;
  const master = await deployment.failedOver(old);
  assert.equal(await ownerOf(master, 'extended'), lock.token);
  const other = await later.acquire('other', LONG);
  assert.equal(await ownerOf(master, 'other'), other.token);
});

/**
 * Sentinel tells a healthy old master to follow the new one only after about ten seconds. Until then managers that were
 * connected before would hold locks at the old master that the new one grants to others.
 */
test('an ordered failover: nobody loses a lock, and nobody stays on the old master', async () => {
  deployment = await Sentinels.start();
  const [a, b] = await open('a', 'b');
  const old = await deployment.master();
  const held = await Promise.all(names('held', 20).map((name) => a.acquire(name, LONG)));
  const waiting = names('held', 20).map((name) => startToWait(b, name));
  const last = '{lock:held:19}:queue';
  await until(
    async () => (await old.admin.zcard(last)) === 1,
    'the last of them to wait in the queue',
  );
  const master = await deployment.failOver();
  await Promise.all([listens(master, 'a'), listens(master, 'b')]);
  // No server has closed the connection yet: a manager that waited for that would still be connected.
  assert.equal(await isPrimary(old), true);
  for (const lock of held) {
    await lock.extend();
    assert.equal(await ownerOf(master, lock.name), lock.token);
    assert.equal(await lock.release(), true);
  }
  for (const [i, each] of waiting.entries()) {
    const next = await each;
    isLock(next);
    assert.ok(next.fence > (held[i] as Lock).fence);
    assert.equal(await next.release(), true);
  }
  assert.equal(a.stats().lost, 0);
});

test('ordered failovers in the middle of a contest: fences rise, and nobody patient fails', async () => {
  deployment = await Sentinels.start({ replicas: 2 });
  await enlist('a', 'b', 'c');
  const contest = { name: 'x', tasks: 2, rounds: 1e9, ttl: 5_000, wait: 60_000, stores: true };
  const tallies = crew.map((each) => each.order('contend', contest));
  for (let round = 0; round < 2; round++) {
    const before = (await ledger.holds()).length;
    await until(async () => (await ledger.holds()).length > before + 200, 'the contest to go on');
    await deployment.failOver();
  }
  await Promise.all(crew.map((each) => each.order('halt')));
  onlyReleasesFailed(await Promise.all(tallies));
  assert.deepEqual(await problemsIn(ledger, { dataLost: true }), []);
});

test('a master that is made a replica by hand, its connections left open, is left', async () => {
  deployment = await Sentinels.start();
  const [a, b, c] = await open('a', 'b', 'c');
  const [old, master] = [await deployment.master(), (await deployment.replicas())[0]];
  assert.ok(master);
  const held = await a.acquire('held', { ttl: 3_000 });
  const extended = await c.acquire('extended', LONG);
  const waiting = startToWait(b, 'held');
  await until(async () => (await old.admin.zcard('{lock:held}:queue')) === 1, 'the waiter');
  await deployment.inSync();
  await deployment.change(old, master);
  // The server that refuses it at first is a replica.
  await extended.extend();
  assert.equal(await ownerOf(master, 'extended'), extended.token);
  const lock = await b.acquire('other', LONG);
  assert.equal(await ownerOf(master, 'other'), lock.token);
  assert.equal(await lock.release(), true);
  const { renewals } = a.stats();
  // The old master refuses to renew anything.
  await until(() => a.stats().renewals > renewals, 'a renewal at the new master');
  assert.equal(await ownerOf(master, 'held'), held.token);
  assert.equal(await held.release(), true);
  const next = await waiting;
  isLock(next);
  assert.ok(next.fence > held.fence);
  assert.equal(await next.release(), true);
});

/**
 * 1. A master is stopped, and its managers connect anew. The Sentinels still name it, since it has not been replaced yet,
 *    so the managers wait for its answer.
 * 2. Another master replaces it. Then it continues, and the managers are connected to the old master.
 * 3. They begin to listen to the Sentinels after the message about the new one.
 */
test('a master that stops while it is connected to, and goes on when it is none: it is left at once', async () => {
  deployment = await Sentinels.start();
  await deployment.inSync();
  const old = await deployment.master();
  old.pause();
  // The Sentinels still name it. By the time it answers there is another, and the Sentinels have announced it.
  const connecting = connect(deployment.target, { connectTimeout: 60_000 });
  const master = await deployment.failedOver(old);
  old.resume();
  const locks = await connecting;
  managers.push(locks);
  const arrived = async () => {
    const lock = await locks.acquire('x', LONG);
    const { token } = lock;
    const owner = await ownerOf(master, 'x');
    await lock.release();
    return owner === token;
  };
  await until(arrived, 'locks to be taken at the new master', 5_000);
  assert.equal(await isPrimary(old), true, 'and that before the old one was told');
});
