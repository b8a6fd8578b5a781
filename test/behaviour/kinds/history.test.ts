/** All kinds of locks at once, at random, from several processes: with and without faults. */

import assert from 'node:assert/strict';
import { afterEach, type TestContext, test } from 'node:test';
import { Contender, forgetTheDead, labelOf, quiet } from '../../support/crew.js';
import { disrupt } from '../../support/disruptions.js';
import { type Grant, GrantWatch } from '../../support/grants.js';
import type { Hold, HoldRequest } from '../../support/history.js';
import { type Deaths, problemsOfKinds } from '../../support/kinds.js';
import { Ledger } from '../../support/ledger.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { sleep } from '../../support/wait.js';

/** How long the random part lasts. */
const SECONDS = Number(process.env['HOLDFAST_SECONDS'] ?? 15);
const NAMES = ['a', 'b', 'c', 'd'] as const;

const server = serverOfFile();
const ledger = new Ledger(serverOfFile());
const crew: Contender[] = [];
const watches: GrantWatch[] = [];

afterEach(async () => {
  for (const { monitor } of watches.splice(0)) monitor.disconnect();
  await Promise.all(crew.splice(0).map((each) => each.stop()));
  // The side keys of killed processes stay for half a minute after the last lease.
  await quiet(server, 40_000);
  await ledger.clear();
});

async function enlist(...names: string[]): Promise<void> {
  crew.push(...(await Promise.all(names.map((who) => Contender.start(who, server.url, ledger)))));
}

function held(fence: number, begin: number, end: number, more: Partial<Hold> = {}): Hold {
  return { who: 'x', lock: 'a', fence, begin, end, stillborn: false, lost: false, ...more };
}

function shared(
  fence: number,
  begin: number,
  end: number,
  request: Partial<HoldRequest> = {},
): Hold {
  return held(fence, begin, end, { request: { asked: begin - 1, shared: true, ...request } });
}

test('the check finds what cannot have been', () => {
  const reader = shared(2, 10, 30);
  const two = { limit: 2 };
  const wrong: [string, Hold[]][] = [
    ['not alone', [held(1, 10, 20), held(2, 19, 30)]],
    ['not alone', [held(1, 10, 20), shared(2, 19, 30)]],
    ['not alone', [reader, shared(3, 11, 12), held(4, 29, 40)]],
    ['not alone', [held(1, 10, 50, { downgraded: 20 }), held(2, 40, 60)]],
    ['not alone', [held(1, 10, 50, { downgraded: 20 }), shared(2, 19, 60)]],
    ['not alone', [held(1, 10, 20, { lost: true, lostAt: 25 }), shared(2, 24, 30)]],
    ['not alone', [held(1, 10, 10, { who: 'dead', until: 60 }), held(2, 39, 50)]],
    ['not alone', [held(0, 10, 20), shared(2, 19, 30)]],
    ['over 2', [shared(1, 10, 30, two), shared(2, 11, 30, two), shared(3, 12, 30, two)]],
    ['over 2', [shared(1, 10, 30), shared(2, 25, 30), shared(3, 12, 30, two)]],
    ['over 1', [held(1, 10, 50, { downgraded: 20 }), shared(2, 25, 30, { limit: 1 })]],
    ['one fence twice', [reader, shared(2, 11, 12)]],
    ['a smaller fence later', [held(2, 10, 20), shared(1, 20, 30)]],
    ['a smaller fence later', [reader, held(1, 30, 40)]],
    ['a smaller fence later', [reader, shared(1, 12, 13, { asked: 11 })]],
  ];
  const deaths = new Map([['dead', 40]]);
  for (const [problem, holds] of wrong) {
    const found = problemsOfKinds(holds, { deaths }).join();
    assert.match(found, new RegExp(problem), JSON.stringify(holds));
  }
  const right = [
    [reader, shared(3, 11, 40), shared(1, 12, 15, { asked: 9 }), held(4, 40, 50)],
    [held(1, 10, 50, { downgraded: 20 }), shared(2, 20, 60), held(3, 60, 61)],
    [shared(1, 10, 30, two), shared(2, 12, 30, two), shared(3, 30, 40, two)],
    // A holder without a limit counts for later callers, and may learn of its grant sooner than they do.
    [shared(1, 10, 30, two), shared(2, 12, 30, two), shared(3, 11, 30)],
    [held(1, 10, 10, { who: 'dead', until: 60 }), held(2, 40, 50)],
    [held(1, 10, 10, { who: 'dead', until: 30 }), held(2, 30, 50)],
    [held(2, 10, 20), held(1, 15, 15, { stillborn: true })],
  ];
  for (const holds of right) assert.deepEqual(problemsOfKinds(holds, { deaths }), []);
});

/** The records of the holders, and the state of the stores that the locks protect. */
async function problems(deaths: Deaths = new Map()): Promise<string[]> {
  const found = problemsOfKinds(await ledger.holds(), { deaths });
  for (const [lock, { value, accepted }] of await ledger.stores()) {
    if (value !== accepted) found.push(`${lock}: ${accepted} guarded writes made ${value}`);
  }
  return found;
}

/** Fails unless every kind of lock was held, and every way to end occurred. */
function covers(t: TestContext, holds: readonly Hold[], tallies: Record<string, number>[]): void {
  const sum: Record<string, number> = {};
  for (const [ended, times] of tallies.flatMap(Object.entries) as [string, number][]) {
    sum[ended] = (sum[ended] ?? 0) + times;
  }
  const count = (is: (hold: Hold) => boolean) => holds.filter(is).length;
  const kinds = {
    alone: count(({ request }) => request?.shared === false),
    shared: count(({ request }) => request?.shared === true && request.limit === undefined),
    limited: count(({ request }) => request?.limit !== undefined),
    downgraded: count(({ downgraded }) => downgraded !== undefined),
  };
  t.diagnostic(`${JSON.stringify(kinds)} ${JSON.stringify(sum)}`);
  for (const [kind, times] of Object.entries(kinds)) assert.ok(times > 0, `none was ${kind}`);
  for (const ended of ['ok', 'refused', 'cancelled', 'ERR_LOCK_TIMEOUT']) {
    assert.ok((sum[ended] ?? 0) > 0, `none ended ${ended}`);
  }
}

/** Ends that occurred and should not. */
function unexpected(tallies: Record<string, number>[], ...expected: string[]): string[] {
  const usual = ['ok', 'refused', 'cancelled', 'unanswered', 'ERR_LOCK_TIMEOUT'];
  const ended = tallies.flatMap(Object.keys);
  return ended.filter((each) => ![...usual, ...expected].includes(each));
}

test('without faults: nothing is lost, and every grant is that of the first waiter', async (t) => {
  for (const name of NAMES) watches.push(await GrantWatch.start(server, name));
  await enlist('p1', 'p2', 'p3', 'p4');
  const plan = { names: NAMES, tasks: 5, ttl: 20_000, wait: 60_000, peaceful: true };
  const roaming = crew.map((each) => each.order('roam', plan));
  await sleep(SECONDS * 250);
  await Promise.all(crew.map((each) => each.order('halt')));
  const tallies = await Promise.all(roaming);
  const grants: Grant[] = [];
  for (const watch of watches) grants.push(...(await watch.stop()));
  assert.ok(grants.length > 20, `${grants.length} grants`);
  assert.deepEqual(outOfTurn(grants), []);
  const holds = await ledger.holds();
  covers(t, holds, tallies);
  assert.deepEqual(await problems(), []);
  assert.deepEqual(unexpected(tallies), []);
  assert.deepEqual(
    holds.filter(({ lost }) => lost),
    [],
  );
  for (const { plain, accepted } of (await ledger.stores()).values()) assert.equal(plain, accepted);
});

/** Grants while another waiter was ahead in the queue. */
function outOfTurn(grants: readonly Grant[]): string[] {
  return grants
    .filter(({ token, line: [first = token] }) => first !== token)
    .map(({ token, line }) => `${labelOf(token)} ahead of ${line.map(labelOf)}`);
}

/** Longer than any lease of a process that may be stopped or killed, which is `LEASE_MS` at most. */
const PAUSE_MS = 1_000;
const LEASE_MS = 600;

test('with processes that are killed, or stopped past their leases, at random', async (t) => {
  const plan = { names: NAMES, tasks: 5, ttl: LEASE_MS, wait: 5_000 };
  const post = {
    start: (who: string) => Contender.start(who, server.url, ledger),
    work: (contender: Contender) => contender.order('roam', plan),
  };
  const times = { seconds: SECONDS, pauseMs: PAUSE_MS };
  const { deaths, pauses, results } = await disrupt(crew, [post, post, post, post], times);
  const holds = await ledger.holds();
  const lost = holds.filter((hold) => hold.lost).length;
  t.diagnostic(`${deaths.size} kills, ${pauses} pauses, ${lost} lost`);
  assert.ok(deaths.size > 0 && pauses > 0);
  covers(t, holds, results);
  assert.deepEqual(await problems(deaths), []);
  // A process that was stopped for so long may have lost its locks, and the answers to its requests.
  assert.deepEqual(unexpected(results, 'ERR_LOCK_LOST', 'ERR_LOCK_CONNECTION'), []);
  for (const name of NAMES) await forgetTheDead(server, name, crew[0] as Contender);
});
