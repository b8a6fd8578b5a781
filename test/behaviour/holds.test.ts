/** The search of a manager's holds for locks to which nothing refers any more. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

/** The data of a lock in `Holds`. */
interface Holder {
  readonly since: number;
  lose(reason: number): () => void;
  standIn(): Holder | undefined;
  abandon(): () => void;
}

interface Holds {
  readonly abandoned: number;
  readonly oldest: number | undefined;
  readonly size: number;
  add(lease: number, holder: Holder): void;
  refresh(lease: number, holder: Holder): void;
  delete(lease: number): Holder | undefined;
  findAbandoned(now: number): (() => void)[];
}

// It is internal: it is reached by path, past the package's exports.
const { Holds } = require('../../../dist/internals.js') as { Holds: new () => Holds };

/** A holder that records that it was abandoned. */
class Noted implements Holder {
  left = false;
  constructor(
    readonly name: string,
    readonly noted: string[],
    readonly since = 0,
  ) {}
  lose = () => () => {};
  standIn(): Noted | undefined {
    return this.left ? undefined : new Noted(this.name, this.noted, this.since);
  }
  abandon(): () => void {
    this.left = true;
    return () => void this.noted.push(this.name);
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
function forget(holds: Holds, noted: string[], count: number, since = 0): void {
  const first = holds.size;
  for (let i = first; i < first + count; i++) holds.add(i, new Noted(`${i}`, noted, since));
}

test('a holder that nobody refers to is found once, and one that somebody has is not', async () => {
  const holds = new Holds();
  const noted: string[] = [];
  forget(holds, noted, 2);
  const kept = new Noted('kept', noted);
  holds.add(2, kept);
  for (let round = 0; round < 4; round++) await look(holds, 5_000);
  assert.deepEqual(noted, ['0', '1']);
  assert.equal(holds.abandoned, 2);
  assert.equal(holds.size, 3, 'they are held on');
  assert.equal(holds.delete(2), kept);
  assert.equal((holds.delete(0) as Noted).name, '0');
});

test('a young holder is not looked at', async () => {
  const holds = new Holds();
  const noted: string[] = [];
  forget(holds, noted, 1, 4_500);
  for (let round = 0; round < 3; round++) await look(holds, 5_000);
  assert.deepEqual(noted, []);
  for (let round = 0; round < 3; round++) await look(holds, 6_000);
  assert.deepEqual(noted, ['0']);
});

test('very many are looked at by turns, a thousand at a time, and all of them in the end', async () => {
  const holds = new Holds();
  const noted: string[] = [];
  const kept = Array.from({ length: 2_500 }, (_, i) => new Noted(`kept ${i}`, noted));
  for (const [i, holder] of kept.entries()) holds.add(i, holder);
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
  assert.ok(kept.every((holder, i) => holds.delete(i) === holder));
});

test('without a collection nothing is found, and nothing is forgotten', () => {
  const holds = new Holds();
  const noted: string[] = [];
  forget(holds, noted, 10);
  for (let round = 0; round < 5; round++) assert.deepEqual(holds.findAbandoned(5_000), []);
  assert.equal(holds.size, 10);
});

test('a holder that was refreshed stays as it is, even if nothing else refers to it', async () => {
  const holds = new Holds();
  const noted: string[] = [];
  const add = () => {
    const holder = new Noted('refreshed', noted);
    holds.add(0, holder);
    return holder;
  };
  let holder: Noted | undefined = add();
  holds.findAbandoned(5_000);
  // The reference was weak; from now on the holder must be referred to, as one whose signal was read.
  holder.standIn = () => undefined;
  holds.refresh(0, holder);
  holder = undefined;
  for (let round = 0; round < 3; round++) await look(holds, 5_000);
  assert.deepEqual(noted, []);
  assert.equal((holds.delete(0) as Noted).standIn(), undefined);
});

test('the oldest is the one that began first, also after a look', async () => {
  const holds = new Holds();
  assert.equal(holds.oldest, undefined);
  forget(holds, [], 1, 10);
  forget(holds, [], 1, 20);
  for (let round = 0; round < 3; round++) await look(holds, 5_000);
  assert.equal(holds.oldest, 10);
  holds.delete(0);
  assert.equal(holds.oldest, 20);
});
