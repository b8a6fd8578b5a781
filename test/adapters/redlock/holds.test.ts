/** Which objects are told of a lost lock, and which holds are forgotten. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { LockLostError } from 'holdfast';

interface Hold {
  held: { held: boolean } | undefined;
  isRefreshed: boolean;
  place: number;
  lose(cause: Error | undefined): void;
}

interface Holds {
  add(hold: Hold): void;
  delete(hold: Hold): void;
  lose(lock: unknown, cause: Error): void;
  take(): Hold[];
}

// It is internal: it is reached by path, past the package's exports.
const { Holds } = require('../../../../dist/internals.js') as { Holds: new () => Holds };

const SWEPT_MIN = 1_000;
const LOSS = new LockLostError('lost', 'a', 'expired');

/** A hold that notes why it was lost. */
class Noted implements Hold {
  place = 0;
  held: { held: boolean } | undefined = { held: true };
  readonly losses: (Error | undefined)[] = [];
  constructor(public isRefreshed = true) {}
  lose(cause: Error | undefined): void {
    this.losses.push(cause);
  }
}

function several(count: number): [Holds, Noted[]] {
  const holds = new Holds();
  const all = Array.from({ length: count }, () => new Noted());
  for (const each of all) holds.add(each);
  return [holds, all];
}

test('the object of a lost lock is told, and no other', async () => {
  const [holds, all] = several(3);
  holds.lose(all[1]?.held, LOSS);
  holds.lose({}, LOSS);
  assert.deepEqual(
    all.map(({ losses }) => losses),
    [[], [LOSS], []],
  );
  await turn();
  holds.lose(all[2]?.held, LOSS);
  assert.equal(all[2]?.losses.length, 1, 'also in a later turn');
});

test('a lock that has replaced another is told of its own loss alone', () => {
  const [holds, [hold]] = several(1);
  assert.ok(hold !== undefined);
  const former = hold.held;
  hold.held = { held: true };
  holds.add(hold);
  holds.lose(former, LOSS);
  assert.deepEqual(hold.losses, []);
  holds.lose(hold.held, LOSS);
  assert.deepEqual(hold.losses, [LOSS]);
  assert.deepEqual(holds.take(), [hold], 'it has one place');
});

test('one whose lock was replaced during the losses of a turn hears of the new one', () => {
  const [holds, [hold]] = several(1);
  assert.ok(hold !== undefined);
  const former = hold.held;
  holds.lose({}, LOSS);
  hold.held = { held: true };
  holds.lose(former, LOSS);
  assert.deepEqual(hold.losses, []);
  holds.add(hold);
  holds.lose(hold.held, LOSS);
  assert.deepEqual(hold.losses, [LOSS]);
});

test('a lock that is lost before its hold is there is lost a turn later, if it is still that', async () => {
  const holds = new Holds();
  const [early, replaced, late] = [new Noted(), new Noted(), new Noted()];
  for (const each of [early, replaced, late]) holds.lose(each.held, LOSS);
  holds.add(early);
  holds.add(replaced);
  replaced.held = { held: true };
  assert.deepEqual(early.losses, [], 'the caller of the acquire knows of it first');
  await turn();
  assert.deepEqual([early.losses, replaced.losses], [[LOSS], []]);
  holds.lose({}, LOSS);
  holds.add(late);
  await turn();
  assert.deepEqual(late.losses, [], 'that of another turn is of no lock that is new');
});

test('a hold that was deleted is not told, and the others keep their places', async () => {
  const [holds, [a, b, c, d]] = several(4) as unknown as [Holds, [Noted, Noted, Noted, Noted]];
  holds.delete(b);
  assert.deepEqual([a.place, d.place, c.place], [0, 1, 2]);
  holds.delete(b);
  holds.delete(c);
  holds.lose(b.held, LOSS);
  holds.lose(c.held, LOSS);
  holds.lose(d.held, LOSS);
  assert.deepEqual([b.losses, c.losses, d.losses], [[], [], [LOSS]]);
  assert.deepEqual(holds.take(), [a, d]);
  assert.deepEqual(holds.take(), []);
  holds.delete(a);
  holds.add(a);
  assert.deepEqual(holds.take(), [a]);
});

test('those that have expired unseen are lost without cause, once there are a thousand', () => {
  const holds = new Holds();
  const add = (given: Partial<Hold> = {}) => {
    const hold = Object.assign(new Noted(), given);
    hold.lose = (cause) => {
      hold.losses.push(cause);
      holds.delete(hold);
    };
    holds.add(hold);
    return hold;
  };
  const over = { held: false };
  const expired = add({ isRefreshed: false, held: over });
  const none = add({ isRefreshed: false, held: undefined });
  const kept = [add({ held: over }), add({ isRefreshed: false })];
  for (let i = 5; i < SWEPT_MIN; i++) add();
  assert.deepEqual([expired.losses, none.losses], [[], []]);
  add();
  assert.deepEqual([expired.losses, none.losses], [[undefined], [undefined]]);
  assert.deepEqual(
    kept.map(({ losses }) => losses),
    [[], []],
  );
  // 998 are left, so the next are looked for at 1996.
  const next = add({ isRefreshed: false, held: over });
  for (let i = SWEPT_MIN; i < 2 * SWEPT_MIN - 4; i++) add();
  assert.deepEqual(next.losses, []);
  add();
  assert.deepEqual(next.losses, [undefined]);
});
