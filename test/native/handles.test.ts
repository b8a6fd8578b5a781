/** The search of a manager's holds for locks to which nothing refers any more. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

/** The data of a lock in `LockHandles`. */
interface LockHandle {
  readonly lease: number;
  place: number;
  readonly since: number;
  readonly lasts: boolean;
  lose(reason: number): () => void;
  standIn(): LockHandle | undefined;
  abandon(): () => void;
}

interface LockHandles {
  readonly abandoned: number;
  readonly oldest: number | undefined;
  readonly size: number;
  add(handle: LockHandle): void;
  find(lease: number): LockHandle | undefined;
  all(): LockHandle[];
  refresh(handle: LockHandle): void;
  delete(handle: LockHandle): boolean;
  findAbandoned(now: number): (() => void)[];
}

// It is internal: it is reached by path, past the package's exports.
const { LockHandles } = require('../../../dist/internals.js') as {
  LockHandles: new () => LockHandles;
};

/** A handle that records that it was abandoned. */
class Noted implements LockHandle {
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
async function look(holds: LockHandles, now: number): Promise<void> {
  await collected();
  for (const tell of holds.findAbandoned(now)) tell();
}

/** Adds `count` handles to which nothing refers. */
function forget(holds: LockHandles, noted: number[], count: number, since = 0): void {
  const first = holds.size;
  for (let i = first; i < first + count; i++) holds.add(new Noted(i, noted, since));
}

test('a handle that nobody refers to is found once, and one that somebody has is not', async () => {
  const holds = new LockHandles();
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

test('a young handle is not looked at', async () => {
  const holds = new LockHandles();
  const noted: number[] = [];
  forget(holds, noted, 1, 4_500);
  for (let round = 0; round < 3; round++) await look(holds, 5_000);
  assert.deepEqual(noted, []);
  for (let round = 0; round < 3; round++) await look(holds, 6_000);
  assert.deepEqual(noted, [0]);
});

test('a handle is looked at from the first second of its age on', async () => {
  const holds = new LockHandles();
  const noted: number[] = [];
  forget(holds, noted, 1, 4_000);
  for (let round = 0; round < 3; round++) await look(holds, 4_999);
  assert.deepEqual(noted, []);
  for (let round = 0; round < 3; round++) await look(holds, 5_000);
  assert.deepEqual(noted, [0]);
});

test('very many are looked at by turns, a thousand at a time, and all of them in the end', async () => {
  const holds = new LockHandles();
  const noted: number[] = [];
  const kept = Array.from({ length: 2_500 }, (_, i) => new Noted(i, noted));
  for (const handle of kept) holds.add(handle);
  forget(holds, noted, 100);
  let standIns = 0;
  for (const handle of kept) {
    handle.standIn = () => {
      standIns += 1;
      return Noted.prototype.standIn.call(handle);
    };
  }
  await look(holds, 5_000);
  assert.equal(standIns, 1_000);
  for (let round = 0; round < 8; round++) await look(holds, 5_000);
  assert.equal(noted.length, 100);
  assert.deepEqual(holds.all().slice(0, kept.length), kept);
  assert.ok(kept.every((handle) => holds.find(handle.lease) === handle));
});

test('without a collection nothing is found, and nothing is forgotten', () => {
  const holds = new LockHandles();
  const noted: number[] = [];
  forget(holds, noted, 10);
  for (let round = 0; round < 5; round++) assert.deepEqual(holds.findAbandoned(5_000), []);
  assert.equal(holds.size, 10);
});

test('a handle that was refreshed stays as it is, even if nothing else refers to it', async () => {
  const holds = new LockHandles();
  const noted: number[] = [];
  const add = () => {
    const handle = new Noted(0, noted);
    holds.add(handle);
    return handle;
  };
  let handle: Noted | undefined = add();
  holds.findAbandoned(5_000);
  // The reference was weak; from now on the handle must be referred to, as one whose signal was read.
  handle.standIn = () => undefined;
  holds.refresh(handle);
  handle = undefined;
  for (let round = 0; round < 3; round++) await look(holds, 5_000);
  assert.deepEqual(noted, []);
  assert.equal(holds.find(0)?.standIn(), undefined);
});

test('the oldest is the one that began first, also after a look', async () => {
  const holds = new LockHandles();
  assert.equal(holds.oldest, undefined);
  forget(holds, [], 1, 10);
  forget(holds, [], 1, 20);
  for (let round = 0; round < 3; round++) await look(holds, 5_000);
  assert.equal(holds.oldest, 10);
  for (const handle of holds.all().slice(0, 1)) holds.delete(handle);
  assert.equal(holds.oldest, 20);
});

test('a place serves again, and what had it before ends no other hold', async () => {
  const holds = new LockHandles();
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

test('a hold that ends while its handle is referred to weakly leaves nothing to be reported', async () => {
  const holds = new LockHandles();
  const noted: number[] = [];
  const end = () => {
    const handle = new Noted(0, noted);
    holds.add(handle);
    holds.findAbandoned(5_000);
    assert.equal(holds.delete(handle), true);
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
  const holds = new LockHandles();
  for (let lease = 0; lease < 1_000; lease++) {
    const handle = new Noted(lease, []);
    holds.add(handle);
    assert.deepEqual([handle.place, holds.size], [0, 1]);
    assert.equal(holds.delete(handle), true);
    assert.equal(holds.delete(handle), false);
  }
  assert.equal(holds.size, 0);
});
