/** The server ends, or cannot be reached, while one process holds a lock and others wait for it. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { Contender, inLine, listens, quiet } from '../support/crew.js';
import { problemsIn } from '../support/history.js';
import { connect, type Lock } from '../support/holdfast.js';
import { Ledger } from '../support/ledger.js';
import { FaultProxy } from '../support/proxy.js';
import { RedisServer } from '../support/server.js';
import { sleep, until } from '../support/wait.js';

let server: RedisServer;
let ledger: Ledger;
let proxy: FaultProxy | undefined;
let crew: Contender[];

beforeEach(async () => {
  ledger = await Ledger.start();
  proxy = undefined;
  crew = [];
});

afterEach(async () => {
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
  await inLine(server, 'x', ['b']);
  const third = c.order('hold', 'x', LONG);
  await inLine(server, 'x', ['b', 'c']);
  await server.restart();
  await Promise.all(['b', 'c'].map((who) => listens(server, who)));
  assert.equal(await a.order('isHeld', first.id), true);
  assert.equal(await a.order('release', first.id), true);
  const { id } = await second;
  await inLine(server, 'x', ['c']);
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
  await until(async () => (await server.admin.zcard('{lock:x}:queue')) === 2, 'both in line');
  await server.restart();
  await Promise.all(others);
  await until(async () => !(await a.order('isHeld', first.id)), 'the holder to learn of it');
  assert.equal(await a.order('release', first.id), false);
  assert.deepEqual(await problemsIn(ledger, { dataLost: true }), []);
});

test('a restart without its data: no task goes on under a lock that others have', async () => {
  server = await RedisServer.start();
  proxy = await FaultProxy.start(server.port);
  const here = await connect(proxy.url, { clientName: 'here' });
  const there = await connect(server.url);
  try {
    const before = await here.acquire('x', LONG);
    const waiting = ['first', 'second'].map((label) => here.acquire('x', { ...LONG, label }));
    await inLine(server, 'x', ['first']);
    await before.release();
    const first = (await waiting[0]) as Lock;
    await inLine(server, 'x', ['second']);
    await until(() => first.remaining > 10_000, 'the claim');
    proxy.refuse = true;
    proxy.cut();
    await server.restart();
    const theirs = await there.acquire('x', LONG);
    assert.ok(theirs.fence > first.fence);
    proxy.refuse = false;
    await listens(server, 'here');
    // It learns long before the next renewal of its lease would be due.
    await until(() => !first.held, 'the old holder to learn of it', 5_000);
    assert.equal(await first.release(), false);
    await inLine(server, 'x', ['second']);
    assert.equal(await theirs.release(), true);
    const second = (await waiting[1]) as Lock;
    assert.ok(second.fence > theirs.fence);
    assert.equal(await second.release(), true);
  } finally {
    await Promise.all([here.close(), there.close()]);
  }
});

test('restarts in the middle of a contest, with the data: one holder at a time', async () => {
  server = await RedisServer.start({ persistent: true });
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
  assert.deepEqual(await problemsIn(ledger, { restarted: true }), []);
});

test('restarts in the middle of a contest, without the data: fences rise all the same', async () => {
  server = await RedisServer.start();
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
  assert.deepEqual(await problemsIn(ledger, { dataLost: true }), []);
});

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
  // What the silent ones hold, and one claim for each, then the line is free of them.
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
    // A release that had no answer in time says so, and is made up for.
    const ended = Object.keys(tally).filter((code) => code !== 'ERR_LOCK_CONNECTION');
    assert.deepEqual(ended, ['ok'], JSON.stringify(results));
  }
  assert.deepEqual(await problemsIn(ledger), []);
});
