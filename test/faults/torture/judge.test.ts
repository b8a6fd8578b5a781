/** The judge of the campaign: does it find what cannot have been, and excuse only what is not promised? */

import assert from 'node:assert/strict';
import { appendFileSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { removeFolder } from '../../support/folders.js';
import type { Hold, HoldRequest } from '../../support/history.js';
import { problemsOfKinds, type Rift } from '../../support/kinds.js';
import { guardedStep, Ledger } from '../../support/ledger.js';
import { type History, Journal, type Operation, readHistory } from './journal.js';
import { judge, judgeStores, staleWrites } from './judge.js';

const SECOND = 1_000_000;

function held(fence: number, begin: number, end: number, request: Partial<HoldRequest> = {}): Hold {
  const asked = { asked: begin - 1, shared: false, ...request };
  return {
    ...{ who: 'p1', lock: 'a', fence, begin, end, request: asked },
    ...{ stillborn: false, lost: false },
  };
}

describe('rifts', () => {
  const robbed = held(1, 10, 40);
  const robber = held(2, 30, 50);
  const problems = (rifts: Rift[], holds = [robbed, robber]) =>
    problemsOfKinds(holds, { rifts, lease: 20 }).join();

  test('who was robbed may believe in the lock for a lease', () => {
    assert.match(problems([]), /not alone/);
    assert.equal(problems([{ lock: 'a', from: 28, to: 29 }]), '');
    assert.equal(problems([{ from: 28, to: 29 }]), '');
  });

  test('but not for longer, and no other lock is concerned', () => {
    assert.match(problems([{ lock: 'b', from: 28, to: 29 }]), /not alone/);
    assert.match(problems([{ from: 15, to: 16 }]), /not alone/);
  });

  test('a later holder excludes, and is excluded, as ever', () => {
    const rift = { from: 5, to: 6 };
    assert.match(problems([rift], [held(1, 10, 20), held(2, 15, 25)]), /not alone/);
    // One had it before, and learned of that late; the other was let in after.
    const late = held(1, 40, 60, { asked: 2 });
    const other = held(2, 30, 50);
    assert.equal(problems([{ from: 5, to: 45 }], [late, other]), '');
    assert.match(problems([rift], [late, other]), /not alone/);
  });

  test('a semaphore that was forgotten may have as many new holders', () => {
    const permit = (fence: number, begin: number) =>
      held(fence, begin, 40, { shared: true, limit: 1 });
    assert.match(problems([], [permit(1, 10), permit(2, 30)]), /over 1/);
    assert.equal(problems([{ from: 28, to: 29 }], [permit(1, 10), permit(2, 30)]), '');
    assert.match(problems([{ from: 5, to: 6 }], [permit(1, 10), permit(2, 30)]), /over 1/);
  });

  test('fences rise and are unique all the same', () => {
    const rifts = [{ from: 0, to: 100 }];
    assert.match(problems(rifts, [held(2, 10, 20), held(1, 30, 40)]), /a smaller fence later/);
    assert.match(problems(rifts, [held(2, 10, 20), held(2, 30, 40)]), /one fence twice/);
  });
});

describe('two servers that grant locks at once', () => {
  const rift = { from: 10 * SECOND, to: 60 * SECOND };
  const problems = (holds: Hold[], fork: 'confirmed' | 'unconfirmed') =>
    problemsOfKinds(holds, { rifts: [{ ...rift, fork }], lease: SECOND }).join();
  const before = held(1, 5 * SECOND, 40 * SECOND);
  const promoted = held(9, 20 * SECOND, 50 * SECOND);
  const cutOff = held(2, 30 * SECOND, 45 * SECOND);

  test('who had a lock before may believe in it, also where grants are confirmed', () => {
    assert.equal(problems([before, promoted], 'confirmed'), '');
    assert.equal(problems([before, promoted], 'unconfirmed'), '');
  });

  test('the one that is cut off confirms nothing more', () => {
    assert.match(problems([promoted, cutOff], 'confirmed'), /not alone.*smaller fence later/);
    assert.equal(problems([promoted, cutOff], 'unconfirmed'), '');
    const adopted = { asked: 5 * SECOND, heritage: 'x' };
    assert.equal(problems([held(1, 15 * SECOND, 40 * SECOND, adopted), promoted], 'confirmed'), '');
  });

  test('when it has been told, all is as ever', () => {
    const late = held(2, 61 * SECOND, 65 * SECOND);
    assert.match(
      problems([held(9, 20 * SECOND, 50 * SECOND), late], 'unconfirmed'),
      /smaller fence/,
    );
    const both = [held(9, 61 * SECOND, 64 * SECOND), held(10, 62 * SECOND, 65 * SECOND)];
    assert.match(problems(both, 'unconfirmed'), /not alone/);
  });
});

test('a lock that was handed over has a fence of its own there', () => {
  const giver = held(1, 10, 20, { heritage: 'x' });
  assert.deepEqual(problemsOfKinds([giver, held(2, 25, 30, { heritage: 'x', asked: 9 })]), []);
  const found = problemsOfKinds([giver, held(1, 25, 30, { heritage: 'x', asked: 9 })]);
  assert.match(found.join(), /one fence twice/);
});

test('a share that was handed over counts once', () => {
  const share = { asked: 9, shared: true, limit: 2 };
  const giver = held(1, 10, 16, { ...share, heritage: 'x' });
  const adopter = held(4, 18, 30, { ...share, heritage: 'x' });
  const other = held(2, 15, 20, share);
  assert.deepEqual(problemsOfKinds([giver, adopter, other]), []);
  const unlimited = held(3, 17, 25, { asked: 12, shared: true });
  assert.deepEqual(problemsOfKinds([giver, adopter, other, unlimited]), [], 'joined meanwhile');
  const third = held(3, 15, 20, share);
  assert.match(problemsOfKinds([giver, adopter, other, third]).join(), /over 2/);
});

describe('a round', () => {
  const facts = { healed: 0, ended: 60 * SECOND, lease: SECOND, names: ['a'], managers: 2 };
  const grants = [5, 15, 25, 35, 45, 55].map((at, i) => held(i + 1, at * SECOND, at * SECOND + 1));
  const nothing = { rifts: [], operations: [], counts: [], calls: [], deaths: new Map() };
  const quietly: History = { holds: grants, ...nothing };
  const problems = (more: Partial<History>) =>
    judge({ ...quietly, ...more }, facts).problems.join();
  const ended = (outcome: string, more: Partial<Operation> = {}): Operation => ({
    ...{ who: 'p1', way: 'patiently', asked: 1, ended: 2, outcome },
    ...more,
  });

  test('all is well', () => {
    const { longestGap, longestWait, problems } = judge(quietly, facts);
    assert.deepEqual(
      { longestGap, longestWait, problems },
      {
        longestGap: 10 * SECOND,
        longestWait: 1,
        problems: [],
      },
    );
  });

  test('who waits for too long after all faults has starved', () => {
    const late = held(99, 56 * SECOND, 56 * SECOND + 1, { asked: 30 * SECOND });
    assert.match(problems({ holds: [...grants, late] }), /starved: p1 a #99/);
    // Under faults there is no such promise.
    assert.doesNotMatch(
      problems({ holds: [...grants, { ...late, request: { asked: -1, shared: false } }] }),
      /starved/,
    );
  });

  test('a lock that nobody is granted any more', () => {
    assert.match(problems({ holds: grants.slice(0, 3) }), /a was not granted for 15 s/);
  });

  test('who is overtaken by more than two turns of everybody', () => {
    const later = Array.from({ length: 65 }, (_, i) =>
      held(100 + i, 20 * SECOND + 10 * i, 20 * SECOND + 10 * i + 1),
    );
    const patient = held(999, 21 * SECOND, 21 * SECOND + 1, { asked: 19 * SECOND });
    assert.match(
      problems({ holds: [...grants.slice(0, 2), ...later, patient] }),
      /overtaken by 65/,
    );
    assert.doesNotMatch(
      problems({ holds: [...grants.slice(0, 2), ...later.slice(1), patient] }),
      /overtaken/,
    );
  });

  test('an error that nobody knows', () => {
    assert.match(problems({ operations: [ended('TypeError: x')] }), /unexpected: p1 patiently/);
    assert.equal(problems({ operations: [ended('ERR_LOCK_CONNECTION')] }), '');
  });

  test('an error after everybody has recovered, of one who is not in a hurry', () => {
    const asked = 30 * SECOND;
    const refused = ended('ERR_LOCK_CONNECTION', { asked });
    assert.match(problems({ operations: [refused] }), /after all faults: p1 patiently/);
    assert.equal(problems({ operations: [{ ...refused, way: 'hastily' }] }), '');
    assert.equal(problems({ operations: [ended('ok', { asked })] }), '');
  });

  test('what a manager holds for nobody', () => {
    const counts = [{ who: 'p1', handedOff: 3, left: 2 }];
    assert.match(problems({ counts }), /p1 holds or waits for 2 locks/);
  });

  test('with a process its threads have died', () => {
    const thread = { ...held(7, 56 * SECOND, 56 * SECOND), who: 'p1.t1', until: 59 * SECOND };
    const next = held(8, 57 * SECOND, 58 * SECOND);
    const holds = [...grants, thread, next];
    assert.equal(problems({ holds, deaths: new Map([['p1', 57 * SECOND]]) }), '');
    assert.match(problems({ holds, deaths: new Map([['p1', 58 * SECOND]]) }), /not alone/);
  });
});

describe('stores', () => {
  let ledger: Ledger;
  before(async () => {
    ledger = await Ledger.start();
  });
  after(() => ledger.stop());

  test('a write behind one with a greater fence is stale', () => {
    assert.equal(staleWrites([1, 2, 2, 5]), 0);
    assert.equal(staleWrites([1, 5, 2, 4, 5]), 2);
  });

  test('one that looks at fences accepts none, one that does not is found out', async () => {
    const { admin } = ledger.server;
    for (const fence of [5, 4, 6]) await guardedStep(admin, 'a', fence);
    const well = await judgeStores(ledger);
    assert.deepEqual(well, { problems: [], accepted: 2, refused: 1, stale: 0 });
    for (const fence of [5, 4, 6]) await guardedStep(admin, 'b', fence, true);
    const ill = await judgeStores(ledger);
    assert.equal(ill.stale, 1);
    assert.match(ill.problems.join(), /b: the store accepted 1 stale writes/);
  });
});

describe('journals', () => {
  let folder: string;
  let ledger: Ledger;
  before(async () => {
    ledger = await Ledger.start();
    folder = mkdtempSync(join(tmpdir(), 'holdfast-journal-'));
  });
  after(async () => {
    removeFolder(folder);
    await ledger.stop();
  });

  test('what was written last counts, and what somebody was killed over does not', async () => {
    const journal = new Journal('p1', folder, ledger.url);
    const lock = { name: 'a', fence: 7, remaining: 1_000 };
    const recorded = journal.begin(lock);
    const [open] = readHistory(folder).holds;
    assert.ok((open?.until ?? 0) > (open?.begin ?? 0));
    journal.end(recorded);
    // What becomes of it now is nobody's hold any more.
    lock.remaining = 0;
    journal.lose(recorded);
    await assert.rejects(
      journal.rift('a', async () => assert.fail('no answer')),
      /no answer/,
    );
    appendFileSync(join(folder, 'p1.jsonl'), '{"hold":');
    const { holds, rifts } = readHistory(folder);
    assert.equal(holds.length, 1);
    assert.deepEqual([holds[0]?.until, holds[0]?.lost], [undefined, false]);
    const [{ from, to } = { from: 0, to: 0 }] = rifts;
    assert.ok(to - from > SECOND, 'it may still be carried out');
    journal.close();
  });
});
