/** A semaphore whose holders are killed: never more than it allows, and whole again one lease later. */

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { Contender, quiet } from '../../support/crew.js';
import { now } from '../../support/history.js';
import { connect, type Lock, type LockManager } from '../../support/holdfast.js';
import { problemsOfKinds } from '../../support/kinds.js';
import { Ledger } from '../../support/ledger.js';
import { RedisServer } from '../../support/server.js';
import { sleep, until } from '../../support/wait.js';

const PERMITS = { mode: 'shared', limit: 10 } as const;
const LEASE_MS = 1_500;
/** How long a lock or a share is kept for a waiter that was granted it by message. */
const CLAIM_MS = 3_000;
/** For a busy machine. */
const SLACK_MS = 1_000;

let server: RedisServer;
let ledger: Ledger;
let locks: LockManager;
const crew: Contender[] = [];
const deaths = new Map<string, number>();

before(async () => {
  [server, ledger] = await Promise.all([RedisServer.start(), Ledger.start()]);
  locks = await connect(server.url);
});

afterEach(async () => {
  await Promise.all(crew.splice(0).map((each) => each.stop()));
  assert.deepEqual(problemsOfKinds(await ledger.holds(), { deaths }), []);
  await ledger.clear();
});

after(async () => {
  await locks.close();
  // The shares of killed processes stay on the server for half a minute, but do not count any more.
  await quiet(server, 40_000);
  await Promise.all([server.stop(), ledger.stop()]);
});

async function enlist(...names: string[]): Promise<void> {
  crew.push(...(await Promise.all(names.map((who) => Contender.start(who, server.url, ledger)))));
}

async function kill(victim: Contender): Promise<void> {
  deaths.set(victim.who, now());
  await victim.kill();
}

/** Takes permits until one is refused, and releases them. Answers their number. */
async function freePermits(name: string): Promise<number> {
  const taken: Lock[] = [];
  for (;;) {
    const permit = await locks.tryAcquire(name, PERMITS);
    if (permit === null) break;
    taken.push(permit);
  }
  assert.ok((await Promise.all(taken.map((permit) => permit.release()))).every(Boolean));
  return taken.length;
}

/** Fails unless all permits are free again one lease after `killed`, or `more` later, and not much earlier. */
async function allFreeAfter(name: string, killed: number, more = 0): Promise<void> {
  await until(async () => (await freePermits(name)) === 10, 'ten free permits');
  const took = (now() - killed) / 1000;
  assert.ok(took < LEASE_MS + more + SLACK_MS, `it took ${took} ms`);
}

test('all ten are held by processes that are killed: free again one lease later', async () => {
  await enlist('p1', 'p2', 'p3', 'p4');
  const request = { ...PERMITS, ttl: LEASE_MS, wait: 0 };
  const orders = Array.from({ length: 10 }, (_, i) =>
    (crew[i % 4] as Contender).order('hold', 'x', request),
  );
  await Promise.all(orders);
  assert.equal(await locks.tryAcquire('x', PERMITS), null);
  // A lease and more: they are renewed.
  await sleep(2 * LEASE_MS);
  assert.equal(await locks.tryAcquire('x', PERMITS), null);
  const killed = now();
  await Promise.all(crew.map(kill));
  assert.equal(await freePermits('x'), 0, 'nobody knows of their end yet');
  await allFreeAfter('x', killed);
});

test('permits come and go, and their holders are killed at random: never more than ten', async (t) => {
  const names = ['q1.0', 'q2.0', 'q3.0', 'q4.0'];
  await enlist(...names);
  const contest = { ...PERMITS, name: 'y', tasks: 6, rounds: 1e9, work: 30 };
  const more = { ...contest, ttl: LEASE_MS, wait: 60_000, killable: true };
  const order = (each: Contender) => void each.order('contend', more);
  for (const each of crew) order(each);
  const used = async () => mostAtOnce(await ledger.holds()) === 10;
  await until(used, 'the semaphore to be used to the full');
  for (let kills = 1; kills <= 12; kills++) {
    await sleep(Math.random() * 500);
    const index = Math.floor(Math.random() * crew.length);
    await kill(crew[index] as Contender);
    const successor = await Contender.start(`q${index + 1}.${kills}`, server.url, ledger);
    crew[index] = successor;
    order(successor);
  }
  await until(async () => (await freePermits('y')) === 0, 'all to be held');
  const killed = now();
  await Promise.all(crew.map(kill));
  // Waiters were killed, too: permits are kept for them, should they connect again.
  await allFreeAfter('y', killed, 2 * CLAIM_MS);
  const holds = await ledger.holds();
  t.diagnostic(`${holds.length} holds, ${mostAtOnce(holds)} at once`);
  assert.equal(mostAtOnce(holds), 10, 'never more');
});

/** The number of certain holders. */
function mostAtOnce(holds: readonly { begin: number; end: number }[]): number {
  const changes = holds.flatMap(({ begin, end }) => [
    { at: begin, by: 1 },
    { at: end, by: -1 },
  ]);
  changes.sort((a, b) => a.at - b.at || a.by - b.by);
  let [count, most] = [0, 0];
  for (const { by } of changes) {
    count += by;
    most = Math.max(most, count);
  }
  return most;
}
