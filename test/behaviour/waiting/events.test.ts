/** The events, counters and diagnostics channels of a manager. */

import assert from 'node:assert/strict';
import {
  subscribe,
  type TracingChannelSubscribers,
  tracingChannel,
  unsubscribe,
} from 'node:diagnostics_channel';
import { afterEach, beforeEach, test } from 'node:test';
import { cutOff, quiet, untilQueued } from '../../support/crew.js';
import { connect, holdfast, type LockManager, openOperations } from '../../support/holdfast.js';
import { freePort, RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

let server: RedisServer;
let here: LockManager;
let there: LockManager;

beforeEach(async () => {
  server = await RedisServer.start();
  here = await connect(server.url, { clientName: 'here' });
  there = await connect(server.url, { clientName: 'there' });
});

afterEach(async () => {
  await Promise.all([here.close(), there.close()]);
  assert.equal(openOperations(), 0);
  await quiet(server);
  await server.stop();
});

test('disconnect and reconnect, each time that a connection breaks', async () => {
  const told: unknown[] = [];
  here.on('disconnect', (error) => told.push(error));
  here.on('reconnect', () => told.push('reconnect'));
  there.on('disconnect', () => told.push('the other one'));
  const lock = await here.acquire('x', { ttl: 60_000 });
  for (let round = 1; round <= 3; round++) {
    await cutOff(server, 'here');
    await until(() => told.length === 2 * round, `round ${round}`);
  }
  for (const [i, what] of told.entries()) {
    if (i % 2 === 1) assert.equal(what, 'reconnect');
    else {
      assert.ok(what instanceof holdfast.LockConnectionError);
      assert.match(what.message, new RegExp(`127\\.0\\.0\\.1:${server.port}/0 is gone`));
    }
  }
  assert.equal(lock.held, true, 'what is held stays held');
  assert.equal(await lock.release(), true);
});

test('a server that stays away: one disconnect, and one reconnect when it is back', async () => {
  const told: string[] = [];
  here.on('disconnect', () => told.push('disconnect'));
  here.on('reconnect', () => told.push('reconnect'));
  await server.kill();
  await until(() => told.length === 1, 'the disconnect');
  await server.start();
  await until(() => told.length === 2, 'the reconnect');
  assert.deepEqual(told, ['disconnect', 'reconnect']);
});

test('stats counts what was done, and tells what is under way', async () => {
  const none = here.stats();
  const { handOffs, servers, requests: _, ...counts } = none;
  assert.deepEqual(counts, {
    held: 0,
    leads: [],
    idle: 0,
    waiting: 0,
    acquired: 0,
    handedOff: 0,
    timedOut: 0,
    lost: 0,
    abandoned: 0,
    oldestHold: 0,
    renewals: 0,
  });
  const {
    server: name,
    protocol,
    compareAndDelete: _native,
    refused,
    ...allowed
  } = servers[0] ?? {};
  assert.deepEqual([name, protocol], [`127.0.0.1:${server.port}`, 3]);
  assert.equal(refused, null);
  assert.deepEqual(allowed, {
    clock: true,
    pubsub: true,
    plainCommands: true,
    tracking: true,
    risks: [],
  });
  assert.ok(handOffs.every(({ count }) => count === 0));
  assert.deepEqual(handOffs.at(-1)?.upTo, Number.POSITIVE_INFINITY);

  const lock = await here.acquire('x', { ttl: 3_000 });
  await until(() => here.stats().renewals >= 2, 'renewals');
  await assert.rejects(here.acquire('x', { wait: 20 }), { code: 'ERR_LOCK_TIMEOUT' });
  const first = await there.acquire('y', { ttl: 60_000 });
  const second = here.acquire('y', { ttl: 60_000, label: 'here' });
  await untilQueued(server, 'y', ['here']);
  const under = here.stats();
  assert.deepEqual([under.held, under.waiting, under.acquired, under.timedOut], [1, 1, 1, 1]);
  await first.release();
  const handed = await second;
  const after = here.stats();
  assert.deepEqual([after.held, after.waiting, after.acquired, after.lost], [2, 0, 2, 0]);
  const sum = after.handOffs.reduce((total, { count }) => total + count, 0);
  assert.equal(sum, 1, 'one hand-off from elsewhere');
  await server.admin.del('lock:x');
  await until(() => here.stats().lost === 1, 'the loss');
  assert.equal(await lock.release(), false);
  assert.equal(await handed.release(), true);
  const end = here.stats();
  assert.deepEqual([end.held, end.waiting, end.acquired, end.lost], [0, 0, 2, 1]);
  assert.ok(end.requests >= 6, `${end.requests} requests`);
});

test('tracing channels follow acquire, extend and release to their ends', async () => {
  const seen: string[] = [];
  const channels = ['acquire', 'extend', 'release'] as const;
  const subscribers = channels.map((name) => {
    const tell = (what: string) => (message: object) => {
      const { lock, server: where } = message as { lock: string; server: string };
      assert.match(where, /^redis:\/\/127\.0\.0\.1:\d+\/0$/);
      const { error } = message as { error?: { code: string } };
      seen.push(`${name} ${lock} ${what}${error === undefined ? '' : ` ${error.code}`}`);
    };
    const handlers = {
      start: tell('start'),
      end: () => {},
      asyncStart: () => {},
      asyncEnd: tell('asyncEnd'),
      error: tell('error'),
    } as TracingChannelSubscribers<object>;
    const channel = tracingChannel(`holdfast:${name}`);
    channel.subscribe(handlers);
    return () => channel.unsubscribe(handlers);
  });
  try {
    const lock = await here.acquire('x', { ttl: 60_000 });
    assert.equal(await there.tryAcquire('x'), null);
    await assert.rejects(there.acquire('x', { wait: 20 }), { code: 'ERR_LOCK_TIMEOUT' });
    await lock.extend();
    await lock.release();
    await assert.rejects(lock.extend(), { code: 'ERR_LOCK_LOST' });
  } finally {
    for (const end of subscribers) end();
  }
  await (await here.acquire('unseen')).release();
  assert.deepEqual(seen, [
    'acquire x start',
    'acquire x asyncEnd',
    'acquire x start',
    'acquire x asyncEnd',
    'acquire x start',
    'acquire x error ERR_LOCK_TIMEOUT',
    'acquire x asyncEnd ERR_LOCK_TIMEOUT',
    'extend x start',
    'extend x asyncEnd',
    'release x start',
    'release x asyncEnd',
    'extend x start',
    'extend x error ERR_LOCK_LOST',
    'extend x asyncEnd ERR_LOCK_LOST',
  ]);
});

test('a slot that has run already is an acquire that found its mark', async () => {
  const seen: unknown[] = [];
  const channel = tracingChannel('holdfast:acquire').asyncEnd;
  const tell = (message: unknown) => {
    const { lock, outcome, result } = message as { lock: string; outcome: string; result: unknown };
    seen.push([lock.split('@')[0], outcome, result === null]);
  };
  const run = () => here.runOnce('job', { slot: 'now', keepResult: true }, () => 42);
  assert.equal((await run()).ran, true);
  channel.subscribe(tell);
  try {
    assert.deepEqual(await run(), { ran: false, slot: 'now', reason: 'done', value: 42 });
  } finally {
    channel.unsubscribe(tell);
  }
  assert.deepEqual(seen, [
    ['job', 'acquired', false],
    ['once:job', 'taken', true],
  ]);
  await server.admin.flushall();
});

test('holdfast:lost tells of locks that were lost, and of no others', async () => {
  const messages: unknown[] = [];
  const tell = (message: unknown) => messages.push(message);
  subscribe('holdfast:lost', tell);
  try {
    const kept = await here.acquire('kept');
    await kept.release();
    const lock = await here.acquire('x', { ttl: 300 });
    const lost = new Promise((resolve) => here.once('lost', resolve));
    await server.admin.del('lock:x');
    assert.equal(await lost, lock);
    assert.equal(lock.signal.aborted, true);
    assert.equal(messages.length, 1);
    const [{ lock: name, server: where, error, holder }] = messages as [holdfast.LockLostMessage];
    assert.deepEqual([name, where], ['x', `redis://127.0.0.1:${server.port}/0`]);
    assert.equal(holder, lock);
    assert.ok(error instanceof holdfast.LockLostError);
    assert.equal(error.reason, 'expired');
  } finally {
    unsubscribe('holdfast:lost', tell);
  }
});

test('a connect that fails tells no events', async () => {
  await assert.rejects(connect(`redis://127.0.0.1:${await freePort()}`), {
    code: 'ERR_LOCK_CONNECTION',
  });
});
