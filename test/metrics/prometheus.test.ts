/** `holdfast/prometheus`: the metrics of what managers do, on a real server and in memory. */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import type { LockWarning } from 'holdfast';
import { measureLocks } from 'holdfast/prometheus';
import { Registry } from 'prom-client';
import { closeManagers, connect, type LockManager } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';
import { serverOfFile } from '../support/server-of-file.js';
import { until } from '../support/wait.js';

const server = serverOfFile();

afterEach(closeManagers);

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
  test(`on ${kind} the permits of semaphores are told by kind, with the highest limit`, async () => {
    visits += 1;
    const registry = new Registry();
    const [a, b] = [await connect(target()), await connect(target())];
    measureLocks(a, { registry, manager: 'a' });
    measureLocks(b, { registry, manager: 'b' });
    const value = (series: string) => seriesOf(registry, `holdfast_permits_${series}`);
    const share = { mode: 'shared', limit: 10 } as const;
    const three = await a.acquire('api:mail', { ...share, permits: 3 });
    const one = await a.acquire('api:pay', { ...share, limit: 4 });
    const other = await b.acquire('api:mail', share);
    await a.acquire('api:whole');
    await a.acquire('api:read', { mode: 'shared' });
    const told = async () => [
      await value('held{manager="a",kind="api"}'),
      await value('limit{manager="a",kind="api"}'),
      await value('held{manager="b",kind="api"}'),
    ];
    assert.deepEqual(await told(), [4, 10, 1]);
    await three.release();
    assert.deepEqual(await told(), [1, 4, 1]);
    await Promise.all([one.release(), other.release()]);
    assert.ok(!(await registry.metrics()).includes('holdfast_permits_held{'), 'none is held');
  });
}

for (const [kind, target] of Object.entries(TARGETS)) {
  test(`on ${kind} the metrics tell what happened to each manager of a registry`, async () => {
    visits += 1;
    const registry = new Registry();
    const [a, b, unmeasured] = [
      await connect(target()),
      await connect(target()),
      await connect(target()),
    ];
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
    const [a, b] = [await connect(target()), await connect(target())];
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
  const [a, b] = [await connect('memory:metrics-lead'), await connect('memory:metrics-lead')];
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
    const manager = await connect(own.url);
    manager.on('disconnect', () => {});
    measureLocks(manager, { registry });
    const connected = () => seriesOf(registry, 'holdfast_connected{manager="default"}');
    assert.equal(await connected(), 1);
    await own.kill();
    await until(async () => (await connected()) === 0, 'the loss of the connection');
    const later = new Registry();
    measureLocks(manager, { registry: later });
    const begun = await seriesOf(later, 'holdfast_connected{manager="default"}');
    assert.equal(begun, 0, 'a measurement that begins without a connection');
    await own.restart();
    await until(async () => (await connected()) === 1, 'the connection');
  } finally {
    await own.stop();
  }
});

test('an option that does not exist is refused, with the one that was meant', async () => {
  const manager = await connect('memory:');
  const wrong = { manger: 'orders' } as never;
  assert.throws(
    () => measureLocks(manager, wrong),
    /measureLocks has no option "manger".*"manager"/,
  );
});

/** How many series a registry has, and the kinds that they name. */
async function sizeOf(registry: Registry): Promise<{ series: number; kinds: string[] }> {
  const text = await registry.metrics();
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  const kinds = new Set(Array.from(text.matchAll(/kind="([^"]*)"/g), ([, kind]) => kind ?? ''));
  return { series: lines.length, kinds: [...kinds].sort() };
}

async function hold(manager: LockManager, names: readonly string[]): Promise<void> {
  await Promise.all(names.map(async (name) => (await manager.acquire(name)).release()));
}

/** How names are made, and their kinds; more kinds than there may be where none are given. */
const SHAPES: Readonly<Record<string, [of: (i: number) => string, kinds?: readonly string[]]>> = {
  'item:42': [(i) => `item:${i}`, ['item']],
  'item-42': [(i) => `item-${i}`, ['item']],
  'a b 42': [(i) => `a b ${i}`, ['a']],
  'item/42': [(i) => `item/${i}`, ['item']],
  '{cart}:42': [(i) => `cart{${i}}`, ['cart']],
  '42:cart': [(i) => `${i}:cart`, ['other']],
  item42: [(i) => `item${i}`, ['other']],
  // As people may be called.
  alice: [(i) => `k${i.toString(26).replace(/\d/g, (d) => 'qrstuvwxyz'[Number(d)] ?? '')}:1`],
};

for (const [shape, [of, expected]] of Object.entries(SHAPES)) {
  // The whole number where the kinds are bounded by their number alone.
  const count = expected === undefined ? 20_000 : 2_500;
  test(`the metrics of ${count} names ${shape} stay under 2 000 series`, async () => {
    const manager = await connect('memory:');
    const warnings: LockWarning[] = [];
    manager.on('warning', (warning) => warnings.push(warning));
    const registry = new Registry();
    measureLocks(manager, { registry });
    await hold(
      manager,
      Array.from({ length: count }, (_, i) => of(i)),
    );
    const { series, kinds } = await sizeOf(registry);
    assert.ok(series < 2_000, `${series}`);
    if (expected !== undefined) {
      assert.deepEqual(kinds, expected);
      assert.deepEqual(warnings, []);
      return;
    }
    assert.equal(kinds.length, 101);
    assert.ok(kinds.includes('other'));
    assert.deepEqual(
      warnings.map(({ code }) => code),
      ['WARN_LOCK_KINDS'],
    );
    assert.match(warnings[0]?.message ?? '', /more than 100 kinds.*option kinds of measureLocks/);
    const warned = 'holdfast_warnings{manager="default",code="WARN_LOCK_KINDS"}';
    assert.equal(await seriesOf(registry, warned), 1);
  });
}

test('waits are told from a millisecond to a minute, and holds to ten minutes', async () => {
  const manager = await connect('memory:');
  const registry = new Registry();
  measureLocks(manager, { registry });
  await hold(manager, ['a:1']);
  const text = await registry.metrics();
  const limitsOf = (metric: string) =>
    Array.from(
      text.matchAll(new RegExp(`^holdfast_${metric}_bucket\\{(?:.*,)?le="([^"]+)"`, 'gm')),
      ([, limit]) => limit,
    );
  const waits = ['0.001', '0.01', '0.1', '1', '10', '60', '+Inf'];
  assert.deepEqual(limitsOf('acquire_seconds'), waits);
  assert.deepEqual(limitsOf('hold_seconds'), ['0.01', '0.1', '1', '10', '60', '600', '+Inf']);
});

test('all slots of a runOnce are of the kind of its key', async () => {
  const manager = await connect('memory:');
  const registry = new Registry();
  measureLocks(manager, { registry });
  for (let i = 0; i < 200; i++) await manager.runOnce('report', { slot: `slot ${i}` }, () => i);
  assert.deepEqual((await sizeOf(registry)).kinds, ['report']);
});

test('a list or a function chooses the kinds', async () => {
  const manager = await connect('memory:');
  const [listed, made] = [new Registry(), new Registry()];
  measureLocks(manager, { registry: listed, kinds: ['cron', 'cron:settle', 'tenant7'] });
  measureLocks(manager, { registry: made, kinds: (name) => name.split(':').at(-1) ?? '' });
  await hold(manager, ['cron:a', 'cron:settle:1', 'cron:settlement', 'cron', 'crony', 'tenant7:a']);
  assert.deepEqual((await sizeOf(listed)).kinds, ['cron', 'cron:settle', 'other', 'tenant7']);
  assert.deepEqual((await sizeOf(made)).kinds, ['1', 'a', 'cron', 'crony', 'settlement']);
});

test('a function that fails costs the kind, not the lock', async () => {
  for (const kinds of [
    () => {
      throw new Error('no');
    },
    () => undefined as never as string,
  ]) {
    const manager = await connect('memory:');
    const warnings: LockWarning[] = [];
    manager.on('warning', (warning) => warnings.push(warning));
    const registry = new Registry();
    measureLocks(manager, { registry, kinds });
    await hold(manager, ['a', 'b']);
    assert.deepEqual((await sizeOf(registry)).kinds, ['other']);
    assert.deepEqual(
      warnings.map(({ code }) => code),
      ['WARN_LOCK_KINDS'],
    );
  }
});

test('what is no manager, and no kinds, is refused', async () => {
  const manager = await connect('memory:');
  const wrongs = [undefined, null, {}, 'redis://127.0.0.1', Promise.resolve(manager)];
  for (const wrong of wrongs) {
    assert.throws(() => measureLocks(wrong as never, { registry: new Registry() }), {
      name: 'TypeError',
      code: 'ERR_INVALID_ARG_TYPE',
      message: wrong instanceof Promise ? /await connect/ : /measureLocks takes a manager/,
    });
  }
  for (const kinds of ['item', 4, [1], [''], null]) {
    assert.throws(
      () => measureLocks(manager, { registry: new Registry(), kinds: kinds as never }),
      { code: 'ERR_INVALID_ARG_TYPE', message: /^kinds must be/ },
    );
  }
});

test('a quorum is connected once all of its servers are', async () => {
  const servers = await RedisServer.startSeveral(3);
  const [first] = servers;
  try {
    await first?.kill();
    const manager = await connect({ quorum: servers.map(({ url }) => url) });
    const registry = new Registry();
    measureLocks(manager, { registry });
    const connected = () => seriesOf(registry, 'holdfast_connected{manager="default"}');
    assert.equal(await connected(), 0);
    await first?.restart();
    await until(async () => (await connected()) === 1, 'the third server');
  } finally {
    await Promise.all(servers.map((each) => each.stop()));
  }
});

test('warnings from before the measurement count, and end with their cause', async () => {
  const own = await RedisServer.start({
    args: ['--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lru'],
  });
  try {
    const manager = await connect(own.url);
    await new Promise<unknown>((warned) => manager.once('warning', warned));
    const registry = new Registry();
    measureLocks(manager, { registry });
    const value = (code: string) =>
      seriesOf(registry, `holdfast_warnings{manager="default",code="${code}"}`);
    assert.equal(await value('WARN_LOCK_EVICTION'), 1);
    assert.equal(await value('WARN_LOCK_POLLING'), 0);
    assert.deepEqual(manager.stats().servers[0]?.risks, ['WARN_LOCK_EVICTION']);
    const connectedAnew = async () => {
      const again = new Promise<void>((connected) => manager.once('reconnect', connected));
      // A connection with RESP3 counts as one for messages.
      for (const type of ['normal', 'pubsub']) {
        await own.admin.call('CLIENT', 'KILL', 'TYPE', type, 'SKIPME', 'yes');
      }
      await again;
    };
    manager.on('disconnect', () => {});
    await own.admin.call('CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
    await connectedAnew();
    assert.equal(await value('WARN_LOCK_EVICTION'), 0);
    await own.admin.call('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
    await connectedAnew();
    assert.equal(await value('WARN_LOCK_EVICTION'), 1);
  } finally {
    await own.stop();
  }
});
