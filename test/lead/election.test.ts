/** Elections among processes that are killed, stopped and cut off, judged from the log that they share. */

import assert from 'node:assert/strict';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, type TestContext, test } from 'node:test';
import { Contender } from '../support/crew.js';
import { removeFolder } from '../support/folders.js';
import { FaultProxy } from '../support/proxy.js';
import { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';
import type { Orders } from './candidate.js';
import { judge, type LoggedTerm } from './log.js';

/** The lease where a leader ends without a word. */
const LEASE_MS = 1_500;
/** Longer than a test waits for anything: only a release lets the next one lead. */
const LONG_MS = 120_000;

type Candidate = Contender<Orders>;

let server: RedisServer;
let folder: string;
let log: string;
let crew: Candidate[] = [];
let proxies: FaultProxy[] = [];

before(async () => {
  server = await RedisServer.start();
  folder = mkdtempSync(join(tmpdir(), 'holdfast-lead-'));
});

beforeEach(() => {
  log = join(folder, `${Math.random()}`);
  writeFileSync(log, '');
});

afterEach(async () => {
  await Promise.all(crew.map((each) => each.kill()));
  await Promise.all(proxies.map((each) => each.stop()));
  [crew, proxies] = [[], []];
  await server.admin.flushall();
});

after(async () => {
  await server?.stop();
  removeFolder(folder);
});

/** Starts candidates, each with a network of its own, which campaign in this order. */
async function campaign(count: number, ttl: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    const proxy = await FaultProxy.start(server.port);
    const candidate: Candidate = new Contender(`c${i}`, join(__dirname, 'candidate.js'), log);
    crew.push(candidate);
    proxies.push(proxy);
    await candidate.order('open', proxy.url, ttl);
    await candidate.order('campaign');
    await untilWaiting(i);
  }
}

/** Waits until so many are in the queue. */
async function untilWaiting(count: number): Promise<void> {
  const queue = '{lock:leader:job}:queue';
  await until(async () => (await server.admin.zcard(queue)) === count, `${count} in the queue`);
}

/** The last term, once one has begun after `term`. */
async function next(term?: LoggedTerm): Promise<LoggedTerm> {
  let last: LoggedTerm | undefined;
  await until(() => {
    last = judge(log).at(-1);
    return last !== undefined && last.fence > (term?.fence ?? 0);
  }, 'the next leader');
  return last as LoggedTerm;
}

function of({ who }: LoggedTerm): { candidate: Candidate; network: FaultProxy } {
  const at = Number(who.slice(1));
  return { candidate: crew[at] as Candidate, network: proxies[at] as FaultProxy };
}

/** Nobody led before this term, since the leader ended without a word: for a lease, and as long as it took to find out. */
function assertWithinALease(t: TestContext, term: LoggedTerm): void {
  const before = judge(log)
    .filter(({ fence }) => fence < term.fence)
    .at(-1) as LoggedTerm;
  const gap = term.first - before.last;
  t.diagnostic(`without a leader for ${Math.round(gap)} ms, at a lease of ${LEASE_MS} ms`);
  assert.ok(gap < 1.5 * LEASE_MS, `${gap} ms without a leader`);
}

test('four elect one; one resigns, one is killed, and no two lead at a time', async (t) => {
  await campaign(4, LEASE_MS);
  const first = await next();
  await of(first).candidate.order('resign');
  const second = await next(first);
  assert.notEqual(second.who, first.who);
  await of(second).candidate.kill();
  const third = await next(second);
  assertWithinALease(t, third);
  await of(first).candidate.order('campaign');
  await of(third).candidate.kill();
  const fourth = await next(third);
  assertWithinALease(t, fourth);
  await of(fourth).candidate.order('resign');
  // The one that resigned has campaigned again.
  assert.equal((await next(fourth)).who, first.who);
  assert.equal(judge(log).length, 5);
});

test('after a leader resigns, the next leads within two round trips', async (t) => {
  await campaign(3, LONG_MS);
  for (const proxy of proxies) proxy.delayMs = 150;
  let leader = await next();
  for (const how of ['resign', 'shutDown'] as const) {
    const { candidate } = of(leader);
    const roundTrip = await candidate.order('roundTrip');
    await candidate.order(how);
    const following = await next(leader);
    const before = judge(log).at(-2) as LoggedTerm;
    const gap = following.first - before.last;
    t.diagnostic(`${how}: without a leader for ${gap} ms, round trip ${roundTrip} ms`);
    assert.ok(gap <= 2 * roundTrip, `${how}: ${gap} ms, round trip ${roundTrip} ms`);
    leader = following;
  }
});

test('a leader whose process ends hands over without waiting for its lease', async () => {
  await campaign(2, LONG_MS);
  const first = await next();
  void of(first)
    .candidate.order('exit')
    .catch(() => {});
  assert.notEqual((await next(first)).who, first.who);
});

test('a leader that is stopped past its lease leads no more when it goes on', async (t) => {
  await campaign(3, LEASE_MS);
  const first = await next();
  const { candidate } = of(first);
  await candidate.pause();
  const second = await next(first);
  assertWithinALease(t, second);
  candidate.resume();
  // It campaigns again: the third is ahead of it in the queue.
  await untilWaiting(2);
  await of(second).candidate.order('resign');
  const third = await next(second);
  await of(third).candidate.order('resign');
  assert.equal((await next(third)).who, first.who);
});

test('a leader that is cut off ends its term before the next leads, and campaigns again', async (t) => {
  await campaign(2, LEASE_MS);
  const first = await next();
  const { network } = of(first);
  network.blackhole = true;
  network.silence();
  const second = await next(first);
  assertWithinALease(t, second);
  network.blackhole = false;
  await untilWaiting(1);
  await of(second).candidate.order('resign');
  assert.equal((await next(second)).who, first.who);
});

test('while nobody reaches the server for longer than a lease nobody leads, and then one', async () => {
  await campaign(3, LEASE_MS);
  const first = await next();
  for (const proxy of proxies) proxy.blackhole = true;
  for (const proxy of proxies) proxy.silence();
  let terms = judge(log);
  await until(async () => {
    const before = terms.at(-1)?.last;
    await new Promise((resolve) => setTimeout(resolve, LEASE_MS / 2));
    terms = judge(log);
    return terms.at(-1)?.last === before;
  }, 'the end of the term');
  assert.equal(terms.length, 1);
  for (const proxy of proxies) proxy.blackhole = false;
  await next(first);
  await untilWaiting(2);
  judge(log);
});
