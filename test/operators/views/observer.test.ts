/** What an observer knows of locks by looking again and again. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { connect, type LockManager } from '../../support/holdfast.js';

interface View {
  readonly name: string;
  readonly limit: number | null;
  readonly holders: readonly object[];
  readonly waiters: readonly { readonly waited: number }[];
}

interface Observer {
  look(views: readonly View[], now: number): { readonly name: string; readonly kind: string }[];
  missed(): void;
  holdOf(holder: object): { readonly since: number; readonly began: string } | undefined;
  ageOf(view: View, now: number): number;
  changesOf(name: string): number;
}

interface Internals {
  readonly Observer: new () => Observer;
  listLocks(locks: LockManager, pattern: string): Promise<View[]>;
  longestWait(view: { readonly waiters: readonly { readonly waited: number }[] }): number;
}

// They are internal: they are reached by path, past the package's exports.
const { Observer, listLocks, longestWait } = require('../../../../dist/internals.js') as Internals;

let locks: LockManager;
let visits = 0;

beforeEach(async () => {
  visits += 1;
  locks = await connect(`memory:observer-${visits}`);
});

afterEach(() => locks.close());

test('an observer tells who came and went, and counts holders', async () => {
  const observer = new Observer();
  const kinds = async (now: number) =>
    observer.look(await listLocks(locks, '*'), now).map(({ name, kind }) => `${name} ${kind}`);
  assert.deepEqual(await kinds(1), []);
  let lock = await locks.acquire('x');
  assert.deepEqual(await kinds(1_000), ['x acquired']);
  const [view] = await listLocks(locks, 'x');
  assert.ok(view !== undefined);
  assert.deepEqual(observer.holdOf(view.holders[0] as object), { since: 1_000, began: 'at' });
  assert.equal(observer.ageOf(view, 1_700), 700);
  assert.deepEqual(await kinds(1_500), []);
  assert.equal(observer.ageOf(view, 1_700), 700, 'the next look changes nothing');
  await lock.release();
  lock = await locks.acquire('x');
  assert.deepEqual(await kinds(2_000), ['x moved']);
  assert.equal(observer.changesOf('x'), 1);
  await lock.release();
  assert.deepEqual(await kinds(3_000), ['x freed']);
  assert.deepEqual(await kinds(4_000), []);
  observer.missed();
  await locks.acquire('y');
  assert.deepEqual(await kinds(5_000), [], 'what a missed look hid is no news');
});

test('a holder that was there at the first look began when it asked, or later', async () => {
  const observer = new Observer();
  await locks.acquire('x');
  const views = await listLocks(locks, '*');
  observer.look(views, 5);
  const [view] = views as [View];
  assert.deepEqual(observer.holdOf(view.holders[0] as object), { since: 5, began: 'or later' });
});

test('a pattern takes characters as they are, but for * and ?', async () => {
  await locks.acquire(['a.b:1', 'a.b:22', 'axb:1']);
  const named = async (pattern: string) =>
    (await listLocks(locks, pattern)).map(({ name }) => name);
  assert.deepEqual(await named('a.b:*'), ['a.b:1', 'a.b:22']);
  assert.deepEqual(await named('a.b:?'), ['a.b:1']);
  assert.deepEqual(await named('*.b:1'), ['a.b:1']);
  assert.deepEqual(await named('b'), []);
  assert.equal(longestWait({ waiters: [{ waited: 5 }, { waited: 9 }, { waited: 7 }] }), 9);
});

test('of a semaphore whose holders gave different limits the least is shown', async () => {
  const share = { mode: 'shared', ttl: 60_000 } as const;
  for (const limit of [7, 3, 5]) await locks.acquire('api', { ...share, limit });
  assert.equal((await listLocks(locks, 'api'))[0]?.limit, 3);
});

test('an observer forgets a lock that is gone for many looks, and no other', async () => {
  const observer = new Observer();
  const look = async (now: number) => observer.look(await listLocks(locks, '*'), now);
  await look(1);
  await locks.acquire('stays', { ttl: 600_000 });
  for (const name of ['stays', 'goes']) {
    for (let i = 0; i < 2; i++) {
      const lock = name === 'goes' ? await locks.acquire(name) : undefined;
      await look(2 + i);
      await lock?.release();
      if (lock !== undefined) await look(2 + i);
    }
  }
  assert.equal(observer.changesOf('goes') > 0, true);
  let looks = 0;
  while (observer.changesOf('goes') > 0 && looks < 10_000) {
    looks += 1;
    await look(1_000 + looks);
  }
  assert.ok(looks < 10_000, 'names that never come again must not add up');
  assert.equal(observer.ageOf((await listLocks(locks, 'stays'))[0] as View, 5_000) > 0, true);
});
