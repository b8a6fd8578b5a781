/** What the streams of the page are told: everything at first, then changes, and what goes wrong. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { until } from '../../support/wait.js';

interface Told {
  readonly event: string;
  readonly now: number;
  readonly rows: readonly { readonly name: string }[];
  readonly happened: readonly { readonly name: string; readonly kind: string }[];
  readonly gone: readonly string[];
  readonly leases: readonly (readonly [string, readonly (number | null)[]])[];
  readonly gaps: readonly { readonly from: number; readonly to: number }[];
  readonly since: number;
  readonly quorum: { readonly of: number; readonly needed: number } | null;
  readonly failure: string | null;
  readonly message: string;
}

interface Feed {
  readonly isFull: boolean;
  add(stream: Stream): void;
  remove(stream: Stream): void;
  catchUp(stream: Stream): void;
  lookNow(): void;
  close(): void;
}

interface Locks {
  query(): Promise<object>;
}

interface Internals {
  readonly Feed: new (settings: object) => Feed;
}

// It is internal: it is reached by path, past the package's exports.
const { Feed } = require('../../../../dist/internals.js') as Internals;

class Stream {
  readonly told: Told[] = [];
  closed = 0;

  send(event: string, json: string): void {
    this.told.push({ event, ...JSON.parse(json) });
  }

  close(): void {
    this.closed += 1;
  }

  /** What it is told next, after so much. */
  async next(after: number): Promise<Told> {
    await until(() => this.told.length > after, 'the next event');
    return this.told[after] as Told;
  }
}

const holder = (name: string, token: string, ttl = 10_000) => ({
  name,
  token,
  state: 'held',
  mode: 'exclusive',
  limit: null,
  result: false,
  permits: 1,
  label: 'web',
  clientId: 'web',
  askedAt: null,
  fence: null,
  ttl,
});

let held: object[];
let failure: Error | undefined;
let looks: number;
let feed: Feed;

const locks: Locks = {
  query: async () => {
    looks += 1;
    if (failure !== undefined) throw failure;
    return { held, pending: [] };
  },
};

beforeEach(() => {
  [held, failure, looks] = [[holder('a', 'hf1.web.1')], undefined, 0];
  // Its looks are those that the tests ask for.
  feed = new Feed({ locks, servers: [], interval: 600_000 });
});

afterEach(() => feed.close());

test('a stream is told everything by the first look, and a second one at once', async () => {
  const [first, second, third] = [new Stream(), new Stream(), new Stream()];
  feed.add(first);
  feed.add(second);
  assert.deepEqual(second.told, [], 'nothing is known yet');
  for (const stream of [first, second]) {
    const { event, rows, quorum, failure, gaps, since, now } = await stream.next(0);
    assert.deepEqual([event, rows.map(({ name }) => name)], ['state', ['a']]);
    assert.deepEqual([quorum, failure, gaps], [null, null, []]);
    assert.ok(since > 0 && since <= now, `${since} ${now}`);
  }
  feed.add(third);
  assert.equal(third.told[0]?.event, 'state');
  assert.deepEqual([first.told.length, looks], [1, 1]);
});

test('later looks tell what has changed: rows, ends of leases, and what is gone', async () => {
  const stream = new Stream();
  held = ['a', 'b', 'c'].map((name) => holder(name, `hf1.web.${name}`));
  feed.add(stream);
  await stream.next(0);
  held = [
    holder('a', 'hf1.job.9'),
    holder('b', 'hf1.web.b', 500_000),
    holder('d', 'hf1.web.d', 20_000),
  ];
  feed.lookNow();
  const { event, rows, gone, leases, happened } = await stream.next(1);
  assert.equal(event, 'change');
  assert.deepEqual(rows.map(({ name }) => name).sort(), ['a', 'd']);
  assert.deepEqual(gone, ['c']);
  assert.deepEqual(
    leases.map(([name, ends]) => [name, ends.length]),
    [['b', 1]],
  );
  const kinds = happened.map(({ name, kind }) => `${name} ${kind}`).sort();
  assert.deepEqual(kinds, ['a moved', 'c freed', 'd acquired']);
  const late = new Stream();
  feed.add(late);
  assert.deepEqual(late.told[0]?.happened.length, 3);
});

test('of many happenings at once the last 200 are told', async () => {
  const stream = new Stream();
  feed.add(stream);
  await stream.next(0);
  held = Array.from({ length: 250 }, (_, i) => holder(`l${i}`, `hf1.web.${i}`));
  feed.lookNow();
  const { happened, rows } = await stream.next(1);
  assert.deepEqual([happened.length, rows.length], [200, 250]);
});

test('a look that fails is told, and after it everything, with the gap', async () => {
  const stream = new Stream();
  feed.add(stream);
  const { since } = await stream.next(0);
  await until(() => Date.now() > since, 'a time that was watched');
  feed.lookNow();
  const { now: last } = await stream.next(1);
  failure = new Error('no server');
  feed.lookNow();
  const failed = await stream.next(2);
  assert.deepEqual([failed.event, failed.message], ['failure', 'no server']);
  assert.ok(failed.now >= last);
  feed.catchUp(stream);
  assert.equal(stream.told[3]?.failure, 'no server');
  feed.lookNow();
  await stream.next(4);
  await until(() => Date.now() > last, 'the gap to last');
  failure = undefined;
  held = [holder('a', 'hf1.job.2')];
  feed.lookNow();
  const { event, gaps, happened, failure: none } = await stream.next(5);
  assert.deepEqual([event, none, happened], ['state', null, []]);
  assert.deepEqual([gaps.length, gaps[0]?.from], [1, last]);
  feed.lookNow();
  assert.equal((await stream.next(6)).event, 'change');
  feed.catchUp(stream);
  assert.equal(stream.told[7]?.gaps.length, 1, 'it is told once');
});

test('before the first look that succeeds there is no gap', async () => {
  const stream = new Stream();
  failure = new Error('no server');
  feed.add(stream);
  assert.equal((await stream.next(0)).event, 'failure');
  failure = undefined;
  feed.lookNow();
  assert.deepEqual((await stream.next(1)).gaps, []);
});

test('looks go on in their interval, also for a while without a stream', async () => {
  feed.close();
  feed = new Feed({ locks, servers: [], interval: 1 });
  const stream = new Stream();
  feed.add(stream);
  await stream.next(3);
  feed.remove(stream);
  const before = looks;
  await until(() => looks > before + 3, 'looks without a stream');
  const told = stream.told.length;
  const next = new Stream();
  feed.add(next);
  assert.equal((await next.next(0)).event, 'state');
  assert.equal(stream.told.length, told, 'it was removed');
  feed.close();
  const closed = looks;
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.ok(looks <= closed + 1, 'a look may be under way');
});

test('the pause after a slow look is longer than the look', async () => {
  feed.close();
  const times: number[] = [];
  const slow = async () => {
    times.push(performance.now());
    await new Promise((resolve) => setTimeout(resolve, 10));
    times.push(performance.now());
    return { held, pending: [] };
  };
  feed = new Feed({ locks: { query: slow }, servers: [], interval: 1 });
  feed.add(new Stream());
  await until(() => times.length > 2, 'the second look');
  const [began = 0, ended = 0, next = 0] = times;
  assert.ok(next - ended > 3 * (ended - began), `${times}`);
});

test('a second look is not begun while one is under way', async () => {
  const stream = new Stream();
  feed.add(stream);
  feed.lookNow();
  feed.lookNow();
  await stream.next(0);
  assert.equal(looks, 1);
});

test('a hundred streams may be open, and none after the end', () => {
  const streams = Array.from({ length: 100 }, () => new Stream());
  for (const [i, stream] of streams.entries()) {
    assert.equal(feed.isFull, false, `${i}`);
    feed.add(stream);
  }
  assert.equal(feed.isFull, true);
  feed.close();
  assert.ok(streams.every(({ closed }) => closed === 1));
  const late = new Stream();
  const before = looks;
  feed.add(late);
  assert.deepEqual([late.closed, looks], [1, before]);
});

test('of a quorum the page is told how many are a majority', async () => {
  feed.close();
  const servers = ['a', 'b', 'c'].map((server) => ({ server, locks }));
  feed = new Feed({ locks, servers, interval: 600_000 });
  const stream = new Stream();
  feed.add(stream);
  assert.deepEqual((await stream.next(0)).quorum, { of: 3, needed: 2 });
});
