/**
 * A rolling deploy towards readers and writers: processes that lock by hand and processes of holdfast use
 * the same names, and some are killed or stopped in the middle.
 */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { Contender, quiet } from '../../support/crew.js';
import { disrupt } from '../../support/disruptions.js';
import { type Hold, now } from '../../support/history.js';
import { problemsOfKinds } from '../../support/kinds.js';
import { Ledger } from '../../support/ledger.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

const SECONDS = Number(process.env['HOLDFAST_SECONDS'] ?? 15);
/** The longest lease of a process that may be stopped or killed. */
const LEASE_MS = 600;
const PAUSE_MS = 1_000;
/** The server reports a time to live in whole ms. */
const ROUNDING_US = 2_000;
const PLAIN = { prefix: '' };

const server = serverOfFile();
const ledger = new Ledger(serverOfFile());
const crew: Contender[] = [];

afterEach(async () => {
  await Promise.all(crew.splice(0).map((each) => each.stop()));
  await quiet(server, 40_000);
  await ledger.clear();
});

test('old code and holdfast exclude each other, also from shares, whichever process is killed or stopped', async (t) => {
  // Few at a time: old code gets the lock only while holdfast has no waiter.
  const names = ['a', 'b', 'c'];
  const roam = { names, tasks: 3, ttl: LEASE_MS, wait: 5_000 };
  const byHand = { names, tasks: 2, ttl: LEASE_MS };
  const modern = {
    start: (who: string) => Contender.start(who, server.url, ledger, PLAIN),
    work: (contender: Contender): Promise<unknown> => contender.order('roam', roam),
  };
  const old = {
    start: (who: string) => Contender.start(who, server.url, ledger, { managers: 0 }),
    work: (contender: Contender): Promise<unknown> =>
      contender.order('lockByHand', server.url, byHand),
  };
  const times = { seconds: SECONDS, pauseMs: PAUSE_MS };
  const { deaths, pauses } = await disrupt(crew, [modern, old, modern, old], times);
  const holds = await ledger.holds();
  const count = (is: (hold: Hold) => boolean) => holds.filter(is).length;
  const olds = count(({ fence }) => fence === 0);
  const shares = count(({ request }) => request?.shared === true);
  const lost = count((hold) => hold.lost);
  t.diagnostic(
    `of old code ${olds} holds, of holdfast ${holds.length - olds}, ${shares} of them shared`,
  );
  t.diagnostic(`${deaths.size} kills, ${pauses} pauses, ${lost} lost`);
  assert.ok(olds > 0 && shares > 0 && deaths.size > 0 && pauses > 0);
  assert.deepEqual(problemsOfKinds(holds, { deaths }), []);
});

test('the shares of readers that were killed keep old code out until the last one ends', async () => {
  const [first, second, old] = await Promise.all([
    Contender.start('first', server.url, ledger, PLAIN),
    Contender.start('second', server.url, ledger, PLAIN),
    Contender.start('old', server.url, ledger, { managers: 0 }),
  ]);
  crew.push(first, second, old);
  const shared = { mode: 'shared', ttl: 5_000 } as const;
  await first.order('hold', 'x', shared);
  const { id } = await second.order('hold', 'x', shared);
  await first.kill();
  const working = old.order('lockByHand', server.url, { names: ['x'], tasks: 1, ttl: 5_000 });
  assert.equal(await second.order('release', id), true);
  const asked = now();
  const left = await server.admin.pttl('x');
  assert.equal(await server.admin.get('x'), 'hf1.shared', 'the dead one has it still');
  // Renewed at a third of the lease, and some time to get here.
  assert.ok(left > 2_000, `${left} ms`);
  const ofOldCode = async () => (await ledger.holds()).filter(({ who }) => who === 'old');
  await until(async () => (await ofOldCode()).length > 0, 'old code');
  const begin = Math.min(...(await ofOldCode()).map((hold) => hold.begin));
  assert.ok(begin >= asked + left * 1_000 - ROUNDING_US, `${begin} µs, ${left} ms after ${asked}`);
  await old.order('halt');
  assert.ok((await working) > 0);
  // The next holder of a share drops the dead ones.
  const again = await second.order('hold', 'x', shared);
  assert.equal(await second.order('release', again.id), true);
});
