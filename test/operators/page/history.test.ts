/** What the page keeps of the past: the last hour, and no more than it can bear. */

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

interface Person {
  readonly name: string;
  readonly client: string;
}

interface Happening {
  readonly at: number;
  readonly name: string;
  readonly kind: string;
  readonly from: readonly Person[];
  readonly to: readonly Person[];
}

interface Gap {
  readonly from: number;
  readonly to: number;
}

interface History {
  since: number;
  readonly gaps: readonly Gap[];
  add(happened: readonly Happening[], now: number): void;
  addGap(gap: Gap): void;
  all(): Happening[];
  of(name: string): readonly Happening[];
}

// It is internal: it is reached by path, past the package's exports.
const { History } = require('../../../../dist/internals.js') as { History: new () => History };

const MINUTE = 60_000;

let history: History;

beforeEach(() => {
  history = new History();
  history.since = 1;
});

function happening(name: string, at: number, holders = 1): Happening {
  const to = Array.from({ length: holders }, (_, i) => ({
    name: `web-${i}`,
    client: 'c'.repeat(32),
  }));
  return { at, name, kind: 'acquired', from: [], to };
}

test('an event is kept for an hour', () => {
  history.add([happening('a', MINUTE)], MINUTE);
  history.add([happening('b', 30 * MINUTE)], 30 * MINUTE);
  history.add([], 61 * MINUTE);
  assert.equal(history.all().length, 2);
  history.add([], 61 * MINUTE + 1);
  assert.deepEqual(
    history.all().map(({ name }) => name),
    ['b'],
  );
  assert.equal(history.since, MINUTE + 1);
});

test('the time that is kept never begins in a gap', () => {
  history.addGap({ from: 10 * MINUTE, to: 300 * MINUTE });
  history.addGap({ from: 310 * MINUTE, to: 320 * MINUTE });
  history.add([], 330 * MINUTE);
  assert.equal(history.since, 300 * MINUTE);
  assert.deepEqual(history.gaps, [{ from: 310 * MINUTE, to: 320 * MINUTE }]);
});

test('a lock in constant motion does not push the others out', () => {
  history.add([happening('calm', 1)], 1);
  for (let i = 0; i < 20_000; i++) history.add([happening('hot', i)], i);
  assert.equal(history.of('calm').length, 1);
  assert.equal(history.of('hot').length, 100);
  assert.equal(history.of('hot').at(-1)?.at, 19_999);
});

test('many locks have five thousand events together, the latest', () => {
  history.add(
    Array.from({ length: 20_000 }, (_, i) => happening(`item:${i}`, i)),
    20_000,
  );
  const all = history.all();
  assert.equal(all.length, 5_000);
  assert.equal(all[0]?.name, 'item:15000');
});

test('a semaphore with a thousand holders takes a megabyte at most', () => {
  for (let i = 0; i < 500; i++) history.add([happening(`api:${i % 7}`, i, 1_000)], i);
  const all = history.all();
  assert.ok(all.length > 5, `${all.length}`);
  assert.ok(JSON.stringify(all).length < 1_100_000, `${JSON.stringify(all).length}`);
  assert.equal(all.at(-1)?.at, 499);
});

test('all events are in the order of their times, whichever lock they are of', () => {
  history.add([happening('a', 1), happening('b', 2), happening('a', 3)], 3);
  history.add([happening('c', 4), happening('b', 5)], 5);
  assert.deepEqual(
    history.all().map(({ at }) => at),
    [1, 2, 3, 4, 5],
  );
  assert.deepEqual(
    history.of('b').map(({ at }) => at),
    [2, 5],
  );
  assert.deepEqual(history.of('nothing'), []);
});

test('the latest fifty gaps are kept, and nothing begins before the first look', () => {
  for (let i = 1; i <= 60; i++) history.addGap({ from: 10 * i, to: 10 * i + 5 });
  assert.deepEqual([history.gaps.length, history.gaps[0]?.from], [50, 110]);
  history.since = 0;
  history.add([], 10 * 60 * MINUTE);
  assert.deepEqual([history.since, history.gaps.length], [0, 50]);
});

test('a gap ends the time before it alone: one that begins later stays', () => {
  history.addGap({ from: 100, to: 200 });
  history.add([], 1);
  assert.deepEqual([history.since, history.gaps.length], [1, 1]);
  history.since = 100;
  history.add([], 1);
  assert.deepEqual([history.since, history.gaps.length], [200, 0]);
  history.addGap({ from: 100, to: 200 });
  history.add([], 1);
  assert.deepEqual([history.since, history.gaps.length], [200, 0], 'it is over');
});
