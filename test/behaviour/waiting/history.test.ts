/** The check of the records that several processes write of their holds of one lock. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Contender, quiet } from '../../support/crew.js';
import { type Hold, problemsIn, problemsOf } from '../../support/history.js';
import { guardedStep, Ledger } from '../../support/ledger.js';
import { serverOfFile } from '../../support/server-of-file.js';

const server = serverOfFile();
const ledger = new Ledger(serverOfFile());

function held(fence: number, begin: number, end: number, more: Partial<Hold> = {}): Hold {
  return { who: 'x', lock: 'a', fence, begin, end, stillborn: false, lost: false, ...more };
}

test('the check finds what cannot have been', () => {
  const first = held(1, 10, 20);
  assert.deepEqual(problemsOf([first, held(2, 20, 30), held(5, 31, 31)], { noLosses: true }), []);
  const wrong: [string, Hold[]][] = [
    ['two at once', [first, held(2, 19, 30)]],
    ['two at once', [held(1, 10, 40), held(2, 40, 41), held(3, 39, 50)]],
    ['two at once', [held(1, 10, 40), held(2, 15, 16), held(3, 30, 50)]],
    ['two at once', [held(1, 10, 20, { lost: true, lostAt: 25 }), held(2, 24, 30)]],
    ['one fence twice', [first, held(1, 20, 30)]],
    ['one fence twice', [first, held(1, 20, 20, { stillborn: true })]],
    ['a smaller fence later', [held(2, 10, 20), held(1, 20, 30)]],
    ['lost', [held(1, 10, 20, { lost: true })]],
  ];
  for (const [problem, holds] of wrong) {
    assert.match(problemsOf(holds, { noLosses: true }).join(), new RegExp(problem));
  }
  // Other locks do not count, and no holder believed in a lock that was lost before its acquire returned.
  assert.deepEqual(problemsOf([first, held(1, 11, 12, { lock: 'b' })]), []);
  assert.deepEqual(problemsOf([held(2, 10, 20), held(1, 15, 15, { stillborn: true })]), []);
});

test('the store refuses an older fence, and the check sees a lost update', async () => {
  const { admin } = ledger.server;
  assert.equal(await guardedStep(admin, 's', 5), true);
  assert.equal(await guardedStep(admin, 's', 4), false);
  assert.equal(await guardedStep(admin, 's', 6), true);
  const store = (await ledger.stores()).get('s');
  assert.deepEqual(store, { value: 2, accepted: 2, refused: 1, plain: 0 });
  // Two holders with one fence both pass the guard, and one of their updates is lost.
  await Promise.all([guardedStep(admin, 's', 7), guardedStep(admin, 's', 7)]);
  assert.match((await problemsIn(ledger)).join(), /s: 4 guarded writes made 3/);
  await ledger.clear();
});

test('three processes, five managers and thirty tasks: one at a time, and nothing remains', async () => {
  const crew = await Promise.all([
    Contender.start('p1', server.url, ledger),
    Contender.start('p2', server.url, ledger, { managers: 2 }),
    Contender.start('p3', server.url, ledger, { managers: 2 }),
  ]);
  const contest = { name: 'a', tasks: 6, rounds: 20, ttl: 10_000, wait: 60_000, stores: true };
  const tallies = await Promise.all(crew.map((each) => each.order('contend', contest)));
  assert.deepEqual(tallies, [{ ok: 120 }, { ok: 240 }, { ok: 240 }]);
  assert.equal((await ledger.holds()).length, 600);
  assert.equal((await ledger.stores()).get('a')?.plain, 600);
  assert.deepEqual(await problemsIn(ledger, { noLosses: true }), []);
  await Promise.all(crew.map((each) => each.stop()));
  await quiet(server);
});
