/** The longest waiter is next, in whichever process it waits. */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { Contender, labelOf, quiet, untilQueued } from '../../support/crew.js';
import { GrantWatch } from '../../support/grants.js';
import { problemsIn } from '../../support/history.js';
import { connect, type Lock } from '../../support/holdfast.js';
import { Ledger } from '../../support/ledger.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

const server = serverOfFile();
const ledger = new Ledger(serverOfFile());
const crew: Contender[] = [];

afterEach(async () => {
  await Promise.all(crew.splice(0).map((each) => each.stop()));
  await quiet(server);
  await ledger.clear();
});

async function enlist(...names: string[]): Promise<Contender[]> {
  crew.push(...(await Promise.all(names.map((who) => Contender.start(who, server.url, ledger)))));
  return crew;
}

const LONG = { ttl: 20_000, wait: 60_000 };

test('one after the other, in the order in which they came', async () => {
  const names = ['w1', 'w2', 'w3', 'w4', 'w5', 'w6'];
  await enlist('holder', ...names);
  const [holder, ...waiters] = crew as [Contender, ...Contender[]];
  const { id } = await holder.order('hold', 'a', LONG);
  // The reverse order, so that an order that follows the processes by chance fails.
  const order = [...names].reverse();
  const granted: string[] = [];
  for (const [i, who] of order.entries()) {
    const waiter = waiters.find((each) => each.who === who) as Contender;
    void waiter.order('hold', 'a', LONG).then((hold) => {
      granted.push(who);
      return waiter.order('release', hold.id);
    });
    await untilQueued(server, 'a', order.slice(0, i + 1));
  }
  assert.equal(await holder.order('release', id), true);
  await until(() => granted.length === names.length, 'everybody to have had it');
  assert.deepEqual(granted, order);
});

test('four processes with 25 waiters each: in the order of the calls, but for 15 hand-offs', async () => {
  const names = ['p1', 'p2', 'p3', 'p4'];
  await enlist('holder', ...names);
  const [holder, ...waiters] = crew as [Contender, ...Contender[]];
  const { id } = await holder.order('hold', 'a', LONG);
  const watch = await GrantWatch.start(server, 'a');
  const contest = { name: 'a', tasks: 25, rounds: 2, ...LONG };
  const tallies = waiters.map(async (waiter, i) => {
    await untilQueued(server, 'a', names.slice(0, i));
    return waiter.order('contend', contest);
  });
  await untilQueued(server, 'a', names);
  await holder.order('release', id);
  assert.deepEqual(await Promise.all(tallies), Array(4).fill({ ok: 50 }));

  const grants = await watch.stop();
  assert.ok(grants.length >= 16, `${grants.length} grants for 200 holds`);
  for (const [i, { token, line }] of grants.entries()) {
    assert.equal(token, line[0], `grant ${i} is that of the first of ${line.map(labelOf)}`);
  }
  const holds = (await ledger.holds()).sort((x, y) => x.fence - y.fence).slice(1);
  const told = holds.map(({ who }) => who).join(' ');
  for (const [i, who] of names.entries()) {
    const ahead = holds.slice(
      0,
      holds.findIndex((hold) => hold.who === who),
    );
    for (const other of names.slice(0, i)) {
      const count = ahead.filter((hold) => hold.who === other).length;
      // All earlier callers, and those of the second round that got the lock by a hand-off in their process.
      assert.ok(count >= 25 && count <= 25 + 15, `${count} of ${other} ahead of ${who}: ${told}`);
    }
    assert.deepEqual(
      ahead.filter((hold) => names.indexOf(hold.who) > i),
      [],
      told,
    );
  }
  assert.deepEqual(await problemsIn(ledger, { noLosses: true }), []);
});

test('a thousand tasks here let a process there have its turn, and cost few requests', async () => {
  await enlist('guest');
  const [guest] = crew as [Contender];
  const locks = await connect(server.url);
  const first = await locks.acquire('a', LONG);
  const before = locks.stats().requests;
  const fences: number[] = [];
  const work = (held: Lock) => {
    fences.push(held.fence);
    return held.release();
  };
  const start = (length: number) =>
    Array.from({ length }, () => locks.acquire('a', LONG).then(work));
  const tasks = start(20);
  await until(async () => (await server.admin.zcard('{lock:a}:queue')) === 1, 'our place');
  const turn = guest.order('hold', 'a', LONG);
  await until(
    async () => (await server.admin.zcard('{lock:a}:queue')) === 2,
    'the guest in the wait queue',
  );
  tasks.push(...start(980));
  await first.release();
  const { id, fence } = await turn;
  await guest.order('release', id);
  await Promise.all(tasks);
  const ahead = fences.filter((own) => own < fence).length;
  // The earlier callers, and at most fifteen hand-offs.
  assert.ok(ahead >= 20 && ahead <= 20 + 15, `the guest came after ${ahead} of a thousand`);
  const { requests, handedOff } = locks.stats();
  assert.ok(requests - before < 250, `${requests - before} requests`);
  assert.ok(handedOff > 900, `${handedOff} handed off`);
  await locks.close();
});

test('tryAcquire takes a lock that has just become free only if nobody waits', async () => {
  const [holder, waiter, passerBy] = (await Promise.all(
    ['holder', 'waiter', 'passer-by'].map((clientName) => connect(server.url, { clientName })),
  )) as [
    Awaited<ReturnType<typeof connect>>,
    Awaited<ReturnType<typeof connect>>,
    Awaited<ReturnType<typeof connect>>,
  ];
  const held = await holder.acquire('a', LONG);
  const waiting = waiter.acquire('a', LONG);
  await until(async () => (await server.admin.zcard('{lock:a}:queue')) === 1, 'the waiter');
  // As if the lease had run out, or old code had deleted the key.
  await server.admin.del('lock:a');
  assert.equal(await passerBy.tryAcquire('a'), null);
  const lock = await waiting;
  assert.equal(await passerBy.tryAcquire('a'), null);
  assert.equal(await lock.release(), true);
  assert.equal(await held.release(), false);
  const free = await passerBy.tryAcquire('a');
  assert.equal(await free?.release(), true);
  await Promise.all([holder.close(), waiter.close(), passerBy.close()]);
});
