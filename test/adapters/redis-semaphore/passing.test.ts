/** The count of the permits of one key, and who gets those that are given back, without a server. */

import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { after, test } from 'node:test';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';

interface Given {
  readonly limit?: number | undefined;
  readonly permits?: number | undefined;
}

type Take = (lock: Held, passes: number) => boolean;

interface Permits {
  readonly isUsed: boolean;
  readonly isFull: boolean;
  readonly isWanted: boolean;
  ask(): void;
  answered(isGranted: boolean): void;
  free(): void;
  wait(wait: number, signal: AbortSignal | undefined, take: Take): Promise<string>;
  giveBack(lock: Held, passes: number): Promise<unknown> | undefined;
  takeLeft(take: Take): boolean;
}

// It is internal: it is reached by path, past the package's exports.
const { Permits } = require('../../../../dist/internals.js') as {
  Permits: {
    of(ended: AbortSignal, name: string, share: Given, ttl: number): Permits | undefined;
  };
};

const TTL = 60_000;
const LONG = 50_000;
const PASSES_MAX = 15;
const SWEPT_MIN = 1_000;
const never = new AbortController().signal;
/** Ends the waits that a test has left. */
const over = new AbortController();
let names = 0;

after(() => over.abort());

/** What the permits of a server need: its lease, and a release. */
class Held {
  releases = 0;
  constructor(
    public remaining: number = TTL,
    public age: number = 0,
  ) {}
  async releaseToAll(): Promise<string> {
    this.releases += 1;
    return 'released';
  }
}

function permitsOf(share: Given, ttl = TTL, ended = never): Permits {
  names += 1;
  const permits = Permits.of(ended, `${names}`, share, ttl);
  assert.ok(permits !== undefined);
  return permits;
}

/** Permits of which one object has some, as after an answer of the server. */
function heldOf(share: Given, ttl = TTL): Permits {
  const permits = permitsOf(share, ttl);
  permits.ask();
  permits.answered(true);
  return permits;
}

/** A wait that takes what it can get; `ends` has how it has ended. */
class Wait {
  ends = 'waits';
  passes: number | undefined;
  readonly #ended: Promise<void>;
  constructor(
    permits: Permits,
    { signal = over.signal, takes = true }: { signal?: AbortSignal; takes?: boolean } = {},
  ) {
    const take = (_lock: Held, passes: number) => {
      this.passes = passes;
      return takes;
    };
    this.#ended = permits.wait(LONG, signal, take).then(
      (end) => {
        this.ends = end;
      },
      (error) => {
        this.ends = `${error}`;
      },
    );
  }
  /** How it has ended by the end of this turn. */
  async soon(): Promise<string> {
    await Promise.race([this.#ended, turn()]);
    return this.ends;
  }
}

const timers = () => process.getActiveResourcesInfo().filter((each) => each === 'Timeout').length;

for (const [share, asks] of [
  [{ limit: 1 }, 1],
  [{ limit: 3 }, 3],
  [{ limit: 10, permits: 3 }, 3],
  [{ limit: 9, permits: 3 }, 3],
  [{ limit: 2, permits: 2 }, 1],
  [{}, 1],
] as const) {
  test(`of ${JSON.stringify(share)}, ${asks} may ask or hold`, () => {
    const permits = permitsOf(share);
    assert.deepEqual([permits.isUsed, permits.isWanted], [false, false]);
    for (let i = 0; i < asks; i++) {
      assert.equal(permits.isFull, false);
      permits.ask();
      assert.equal(permits.isUsed, true);
    }
    assert.equal(permits.isFull, true);
    for (let i = 0; i < asks; i++) permits.answered(true);
    assert.equal(permits.isFull, true);
    permits.free();
    assert.equal(permits.isFull, false);
    for (let i = 1; i < asks; i++) permits.free();
    assert.equal(permits.isUsed, false);
    permits.ask();
    permits.answered(false);
    assert.deepEqual([permits.isUsed, permits.isFull], [false, false]);
  });
}

test('objects share permits on the same terms, and on others once nobody uses them', () => {
  const first = Permits.of(never, 'shared', { limit: 4, permits: 1 }, TTL);
  assert.equal(Permits.of(never, 'shared', { limit: 4 }, TTL), first);
  const others = [
    [{ limit: 5 }, TTL],
    [{ limit: 4, permits: 2 }, TTL],
    [{ limit: 4 }, TTL + 1],
  ] as const;
  first?.ask();
  assert.equal(Permits.of(never, 'shared', { limit: 4 }, TTL), first, 'also while it is used');
  for (const [share, ttl] of others) {
    assert.equal(Permits.of(never, 'shared', share, ttl), undefined);
  }
  assert.notEqual(Permits.of(never, 'another', { limit: 4 }, TTL), first);
  assert.notEqual(Permits.of(new AbortController().signal, 'shared', { limit: 4 }, TTL), first);
  first?.answered(false);
  for (const [share, ttl] of others) {
    const next = Permits.of(never, 'shared', share, ttl);
    assert.ok(next !== undefined && next !== first);
    assert.equal(Permits.of(never, 'shared', share, ttl), next);
  }
});

test('who waits may ask once another has got none or needs its own no more, in order', async () => {
  const permits = permitsOf({ limit: 1 });
  permits.ask();
  const [first, second] = [new Wait(permits), new Wait(permits)];
  assert.equal(permits.isWanted, true);
  permits.answered(false);
  assert.deepEqual([await first.soon(), await second.soon()], ['ask', 'waits']);
  permits.answered(true);
  assert.equal(await second.soon(), 'waits', 'the permit is held');
  permits.free();
  assert.equal(await second.soon(), 'ask');
  assert.equal(permits.isFull, true, 'it asks');
  permits.answered(false);
  assert.deepEqual([permits.isUsed, permits.isWanted], [false, false]);
});

test('a grant lets nobody ask', async () => {
  const permits = permitsOf({ limit: 3 });
  permits.ask();
  const waits = new Wait(permits);
  permits.answered(true);
  assert.equal(await waits.soon(), 'waits');
});

test('a wait ends with its time, and its timer with the wait', async () => {
  const permits = heldOf({ limit: 1 });
  const before = timers();
  assert.equal(await permits.wait(1, undefined, () => true), 'late');
  assert.deepEqual([permits.isWanted, permits.isUsed], [true, true], 'one is held');
  const waits = new Wait(permits);
  assert.equal(timers(), before + 1);
  void permits.giveBack(new Held(), 0);
  assert.equal(await waits.soon(), 'passed');
  assert.equal(timers(), before);
  permits.free();
  assert.equal(permits.isWanted, false);
  assert.equal(await permits.wait(1, undefined, () => true), 'late');
  assert.deepEqual([permits.isWanted, permits.isUsed], [false, false]);
});

test('a wait for more than Node has timers for is a wait', async () => {
  const permits = heldOf({ limit: 1 });
  const abort = new AbortController();
  const waits = permits.wait(2 ** 40, abort.signal, () => true);
  assert.equal(await Promise.race([waits, sleep(20, 'waits')]), 'waits');
  abort.abort(new Error('enough'));
  await assert.rejects(waits, /enough/);
});

test('a signal ends a wait with its reason, and is listened to no longer than that', async () => {
  const permits = permitsOf({ limit: 1 });
  const abort = new AbortController();
  const listeners = () => getEventListeners(abort.signal, 'abort').length;
  const { signal } = abort;
  const [asks, aborted] = [new Wait(permits, { signal }), new Wait(permits, { signal })];
  assert.equal(listeners(), 1);
  permits.ask();
  permits.answered(false);
  assert.equal(await asks.soon(), 'ask');
  permits.answered(true);
  const before = timers();
  abort.abort(new Error('enough'));
  assert.equal(await aborted.soon(), 'Error: enough');
  assert.deepEqual([listeners(), timers()], [0, before - 1]);
  void permits.giveBack(new Held(), 0);
  assert.equal(aborted.passes, undefined);
  await turn();
  assert.deepEqual([permits.isUsed, permits.isWanted], [false, false]);
});

test('a wait that is aborted as the last use leaves nothing behind', async () => {
  const permits = permitsOf({ limit: 1 });
  const abort = new AbortController();
  const waits = new Wait(permits, { signal: abort.signal });
  abort.abort(new Error('enough'));
  assert.equal(await waits.soon(), 'Error: enough');
  assert.deepEqual([permits.isUsed, permits.isWanted], [false, false]);
});

test('the end of the connection ends each wait', async () => {
  const ended = new AbortController();
  const all = [1, 2].map(() => permitsOf({ limit: 1 }, TTL, ended.signal));
  const waits = all.flatMap((permits) => [new Wait(permits), new Wait(permits)]);
  permitsOf({ limit: 1 }, TTL, ended.signal);
  const before = timers();
  ended.abort(new Error('closed'));
  for (const each of waits) assert.equal(await each.soon(), 'Error: closed');
  assert.equal(timers(), before - waits.length);
  for (const permits of all) assert.equal(permits.isUsed, false);
});

for (const [what, passes, lock, ttl, expected] of [
  ['a fresh permit', 0, new Held(), TTL, true],
  ['one that may pass once more', PASSES_MAX - 1, new Held(), TTL, true],
  ['one that has passed too often', PASSES_MAX, new Held(), TTL, false],
  ['one of half of its lease', 0, new Held(TTL, TTL / 2), TTL, true],
  ['one of more', 0, new Held(TTL, TTL / 2 + 1), TTL, false],
  // A hundredth for the drift of clocks, a second for the confirmation, and 2 ms.
  ['one that was just confirmed', 0, new Held(58_398), TTL, true],
  ['one that was confirmed long ago', 0, new Held(58_397), TTL, false],
  // A sixteenth of the lease is less than a second.
  ['a short one that was just confirmed', 0, new Held(1_528), 1_650, true],
  ['a short one that was confirmed long ago', 0, new Held(1_527), 1_650, false],
  ['the shortest', 0, new Held(1), 2, true],
  ['one that is over', 0, new Held(0), 2, false],
] as const) {
  test(`${what} ${expected ? 'passes' : 'goes to the server'}`, async () => {
    const permits = heldOf({ limit: 1 }, ttl);
    const next = new Wait(permits);
    const back = permits.giveBack(lock, passes);
    assert.equal(await next.soon(), expected ? 'passed' : 'ask');
    assert.deepEqual([next.passes, lock.releases], expected ? [passes + 1, 0] : [undefined, 1]);
    assert.equal(await back, expected ? undefined : 'released');
    assert.equal(permits.isFull, true);
    // One that asks is answered; one to which a permit has passed holds it.
    if (expected) permits.free();
    else permits.answered(false);
    assert.equal(permits.isUsed, false);
  });
}

test('what the next one cannot take goes to the server, whom that one asks', async () => {
  const permits = heldOf({ limit: 1 });
  const next = new Wait(permits, { takes: false });
  const lock = new Held();
  assert.equal(await permits.giveBack(lock, 3), 'released');
  assert.deepEqual([next.passes, lock.releases, await next.soon()], [4, 1, 'ask']);
});

test('what nobody waits for is kept to the end of the turn, for who comes until then', async () => {
  const permits = heldOf({ limit: 2 });
  permits.ask();
  permits.answered(true);
  const locks = [new Held(), new Held(), new Held()] as const;
  const taken: unknown[] = [];
  const take = (lock: Held, passes: number) => taken.push(lock, passes) > 0;
  assert.equal(permits.takeLeft(take), false);
  const backs = [permits.giveBack(locks[0], 2), permits.giveBack(locks[1], 5)];
  assert.equal(
    permits.takeLeft(() => false),
    false,
  );
  assert.equal(permits.takeLeft(take), true);
  assert.deepEqual(taken, [locks[0], 3]);
  assert.equal(await backs[0], undefined);
  assert.equal(await backs[1], 'released');
  assert.deepEqual([locks[0].releases, locks[1].releases], [0, 1]);
  assert.equal(permits.takeLeft(take), false);
  assert.deepEqual([permits.isFull, permits.isUsed], [false, true], 'one is held');
  // The next turn keeps anew.
  assert.equal(await permits.giveBack(locks[2], 0), 'released');
  assert.deepEqual([locks[2].releases, permits.isUsed], [1, false]);
});

test('what may pass no more by then goes to the server', async () => {
  const permits = heldOf({ limit: 1 });
  const lock = new Held();
  const back = permits.giveBack(lock, 0);
  lock.age = TTL;
  assert.equal(
    permits.takeLeft(() => assert.fail('it was passed')),
    false,
  );
  assert.equal(await back, 'released');
});

/** Passes a permit on as often as it may at once, up to 100 times, and holds it then again. */
function passedOn(permits: Permits): number {
  for (let passes = 0; passes < 100; passes++) {
    void new Wait(permits);
    const lock = new Held();
    void permits.giveBack(lock, 0);
    if (lock.releases === 0) continue;
    // The last wait asks.
    permits.answered(true);
    return passes;
  }
  return 100;
}

test('nobody who asks is overtaken for ever: fifteen times for each permit that is held', () => {
  const permits = heldOf({ limit: 10 });
  assert.equal(passedOn(permits), 100, 'nobody asks');
  permits.ask();
  permits.answered(true);
  permits.ask();
  // From here on what was passed before counts: to the first answer.
  permits.ask();
  permits.answered(true);
  assert.equal(passedOn(permits), 3 * PASSES_MAX, 'three are held');
});

test('those that ask later overtake the first to ask no further', () => {
  const permits = heldOf({ limit: 10 });
  for (let i = 0; i < 3; i++) permits.ask();
  permits.answered(true);
  // Two ask that did as the count began, and two are held.
  const give = () => {
    void new Wait(permits);
    const lock = new Held();
    void permits.giveBack(lock, 0);
    return lock.releases;
  };
  for (let i = 0; i < 2 * PASSES_MAX; i++) assert.equal(give(), 0);
  permits.answered(true);
  for (let i = 0; i < PASSES_MAX; i++) assert.equal(give(), 0, 'for the third that is held');
  assert.equal(give(), 1);
  // That wait asks in turn; as the last of the first is answered, the count begins anew.
  permits.answered(true);
  for (let i = 0; i < PASSES_MAX; i++) assert.equal(give(), 0);
});

test('what is taken in the turn overtakes as well', async () => {
  const permits = heldOf({ limit: 2 });
  permits.ask();
  for (let i = 0; i < PASSES_MAX; i++) {
    const back = permits.giveBack(new Held(), 0);
    assert.equal(
      permits.takeLeft(() => true),
      true,
    );
    await back;
  }
  const lock = new Held();
  await permits.giveBack(lock, 0);
  assert.equal(lock.releases, 1);
});

test('names that nobody uses are forgotten once there are a thousand, and then twice as many', () => {
  const { signal } = new AbortController();
  let made = 0;
  const make = () => Permits.of(signal, `${made++}`, { limit: 1 }, TTL) as Permits;
  const isKept = (permits: Permits, name: number) =>
    Permits.of(signal, `${name}`, { limit: 1 }, TTL) === permits;
  const used = Array.from({ length: 600 }, make);
  for (const each of used) each.ask();
  const unused = Array.from({ length: SWEPT_MIN - 601 }, make);
  assert.ok(isKept(unused[0] as Permits, 600));
  // The thousandth stays, and those that are used.
  const last = make();
  assert.ok(isKept(last, SWEPT_MIN - 1));
  assert.ok(used.every(isKept));
  assert.ok(!isKept(unused[1] as Permits, 601));
  // There are 602 now, and 1202 are the next to be swept.
  const more = Array.from({ length: 599 }, make);
  assert.ok(isKept(more[0] as Permits, SWEPT_MIN));
  make();
  assert.ok(!isKept(more[1] as Permits, SWEPT_MIN + 1));
});
