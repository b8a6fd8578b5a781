/** The search of a manager's holds for locks to which nothing refers any more. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

/** The data of a lock in `Holds`. */
interface Holder {
  readonly lease: number;
  place: number;
  readonly since: number;
  readonly lasts: boolean;
  lose(reason: number): () => void;
  standIn(): Holder | undefined;
  abandon(): () => void;
}

interface Holds {
  readonly abandoned: number;
  readonly oldest: number | undefined;
  readonly size: number;
  add(holder: Holder): void;
  find(lease: number): Holder | undefined;
  all(): Holder[];
  refresh(holder: Holder): void;
  delete(holder: Holder): boolean;
  findAbandoned(now: number): (() => void)[];
}

// It is internal: it is reached by path, past the package's exports.
const { Holds } = require('../../../dist/internals.js') as { Holds: new () => Holds };

/** A holder that records that it was abandoned. */
class Noted implements Holder {
  readonly lasts = false;
  left = false;
  place = 0;
  constructor(
    readonly lease: number,
    readonly noted: number[],
    readonly since = 0,
  ) {}
  lose = () => () => {};
  standIn(): Noted | undefined {
    return this.left ? undefined : new Noted(this.lease, this.noted, this.since);
  }
  abandon(): () => void {
    this.left = true;
    return () => void this.noted.push(this.lease);
  }
}

/** A garbage collection. */
async function collected(): Promise<void> {
  assert.ok(globalThis.gc !== undefined, 'run with --expose-gc');
  // The target of a weak reference that was read lives to the end of the turn.
  await new Promise(setImmediate);
  globalThis.gc();
  await new Promise(setImmediate);
}

/** Runs a collection, then the search. */
async function look(holds: Holds, now: number): Promise<void> {
  await collected();
  for (const tell of holds.findAbandoned(now)) tell();
}

/** Adds `count` holders to which nothing refers. */
function forget(holds: Holds, noted: number[], count: number, since = 0): void {
  const first = holds.size;
  for (let i = first; i < first + count; i++) holds.add(new Noted(i, noted, since));
}

test('a holder that nobody refers to is found once, and one that somebody has is not', async () => {
  const holds = new Holds();
  const noted: number[] = [];
  forget(holds, noted, 2);
  const kept = new Noted(2, noted);
  holds.add(kept);
  for (let round = 0; round < 4; round++) await look(holds, 5_000);
  assert.deepEqual(noted, [0, 1]);
  assert.equal(holds.abandoned, 2);
  assert.equal(holds.size, 3, 'they are held on');
  assert.equal(holds.find(2), kept);
  assert.equal(holds.find(0)?.lease, 0);
});

test('a young holder is not looked at', async () => {
  const holds = new Holds();
  const noted: number[] = [];
  forget(holds, noted, 1, 4_500);
  for (let round = 0; round < 3; round++) await look(holds, 5_000);
  assert.deepEqual(noted, []);
  for (let round = 0; round < 3; round++) await look(holds, 6_000);
  assert.deepEqual(noted, [0]);
});

test('very many are looked at by turns, a thousand at a time, and all of them in the end', async () => {
  const holds = new Holds();
  const noted: number[] = [];
  const kept = Array.from({ length: 2_500 }, (_, i) => new Noted(i, noted));
  for (const holder of kept) holds.add(holder);
  forget(holds, noted, 100);
  let standIns = 0;
  for (const holder of kept) {
    holder.standIn = () => {
      standIns += 1;
      return Noted.prototype.standIn.call(holder);
    };
  }
  await look(holds, 5_000);
  assert.equal(standIns, 1_000);
  for (let round = 0; round < 8; round++) await look(holds, 5_000);
  assert.equal(noted.length, 100);
  assert.deepEqual(holds.all().slice(0, kept.length), kept);
  assert.ok(kept.every((holder) => holds.find(holder.lease) === holder));
});

test('without a collection nothing is found, and nothing is forgotten', () => {
  const holds = new Holds();
  const noted: number[] = [];
  forget(holds, noted, 10);
  for (let round = 0; round < 5; round++) assert.deepEqual(holds.findAbandoned(5_000), []);
  assert.equal(holds.size, 10);
});

test('a holder that was refreshed stays as it is, even if nothing else refers to it', async () => {
  const holds = new Holds();
  const noted: number[] = [];
  const add = () => {
    const holder = new Noted(0, noted);
    holds.add(holder);
    return holder;
  };
  let holder: Noted | undefined = add();
  holds.findAbandoned(5_000);
  // The reference was weak; from now on the holder must be referred to, as one whose signal was read.
  holder.standIn = () => undefined;
  holds.refresh(holder);
  holder = undefined;
  for (let round = 0; round < 3; round++) await look(holds, 5_000);
  assert.deepEqual(noted, []);
  assert.equal(holds.find(0)?.standIn(), undefined);
});

test('the oldest is the one that began first, also after a look', async () => {
  const holds = new Holds();
  assert.equal(holds.oldest, undefined);
  forget(holds, [], 1, 10);
  forget(holds, [], 1, 20);
  for (let round = 0; round < 3; round++) await look(holds, 5_000);
  assert.equal(holds.oldest, 10);
  for (const holder of holds.all().slice(0, 1)) holds.delete(holder);
  assert.equal(holds.oldest, 20);
});

test('a place serves again, and what had it before ends no other hold', async () => {
  const holds = new Holds();
  const [first, second, third] = [1, 2, 3].map((lease) => new Noted(lease, [])) as [
    Noted,
    Noted,
    Noted,
  ];
  holds.add(first);
  holds.add(second);
  assert.equal(holds.find(1), first);
  assert.equal(holds.delete(first), true);
  assert.equal(holds.find(1), undefined);
  holds.add(third);
  assert.equal(third.place, first.place);
  assert.equal(holds.delete(first), false);
  assert.equal(holds.find(3), third, 'also if leases were looked for before it began');
  await new Promise(setImmediate);
  assert.deepEqual(
    [1, 2, 3].map((lease) => holds.find(lease)),
    [undefined, second, third],
  );
  assert.equal(holds.size, 2);
});

test('a hold that ends while its holder is referred to weakly leaves nothing to be reported', async () => {
  const holds = new Holds();
  const noted: number[] = [];
  const end = () => {
    const holder = new Noted(0, noted);
    holds.add(holder);
    holds.findAbandoned(5_000);
    assert.equal(holds.delete(holder), true);
  };
  end();
  await look(holds, 5_000);
  await look(holds, 5_000);
  assert.deepEqual([noted, holds.abandoned, holds.size], [[], 0, 0]);
  // The place serves another one, for which the old reference must not stand.
  const next = new Noted(1, noted);
  holds.add(next);
  assert.equal(holds.find(1), next);
  assert.deepEqual(holds.all(), [next]);
});

test('a place that is free is used before a new one, over and over', () => {
  const holds = new Holds();
  for (let lease = 0; lease < 1_000; lease++) {
    const holder = new Noted(lease, []);
    holds.add(holder);
    assert.deepEqual([holder.place, holds.size], [0, 1]);
    assert.equal(holds.delete(holder), true);
    assert.equal(holds.delete(holder), false);
  }
  assert.equal(holds.size, 0);
});
