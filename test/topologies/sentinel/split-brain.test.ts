/**
 * Two servers that both take themselves for the master: one was stopped, replaced, and goes on.
 *
 * No lock can prevent that a client which is cut off from the Sentinels holds there a lock that another
 * holds at the new master. A resource that checks fences is safe all the same.
 */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import type { ConnectOptions } from 'holdfast';
import { Contender } from '../../support/crew.js';
import { problemsIn } from '../../support/history.js';
import type { ConnectTarget } from '../../support/holdfast.js';
import { Ledger } from '../../support/ledger.js';
import { FaultProxy } from '../../support/proxy.js';
import { isPrimary } from '../../support/replication.js';
import { Sentinels } from '../../support/sentinels.js';
import type { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

let deployment: Sentinels;
let ledger: Ledger;
/** The only way to the Sentinels for processes that are cut off from them later. */
let hearsay: FaultProxy;
let old: RedisServer;
const crew: Contender[] = [];

beforeEach(async () => {
  [deployment, ledger] = await Promise.all([Sentinels.start(), Ledger.start()]);
  hearsay = await FaultProxy.start(deployment.sentinels[0]?.port ?? 0);
  old = await deployment.master();
});

afterEach(async () => {
  try {
    await Promise.all(crew.splice(0).map((each) => each.stop()));
    await deployment.quiet();
  } finally {
    await Promise.all([hearsay.stop(), deployment.stop(), ledger.stop()]);
  }
});

/** Processes that use the new master as soon as there is one. */
function fresh(who: string): Promise<Contender> {
  return start(who, deployment.target);
}

/** Processes that are cut off from the Sentinels, and in no hurry to give a connection up. */
function stale(who: string): Promise<Contender> {
  const target = { sentinels: [`127.0.0.1:${hearsay.port}`], master: deployment.name };
  return start(who, target, { commandTimeout: 120_000 });
}

async function start(
  who: string,
  target: ConnectTarget,
  options: ConnectOptions = {},
): Promise<Contender> {
  const contender = await Contender.start(who, target, ledger, options);
  crew.push(contender);
  return contender;
}

/** Stops the master; some processes will not learn of the failover. */
async function stopTheMaster(): Promise<void> {
  await deployment.inSync();
  hearsay.blackhole = true;
  old.pause();
}

/** The processes that were cut off reach the Sentinels again, and the old master becomes a replica. */
async function heal(): Promise<void> {
  hearsay.blackhole = false;
  hearsay.cut();
  await deployment.demoted(old);
}

async function countOf(who: string): Promise<number> {
  return (await ledger.holds()).filter((hold) => hold.who === who).length;
}

async function storeOf(lock: string) {
  const store = (await ledger.stores()).get(lock);
  assert.ok(store);
  return store;
}

test('one lock, two holders: the store accepts no write of the one at the old master', async (t) => {
  const [late, early] = [await stale('late'), await fresh('early')];
  const patience = { ttl: 60_000, wait: 60_000 };
  // The counter of fences is in both histories.
  const first = await late.order('hold', 'x', patience);
  assert.equal(await late.order('release', first.id), true);
  await stopTheMaster();
  // It lies in a buffer of the old master until that goes on.
  const asked = late.order('hold', 'x', patience);
  await deployment.failedOver(old);
  const theirs = await early.order('hold', 'x', patience);
  old.resume();
  const mine = await asked;
  assert.equal(await isPrimary(old), true);
  assert.equal(await late.order('isHeld', mine.id), true);
  assert.equal(await early.order('isHeld', theirs.id), true);
  assert.ok(theirs.fence > mine.fence);
  const rounds = 10;
  for (let round = 0; round < rounds; round++) {
    assert.equal(await early.order('write', theirs.id), true);
    assert.equal(await late.order('write', mine.id), false);
  }
  const { value, accepted, refused, plain } = await storeOf('x');
  assert.deepEqual([value, accepted, refused], [rounds, rounds, rounds]);
  assert.equal(plain, 2 * rounds, 'the store that checks nothing accepts them all');
  t.diagnostic(`${refused} stale writes were refused, and accepted where no fence is checked`);
  await heal();
  await until(async () => !(await late.order('isHeld', mine.id)), 'the loss to be told', 60_000);
  assert.equal(await late.order('release', mine.id), false);
  assert.equal(await early.order('isHeld', theirs.id), true);
  assert.equal(await early.order('release', theirs.id), true);
  assert.deepEqual(await problemsIn(ledger, { dataLost: true }), []);
});

test('a contest that goes on at both masters: the store that checks fences loses no update', async (t) => {
  await Promise.all([stale('a'), stale('b'), fresh('c'), fresh('d')]);
  const contest = { name: 'x', tasks: 2, rounds: 1e9, ttl: 2_000, wait: 120_000, stores: true };
  const tallies = crew.map((each) => each.order('contend', contest));
  const goOn = async (who: string) => {
    const before = await countOf(who);
    await until(async () => (await countOf(who)) > before + 20, `${who} to go on`, 60_000);
  };
  await Promise.all(['a', 'b', 'c', 'd'].map(goOn));
  await stopTheMaster();
  await deployment.failedOver(old);
  await Promise.all([goOn('c'), goOn('d')]);
  old.resume();
  await Promise.all([goOn('a'), goOn('b')]);
  assert.equal(await isPrimary(old), true, 'and that at the old master');
  await heal();
  await Promise.all(['a', 'b', 'c', 'd'].map(goOn));
  await Promise.all(crew.map((each) => each.order('halt')));
  const results = await Promise.all(tallies);
  for (const tally of results) {
    const ended = Object.keys(tally).filter((code) => code !== 'release:ERR_LOCK_CONNECTION');
    assert.deepEqual(ended, ['ok'], JSON.stringify(results));
  }
  const { value, accepted, refused } = await storeOf('x');
  assert.ok(refused > 0, 'there was something to refuse');
  assert.equal(value, accepted);
  t.diagnostic(`${accepted} writes were accepted, ${refused} accesses with an old fence refused`);
  assert.deepEqual(await problemsIn(ledger, { dataLost: true }), []);
});
