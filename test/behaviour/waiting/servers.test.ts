/** The server ends, or cannot be reached, while one process holds a lock and others wait for it. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { Contender, listens, quiet, untilQueued } from '../../support/crew.js';
import { problemsIn } from '../../support/history.js';
import { connect, type Lock, type LockManager } from '../../support/holdfast.js';
import { Ledger } from '../../support/ledger.js';
import { FaultProxy } from '../../support/proxy.js';
import { RedisServer } from '../../support/server.js';
import { sleep, until } from '../../support/wait.js';

let server: RedisServer;
let ledger: Ledger;
let proxy: FaultProxy | undefined;
let crew: Contender[];
let managers: LockManager[];

beforeEach(async () => {
  ledger = await Ledger.start();
  proxy = undefined;
  crew = [];
  managers = [];
});

afterEach(async () => {
  await Promise.all(managers.map((each) => each.close()));
  await Promise.all(crew.map((each) => each.stop()));
  await quiet(server);
  await Promise.all([proxy?.stop(), server.stop(), ledger.stop()]);
});

async function enlist<T extends string[]>(...names: T): Promise<{ [I in keyof T]: Contender }> {
  const started = names.map((who) => Contender.start(who, server.url, ledger));
  crew.push(...(await Promise.all(started)));
  return [...crew] as { [I in keyof T]: Contender };
}

const LONG = { ttl: 30_000, wait: 60_000 };

test('a restart with its data: the holder keeps the lock, and the line its order', async () => {
  server = await RedisServer.start({ persistent: true });
  const [a, b, c] = await enlist('a', 'b', 'c');
  const first = await a.order('hold', 'x', LONG);
  const second = b.order('hold', 'x', LONG);
  await untilQueued(server, 'x', ['b']);
  const third = c.order('hold', 'x', LONG);
  await untilQueued(server, 'x', ['b', 'c']);
  await server.restart();
  await Promise.all(['b', 'c'].map((who) => listens(server, who)));
  assert.equal(await a.order('isHeld', first.id), true);
  assert.equal(await a.order('release', first.id), true);
  const { id } = await second;
  await untilQueued(server, 'x', ['c']);
  assert.equal(await b.order('release', id), true);
  assert.equal(await c.order('release', (await third).id), true);
  assert.deepEqual(await problemsIn(ledger, { noLosses: true }), []);
});

test('a restart without its data: the holder learns of it, and the waiters are served', async () => {
  server = await RedisServer.start();
  const [a, b, c] = await enlist('a', 'b', 'c');
  // It learns when it renews: at a third of its lease.
  const first = await a.order('hold', 'x', { ttl: 6_000 });
  const others = [b, c].map(async (each) => {
    const { id } = await each.order('hold', 'x', LONG);
    assert.equal(await each.order('release', id), true);
  });
  await until(
    async () => (await server.admin.zcard('{lock:x}:queue')) === 2,
    'both in the wait queue',
  );
  await server.restart();
  await Promise.all(others);
  await until(async () => !(await a.order('isHeld', first.id)), 'the holder to learn of it');
  assert.equal(await a.order('release', first.id), false);
  assert.deepEqual(await problemsIn(ledger, { dataLost: true }), []);
});

/** A task of `here` holds a lock and another waits for it; then the server loses its data and `there` gets the lock. */
async function forgotten(from: FaultProxy): Promise<{
  here: LockManager;
  there: LockManager;
  first: Lock;
  second: Promise<Lock>;
  theirs: Lock;
}> {
  const here = await connect(from.url, { clientName: 'here' });
  const there = await connect(server.url);
  managers.push(here, there);
  // The first owner of a queue reserves no fence for its successors, the next one does.
  const line = ['zeroth', 'first', 'second'].map((label) =>
    here.acquire('x', { ...LONG, label }),
  ) as [Promise<Lock>, Promise<Lock>, Promise<Lock>];
  const zeroth = await line[0];
  await untilQueued(server, 'x', ['first']);
  assert.match(zeroth.token, /zeroth$/, 'and whose token was read is not handed off');
  await zeroth.release();
  const [first, second] = [await line[1], line[2]];
  await untilQueued(server, 'x', ['second']);
  await until(() => first.remaining > 10_000, 'the claim');
  from.refuse = true;
  from.cut();
  await server.restart();
  const theirs = await there.acquire('x', LONG);
  assert.ok(theirs.fence > first.fence);
  return { here, there, first, second, theirs };
}

test('a restart without its data: the holder of a long lease learns of it at once', async () => {
  server = await RedisServer.start();
  proxy = await FaultProxy.start(server.port);
  const { first, second, theirs } = await forgotten(proxy);
  proxy.refuse = false;
  await listens(server, 'here');
  // Long before the next renewal of its lease would be due.
  await until(() => !first.held, 'the old holder to learn of it', 5_000);
  assert.equal(await first.release(), false);
  await untilQueued(server, 'x', ['second']);
  assert.equal(await theirs.release(), true);
  const last = await second;
  assert.ok(last.fence > theirs.fence);
  assert.equal(await last.release(), true);
});

test('a restart without its data: what others may have by now is not handed off', async () => {
  server = await RedisServer.start();
  proxy = await FaultProxy.start(server.port);
  const { here, first, second, theirs } = await forgotten(proxy);
  let back = false;
  here.once('reconnect', () => {
    back = true;
  });
  // It knows that the data is new, but not yet whether its lock is in it.
  proxy.onRequest = (chunk) => {
    if (chunk.includes('lock:') && proxy !== undefined) proxy.loseReplies = true;
  };
  proxy.refuse = false;
  await until(() => back && proxy?.loseReplies === true, 'the connection to be back');
  assert.equal(first.held, true);
  const released = first.release();
  proxy.onRequest = undefined;
  proxy.loseReplies = false;
  proxy.cut();
  await released;
  await untilQueued(server, 'x', ['second']);
  assert.equal(await theirs.release(), true);
  const last = await second;
  assert.ok(last.fence > theirs.fence, `${last.fence} after ${theirs.fence}`);
  assert.equal(await last.release(), true);
});

for (const [title, options, expected] of [
  ['with the data: one holder at a time', { persistent: true }, { restarted: true }],
  ['without the data: fences rise all the same', {}, { dataLost: true }],
] as const) {
  test(`restarts in the middle of a contest, ${title}`, async () => {
    server = await RedisServer.start(options);
    await enlist('a', 'b', 'c');
    const contest = { name: 'x', tasks: 3, rounds: 1e9, ...LONG, stores: true };
    const tallies = crew.map((each) => each.order('contend', contest));
    for (let round = 0; round < 3; round++) {
      await sleep(200 + Math.random() * 200);
      await server.restart();
    }
    const before = (await ledger.holds()).length;
    await until(async () => (await ledger.holds()).length > before + 20, 'the contest to go on');
    await Promise.all(crew.map((each) => each.order('halt')));
    for (const tally of await Promise.all(tallies)) assert.deepEqual(Object.keys(tally), ['ok']);
    assert.deepEqual(await problemsIn(ledger, expected), []);
  });
}

test('two seconds of silence for some: the others go on, one holder at a time', async () => {
  server = await RedisServer.start();
  // The managers are in other processes, so this one is free to carry their bytes.
  proxy = await FaultProxy.start(server.port);
  const patience = { commandTimeout: 400, connectTimeout: 400 };
  crew.push(
    await Contender.start('a', proxy.url, ledger, patience),
    await Contender.start('b', proxy.url, ledger, patience),
    await Contender.start('c', server.url, ledger, patience),
  );
  const contest = { name: 'x', tasks: 2, rounds: 1e9, ttl: 1_000, wait: 60_000, stores: true };
  const tallies = crew.map((each) => each.order('contend', contest));
  const by = async (who: string) =>
    (await ledger.holds()).filter((hold) => hold.who === who).length;
  await until(async () => (await by('a')) > 5 && (await by('b')) > 5, 'the contest to begin');
  proxy.blackhole = true;
  const begin = performance.now();
  // After the leases of the silent processes, and one claim for each, the queue has no entry of them.
  const others = (await by('c')) + 20;
  await until(async () => (await by('c')) > others, 'those who are not cut off to go on');
  await sleep(2_000 - (performance.now() - begin));
  proxy.blackhole = false;
  proxy.cut();
  const before = [await by('a'), await by('b')] as const;
  const goesOn = async () => (await by('a')) > before[0] + 5 && (await by('b')) > before[1] + 5;
  await until(goesOn, 'the contest to go on');
  await Promise.all(crew.map((each) => each.order('halt')));
  const results = await Promise.all(tallies);
  for (const tally of results) {
    // A release without an answer in time rejects, and is repeated later.
    const ended = Object.keys(tally).filter((code) => code !== 'release:ERR_LOCK_CONNECTION');
    assert.deepEqual(ended, ['ok'], JSON.stringify(results));
  }
  assert.deepEqual(await problemsIn(ledger), []);
});
