/** Processes that hold or wait are killed, or stopped and resumed. */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { Contender, forgetTheDead, listens, quiet, untilQueued } from '../../support/crew.js';
import { now, problemsIn } from '../../support/history.js';
import { Ledger } from '../../support/ledger.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { sleep, until } from '../../support/wait.js';

const server = serverOfFile();
const ledger = new Ledger(serverOfFile());
const crew: Contender[] = [];

afterEach(async () => {
  await Promise.all(crew.splice(0).map((each) => each.stop()));
  await quiet(server);
  assert.deepEqual(await problemsIn(ledger), []);
  await ledger.clear();
});

async function enlist<T extends string[]>(...names: T): Promise<{ [I in keyof T]: Contender }> {
  const started = names.map((who) => Contender.start(who, server.url, ledger));
  crew.push(...(await Promise.all(started)));
  return [...crew] as { [I in keyof T]: Contender };
}

const LONG = { ttl: 20_000, wait: 60_000 };
/** The claim of a grant, which a process that is gone costs, the poll after it, and a margin for a busy machine. */
const ONE_CLAIM_US = 3_000_000 + 200_000 + 1_800_000;

async function hears(who: string): Promise<boolean> {
  const list = String(await server.admin.client('LIST'));
  return list.includes(` name=${who} `);
}

test('SIGKILL of the holder: its lease ends, and the first waiter is next', async () => {
  const [a, b, c] = await enlist('a', 'b', 'c');
  const first = await a.order('hold', 'x', { ttl: 1_500 });
  const second = b.order('hold', 'x', LONG);
  await untilQueued(server, 'x', ['b']);
  const third = c.order('hold', 'x', LONG);
  await untilQueued(server, 'x', ['b', 'c']);
  await a.kill();
  const { id, fence } = await second;
  assert.ok(fence > first.fence);
  await untilQueued(server, 'x', ['c']);
  assert.equal(await b.order('release', id), true);
  assert.equal(await c.order('release', (await third).id), true);
});

test('SIGKILL of the first waiter: it costs the next one a claim', async () => {
  const [a, b, c] = await enlist('a', 'b', 'c');
  const first = await a.order('hold', 'x', LONG);
  void b.order('hold', 'x', LONG).catch(() => {});
  await untilQueued(server, 'x', ['b']);
  const third = c.order('hold', 'x', LONG);
  await untilQueued(server, 'x', ['b', 'c']);
  await b.kill();
  await until(async () => !(await hears('b')), 'the server to notice');
  const released = now();
  assert.equal(await a.order('release', first.id), true);
  const { id, at } = await third;
  assert.ok(at - released < ONE_CLAIM_US, `it took ${at - released} µs`);
  assert.equal(await c.order('release', id), true);
  await forgetTheDead(server, 'x', c);
});

test('SIGKILL of all who wait: together they cost a newcomer one claim', async () => {
  const [a, b, c, d] = await enlist('a', 'b', 'c', 'd');
  const first = await a.order('hold', 'x', LONG);
  for (const [i, waiter] of [b, c].entries()) {
    void waiter.order('hold', 'x', LONG).catch(() => {});
    await untilQueued(server, 'x', ['b', 'c'].slice(0, i + 1));
  }
  await Promise.all([b.kill(), c.kill()]);
  await until(async () => !(await hears('b')) && !(await hears('c')), 'the server to notice');
  assert.equal(await a.order('release', first.id), true);
  assert.ok((await server.admin.pttl('lock:x')) <= 3_000);
  const asked = now();
  const { id, at } = await d.order('hold', 'x', LONG);
  assert.ok(at - asked < ONE_CLAIM_US, `it took ${at - asked} µs`);
  assert.equal(await d.order('release', id), true);
  await forgetTheDead(server, 'x', d);
});

test('SIGSTOP of the holder past its lease: it knows in the first line after SIGCONT', async () => {
  const [a, b] = await enlist('a', 'b');
  const { id, fence } = await a.order('hold', 'x', { ttl: 1_500 });
  const second = b.order('hold', 'x', LONG);
  await untilQueued(server, 'x', ['b']);
  const { begun, result } = a.orderBegun('watch', id);
  await begun;
  await a.pause();
  const next = await second;
  assert.ok(next.fence > fence);
  a.resume();
  const { held, lost } = await result;
  assert.ok(held < next.at, `still held when another had it for ${held - next.at} µs`);
  assert.ok(lost > next.at, 'it was stopped meanwhile');
  assert.equal(await a.order('release', id), false);
  assert.equal(await b.order('isHeld', next.id), true);
  assert.equal(await b.order('release', next.id), true);
});

test('SIGSTOP of the first waiter: it costs the others one claim, and keeps its position', async () => {
  const [a, b, c] = await enlist('a', 'b', 'c');
  const first = await a.order('hold', 'x', LONG);
  const second = b.order('hold', 'x', { ttl: 1_000, wait: 60_000 });
  await untilQueued(server, 'x', ['b']);
  const third = c.order('hold', 'x', LONG);
  await untilQueued(server, 'x', ['b', 'c']);
  await b.pause();
  const released = now();
  assert.equal(await a.order('release', first.id), true);
  const { id, at } = await third;
  // The claim, the poll of the second waiter, and a margin for a busy machine.
  assert.ok(at - released < 1_000_000 + 3_000_000 + 1_000_000, `it took ${at - released} µs`);
  b.resume();
  await untilQueued(server, 'x', ['b']);
  assert.equal(await c.order('release', id), true);
  const last = await second;
  assert.equal(await b.order('isHeld', last.id), true);
  assert.equal(await b.order('release', last.id), true);
});

test('SIGSTOP at any moment, for longer than the lease: at most one holder at a time', async () => {
  const names = ['a', 'b', 'c', 'd'] as const;
  await enlist(...names);
  const contest = { name: 'x', tasks: 3, rounds: 1e9, ttl: 500, wait: 60_000, stores: true };
  const tallies = crew.map((each) => each.order('contend', contest));
  for (let round = 0; round < 8; round++) {
    const victim = crew[round % 3] as Contender;
    await sleep(Math.random() * 50);
    await victim.pause();
    // Past the lease, a claim included.
    await sleep(700);
    victim.resume();
  }
  await until(async () => (await ledger.holds()).length > 100, 'a hundred holds');
  await (crew[3] as Contender).kill();
  await Promise.all(crew.slice(0, 3).map((each) => each.order('halt')));
  const results = await Promise.all(tallies.slice(0, 3));
  for (const tally of results) assert.deepEqual(Object.keys(tally), ['ok'], JSON.stringify(tally));
  await forgetTheDead(server, 'x', crew[0] as Contender);
});

test('a process that comes back from SIGSTOP is told again', async () => {
  const [a, b] = await enlist('a', 'b');
  const first = await a.order('hold', 'x', LONG);
  const second = b.order('hold', 'x', LONG);
  await untilQueued(server, 'x', ['b']);
  await b.pause();
  assert.equal(await a.order('release', first.id), true);
  b.resume();
  const { id } = await second;
  await listens(server, 'b');
  assert.equal(await b.order('release', id), true);
});
