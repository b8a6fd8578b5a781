/** The rows of the page: what stays as it is between two looks, and what makes two rows differ. */

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

interface Row {
  readonly holdersId: string;
  readonly holders: readonly { readonly ends: number | null; readonly began: string }[];
  readonly waiters: readonly { readonly since: number }[];
}

interface View {
  readonly name: string;
}

interface Observer {
  look(views: readonly View[], now: number): unknown;
}

interface Snapshot {
  readonly held: readonly object[];
  readonly pending: readonly object[];
}

interface Internals {
  readonly Observer: new () => Observer;
  listLocks(locks: { query(): Promise<Snapshot> }, pattern: string): Promise<View[]>;
  differs(a: Row, b: Row): boolean;
  endsOf(row: Row): (number | null)[];
  rowOf(view: object, observer: Observer, now: number, before?: Row): Row;
}

// They are internal: they are reached by path, past the package's exports.
const { Observer, listLocks, differs, endsOf, rowOf } =
  require('../../../../dist/internals.js') as Internals;

const NOW = 1_800_000_000_000;
const HOLDER = {
  name: 'a',
  token: 'hf1.web.1',
  state: 'held',
  mode: 'exclusive',
  limit: null,
  result: false,
  permits: 1,
  label: 'web',
  clientId: 'web',
  askedAt: null,
  fence: null,
  ttl: 10_000,
};
const WAITER = {
  name: 'a',
  mode: 'exclusive',
  permits: 1,
  label: 'job',
  clientId: 'job',
  position: 1,
  waited: 3_000,
};

let observer: Observer;

beforeEach(() => {
  observer = new Observer();
});

/** The row of a lock that the observer has just seen. */
async function seen(
  { held = [HOLDER], pending = [WAITER] }: Partial<Snapshot>,
  now = NOW,
  before?: Row,
): Promise<Row> {
  const [view] = await listLocks({ query: async () => ({ held, pending }) }, '*');
  assert.ok(view !== undefined);
  observer.look([view], now);
  return rowOf(view, observer, now, before);
}

test('a row tells holders and waiters by times that stand still', async () => {
  const { holdersId, ...row } = await seen({});
  const since = NOW - 3_000;
  assert.deepEqual(row, {
    name: 'a',
    kind: 'lock',
    mode: 'exclusive',
    limit: null,
    holders: [
      {
        state: 'held',
        result: false,
        permits: 1,
        label: 'web',
        client: 'web',
        fence: null,
        since: NOW,
        began: 'or earlier',
        ends: NOW + 10_000,
      },
    ],
    waiters: [{ label: 'job', client: 'job', mode: 'exclusive', permits: 1, since }],
    changes: 0,
  });
  assert.match(holdersId, /^[\w-]{22}$/);
});

test('a holder that no look has shown has its lock since now or earlier', async () => {
  const [view] = await listLocks({ query: async () => ({ held: [HOLDER], pending: [] }) }, '*');
  const [holder] = rowOf(view as View, observer, NOW).holders;
  assert.deepEqual({ ...holder, ends: 0 }, { ...holder, ends: 0, since: NOW, began: 'or earlier' });
});

test('a time that has moved by less than half a second has not moved', async () => {
  const first = await seen({});
  for (const [by, moves] of [
    [499, false],
    [-499, false],
    [500, true],
    [-500, true],
  ] as const) {
    const held = [{ ...HOLDER, ttl: 10_000 + by }];
    const pending = [{ ...WAITER, waited: 3_000 - by }];
    const later = await seen({ held, pending }, NOW, first);
    assert.deepEqual(endsOf(later), [NOW + 10_000 + (moves ? by : 0)], `${by}`);
    assert.equal(later.waiters[0]?.since, NOW - 3_000 + (moves ? by : 0), `${by}`);
  }
});

test('a lease may lose its end, and get one', async () => {
  const endless = { held: [{ ...HOLDER, ttl: null }] };
  const first = await seen({});
  const second = await seen(endless, NOW, first);
  assert.deepEqual(endsOf(second), [null]);
  assert.deepEqual(endsOf(await seen({}, NOW, second)), [NOW + 10_000]);
});

test('a waiter of another client has a time of its own', async () => {
  const first = await seen({});
  const pending = [{ ...WAITER, clientId: 'other', waited: 2_900 }];
  assert.equal((await seen({ pending }, NOW, first)).waiters[0]?.since, NOW - 2_900);
});

test('the holders have one id as long as they are the same, in whatever order', async () => {
  const other = { ...HOLDER, token: 'hf1.api.1', clientId: 'api' };
  const first = await seen({ held: [HOLDER, other] });
  const same = await seen({ held: [other, HOLDER] }, NOW, first);
  assert.equal(same.holdersId, first.holdersId);
  for (const held of [[HOLDER], [HOLDER, { ...other, token: 'hf1.api.2' }]]) {
    assert.notEqual((await seen({ held }, NOW, first)).holdersId, first.holdersId);
  }
});

test('rows differ by all but the ends of leases', async () => {
  const first = await seen({});
  const renewed = await seen({ held: [{ ...HOLDER, ttl: 20_000 }] });
  assert.equal(differs(first, renewed), false);
  assert.notDeepEqual(endsOf(first), endsOf(renewed));
  for (const other of [
    { held: [{ ...HOLDER, label: 'api' }] },
    { held: [{ ...HOLDER, state: 'idle' }] },
    { held: [] },
    { pending: [] },
    { pending: [{ ...WAITER, permits: 2 }] },
  ]) {
    assert.ok(differs(first, await seen(other)), JSON.stringify(other));
  }
});

test('of a quorum a row has the votes', async () => {
  const [view] = await listLocks({ query: async () => ({ held: [HOLDER], pending: [] }) }, '*');
  const votes = [{ server: 'a:1', by: 'web', failure: null }];
  const row = rowOf({ ...view, votes }, observer, NOW) as Row & { readonly votes?: unknown };
  assert.equal(row.votes, votes);
});
