/** Several names at once, in every order: no caller waits for ever, and all get their locks in turn. */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { Cluster } from '../../support/cluster.js';
import { Contender, quiet } from '../../support/crew.js';
import { problemsIn } from '../../support/history.js';
import type { ConnectTarget } from '../../support/holdfast.js';
import { Ledger } from '../../support/ledger.js';
import { serverOfFile } from '../../support/server-of-file.js';

/** Longer than all rounds take. Two callers that wait for each other would wait that long. */
const WAIT_MS = 60_000;
const TASKS = 4;

const server = serverOfFile();
const ledger = new Ledger(serverOfFile());

/** Each process names the locks in its own orders. Both together do `rounds` rounds. */
async function contend(
  t: TestContext,
  target: ConnectTarget,
  rounds: number,
  orders: readonly [string[][], string[][]],
): Promise<void> {
  await ledger.clear();
  const crew = await Promise.all(['p1', 'p2'].map((who) => Contender.start(who, target, ledger)));
  const each = rounds / crew.length;
  const contest = { tasks: TASKS, rounds: each / TASKS, wait: WAIT_MS };
  const began = performance.now();
  const tallies = await Promise.all(
    crew.map((contender, i) => contender.order('sets', { ...contest, orders: orders[i] ?? [] })),
  );
  t.diagnostic(`${rounds} rounds in ${Math.round(performance.now() - began)} ms`);
  await Promise.all(crew.map((contender) => contender.stop()));
  assert.deepEqual(tallies, [{ ok: each }, { ok: each }]);
  const names = orders[0][0]?.length ?? 0;
  assert.equal((await ledger.holds()).length, rounds * names);
  assert.deepEqual(await problemsIn(ledger, { noLosses: true }), []);
}

function ordersOf(names: string[]): string[][] {
  if (names.length < 2) return [names];
  return names.flatMap((first) =>
    ordersOf(names.filter((name) => name !== first)).map((rest) => [first, ...rest]),
  );
}

test("['a', 'b'] against ['b', 'a'], ten thousand times", async (t) => {
  await contend(t, server.url, 10_000, [[['a', 'b']], [['b', 'a']]]);
  await quiet(server);
});

test('three names in all orders', async (t) => {
  const orders = ordersOf(['a', 'b', 'c']);
  assert.equal(orders.length, 6);
  await contend(t, server.url, 2_400, [orders, [...orders].reverse()]);
  await quiet(server);
});

test('two and three names on different servers of a Cluster', async (t) => {
  const cluster = await Cluster.start();
  t.after(() => cluster.stop());
  const names = ['a', 'c', 'd'];
  const slots = await Promise.all(names.map((name) => cluster.slotOf(`lock:${name}`)));
  const homes = await Promise.all(slots.map((slot) => cluster.primaryOf(slot)));
  assert.equal(new Set(homes).size, 3, 'each has a server of its own');
  const target = { cluster: cluster.urls };
  await contend(t, target, 2_000, [[['a', 'd']], [['d', 'a']]]);
  const orders = ordersOf(names);
  await contend(t, target, 1_200, [orders, [...orders].reverse()]);
  await Promise.all(cluster.nodes.map((node) => quiet(node)));
});
