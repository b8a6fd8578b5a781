/** `holdfast/prometheus`: the metrics of what managers do, on a real server and in memory. */

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { measureLocks } from 'holdfast/prometheus';
import { Registry } from 'prom-client';
import { connect, type LockManager } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';

let server: RedisServer;
let opened: LockManager[] = [];

before(async () => {
  server = await RedisServer.start();
});

afterEach(async () => {
  await Promise.all(opened.map((manager) => manager.close()));
  opened = [];
});

after(() => server?.stop());

async function open(target: string): Promise<LockManager> {
  const manager = await connect(target);
  opened.push(manager);
  return manager;
}

/** The value of a series, such as `holdfast_held{manager="a"}`. */
async function seriesOf(registry: Registry, series: string): Promise<number> {
  const text = await registry.metrics();
  const line = text.split('\n').find((each) => each.startsWith(`${series} `));
  assert.ok(line !== undefined, `${series} is not in\n${text}`);
  return Number(line.slice(series.length + 1));
}

let visits = 0;
const TARGETS = { redis: () => server.url, memory: () => `memory:metrics-${visits}` };

for (const [kind, target] of Object.entries(TARGETS)) {
  test(`on ${kind} the metrics tell what happened to each manager of a registry`, async () => {
    visits += 1;
    const registry = new Registry();
    const [a, b, unmeasured] = [await open(target()), await open(target()), await open(target())];
    measureLocks(a, { registry, manager: 'a' });
    measureLocks(b, { registry, manager: 'b' });
    const value = (series: string) => seriesOf(registry, `holdfast_${series}`);

    for (const reason of ['adopted', 'expired', 'maxHold', 'stalled', 'stolen']) {
      assert.equal(await value(`lost_total{manager="a",reason="${reason}"}`), 0);
    }
    const lock = await a.acquire('item:42');
    const waiting = b.acquire('item:42');
    await until(async () => (await value('waiting{manager="b"}')) === 1, 'b to wait');
    assert.equal(await value('held{manager="a"}'), 1);
    assert.equal(await value('held{manager="b"}'), 0);
    await until(async () => (await value('oldest_wait_seconds{manager="b"}')) > 0.02, 'a wait');
    assert.equal(await value('oldest_wait_seconds{manager="a"}'), 0);
    assert.ok((await value('oldest_hold_seconds{manager="a"}')) > 0);
    await lock.release();
    const next = await waiting;
    const [acquired, released] = ['kind="item",outcome="acquired"', 'kind="item",end="released"'];
    assert.equal(await value(`acquire_seconds_count{manager="b",${acquired}}`), 1);
    assert.equal(await value('oldest_wait_seconds{manager="b"}'), 0);
    assert.equal(await value(`hold_seconds_count{manager="a",${released}}`), 1);
    const held = await value(`hold_seconds_sum{manager="a",${released}}`);
    assert.ok(held > 0.02 && held < 20, `${held}`);

    assert.equal(await a.tryAcquire('item:42'), null);
    assert.equal(await value('acquire_seconds_count{manager="a",kind="item",outcome="taken"}'), 1);
    for (const reason of [undefined, null, 20, new Error('the client hung up')]) {
      const abort = new AbortController();
      const aborted = a.acquire('item:42', { signal: abort.signal });
      abort.abort(reason);
      await assert.rejects(aborted, (error) => error === abort.signal.reason);
    }
    const aborted = 'acquire_seconds_count{manager="a",kind="item",outcome="aborted"}';
    assert.equal(await value(aborted), 4);
    await unmeasured.forceRelease('item:42');
    await until(() => next.signal.aborted, 'the loss');
    assert.equal(await value('lost_total{manager="b",reason="stolen"}'), 1);
    assert.equal(await value('hold_seconds_count{manager="b",kind="item",end="stolen"}'), 1);
    const both = await unmeasured.acquire(['x:1', 'y:1']);
    await both.release();
    assert.ok(!(await registry.metrics()).includes('kind="x"'), 'another manager is not counted');
    const several = await a.acquire(['x:1', 'y:1']);
    await several.release();
    assert.equal(await value('hold_seconds_count{manager="a",kind="y",end="released"}'), 1);
  });

  test(`on ${kind} the series of a manager end with it, and its label is free again`, async () => {
    visits += 1;
    const registry = new Registry();
    const [a, b] = [await open(target()), await open(target())];
    measureLocks(a, { registry });
    assert.throws(() => measureLocks(b, { registry }), { code: 'ERR_INVALID_ARG_VALUE' });
    await (await a.acquire('item:1')).release();
    let closed = 0;
    a.on('close', () => {
      closed += 1;
    });
    await a.close();
    await a.close();
    assert.equal(closed, 1);
    const text = await registry.metrics();
    for (const series of [
      'held',
      'connected',
      'lost_total',
      'acquired_total',
      'acquire_seconds_count',
    ]) {
      assert.ok(!text.includes(`holdfast_${series}{`), text);
    }
    const end = measureLocks(b, { registry });
    assert.equal(await seriesOf(registry, 'holdfast_acquired_total{manager="default"}'), 0);
    end();
    end();
    measureLocks(b, { registry });
    assert.equal(await seriesOf(registry, 'holdfast_connected{manager="default"}'), 1);
  });
}

test('leading tells of each name whether the manager leads, and no candidate counts as one who waits', async () => {
  const registry = new Registry();
  const [a, b] = [await open('memory:metrics-lead'), await open('memory:metrics-lead')];
  measureLocks(a, { registry, manager: 'a' });
  measureLocks(b, { registry, manager: 'b' });
  const value = (series: string) => seriesOf(registry, `holdfast_${series}`);
  const stop = new AbortController();
  const work = (signal: AbortSignal) =>
    new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
  const first = a.lead('job', { signal: stop.signal }, ({ signal }) => work(signal));
  await until(async () => (await value('leading{manager="a",lead="job"}')) === 1, 'a to lead');
  const second = b.lead('job', ({ signal }) => work(signal));
  await until(() => b.stats().leads[0]?.waiting === true, 'b to wait');
  assert.equal(await value('leading{manager="b",lead="job"}'), 0);
  for (const level of ['waiting{manager="b"}', 'oldest_wait_seconds{manager="b"}']) {
    assert.equal(await value(level), 0);
  }
  assert.equal(await value('oldest_hold_seconds{manager="a"}'), 0);
  stop.abort();
  await first;
  await until(async () => (await value('leading{manager="b",lead="job"}')) === 1, 'b to lead');
  const text = await registry.metrics();
  assert.ok(!text.includes('lead="job",manager="a"') && !text.includes('manager="a",lead="job"'));
  assert.ok(!/acquire_seconds_count.*leader/.test(text), 'a campaign is no acquire');
  assert.equal(await value('hold_seconds_count{manager="a",kind="leader",end="released"}'), 1);
  await b.close();
  await second;
});

test('connected is 0 while the server is away', async () => {
  const own = await RedisServer.start();
  try {
    const registry = new Registry();
    const manager = await open(own.url);
    manager.on('disconnect', () => {});
    measureLocks(manager, { registry });
    const connected = () => seriesOf(registry, 'holdfast_connected{manager="default"}');
    assert.equal(await connected(), 1);
    await own.kill();
    await until(async () => (await connected()) === 0, 'the loss of the connection');
    await own.restart();
    await until(async () => (await connected()) === 1, 'the connection');
  } finally {
    await own.stop();
  }
});

test('an option that does not exist is refused, with the one that was meant', async () => {
  const manager = await open('memory:');
  const wrong = { manger: 'orders' } as never;
  assert.throws(
    () => measureLocks(manager, wrong),
    /measureLocks has no option "manger".*"manager"/,
  );
});
