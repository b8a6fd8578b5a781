// How soon a holder knows that the server has lost its lock, and a waiter that other code has freed its own: where the server
// tells of changed keys, and where it must not. And what that costs.

import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { Admin } from '../admin.mjs';
import { NAMES } from '../names.mjs';
import { percentile } from '../samples.mjs';
import { startOwnServer } from '../server.mjs';
import { figure, markdown } from '../table.mjs';

const TTL_MS = 10_000;
/** Longer than a lock must be held to be tracked. */
const LONG_MS = 1_500;
const BATCH = 50;
/** The number of losses of each kind: with messages, and without them, where each takes seconds. */
const LOSSES = { told: 1_000, 'not told': 50 };
const WAITS = 50;
const HOLDS = 100;
const COUNTS = [10_000, 100_000];
/** Two owners at a time for longer than this count as an overlap. */
const OVERLAP_MS = 5;

const ABOUT = `Managers whose user may track keys, and others whose user may not, on one server. Times in ms, p50 / p99. The next owner asks at once
after the cause; an overlap is longer than ${OVERLAP_MS} ms.`;

const QUESTION = 'How soon is a loss known?';

export const TOLD = { id: 'told', question: QUESTION, about: ABOUT, run };

const CAUSES = {
  DEL: (redis, names) => redis.del(...names.map((name) => `lock:${name}`)),
  FLUSHALL: (redis) => redis.flushall(),
};

async function run({ fail }) {
  const server = await startOwnServer();
  const redis = new Redis(server.url);
  const admin = await Admin.connect(server.url);
  await redis.call(
    'ACL',
    'SETUSER',
    'untold',
    'on',
    '>pw',
    '~*',
    '&*',
    '+@all',
    '-client|tracking',
  );
  const untold = server.url.replace('//', '//untold:pw@');
  const rows = [];
  try {
    for (const [kind, url] of Object.entries({ told: server.url, 'not told': untold })) {
      process.stderr.write(`told: ${kind}\n`);
      rows.push(...(await measure(kind, url, redis, admin)).map((cells) => [kind, ...cells]));
    }
  } catch (error) {
    fail('holdfast', 'misbehaved', error.stack);
  } finally {
    redis.disconnect();
    admin.close();
    await server.stop();
  }
  const lines = rows.map(([kind, what, value]) => `${kind.padEnd(10)}${what.padEnd(66)}${value}`);
  return { lines: ['TOLD', ...lines], table: markdown(['', '', ''], rows), charts: [] };
}

async function measure(kind, url, redis, admin) {
  const { connect } = await import('../../dist/index.mjs');
  const open = () => connect(url, { ttl: TTL_MS, wait: 60_000 });
  const [locks, others] = await Promise.all([open(), open()]);
  const rows = [];
  try {
    for (const [cause, happen] of Object.entries(CAUSES)) {
      const losses = [];
      while (losses.length < LOSSES[kind]) {
        const cut = (names) => happen(redis, names);
        losses.push(...(await lose(locks, others, cut, kind === 'told' && cause === 'DEL')));
      }
      const overlaps = losses.map(({ told, next }) => told - next);
      const count = overlaps.filter((ms) => ms > OVERLAP_MS).length;
      rows.push([`${cause} to the abort of the signal`, times(losses.map(({ told }) => told))]);
      rows.push([`overlaps with the next owner, of ${losses.length}`, `${count}`]);
    }
    rows.push(['DEL by other code to the next owner', times(await waitForOtherCode(locks, redis))]);
    for (const ms of [10, LONG_MS]) {
      rows.push([`commands per hold of ${ms} ms`, figure(await commands(locks, admin, ms), 2)]);
    }
    for (const count of COUNTS) {
      const [of, cost] = [`of ${figure(count)} held locks`, await costOf(open, count, admin)];
      rows.push([`server CPU per renewal ${of}, µs`, figure(cost, 2)]);
      rows.push([
        `longest delay of the event loop at FLUSHALL ${of}, ms`,
        figure(await stallOf(open, count, redis)),
      ]);
    }
  } finally {
    await Promise.all([locks.close(), others.close()]);
  }
  return rows;
}

/** A batch of locks is lost, at once or one by one: the ms until each holder is told, and until the next owner has it. */
async function lose(locks, others, happen, oneByOne) {
  const names = namesOf(BATCH);
  const held = await Promise.all(names.map((name) => locks.acquire(name)));
  await sleep(LONG_MS);
  if (!oneByOne) return loseSome(names, held, others, happen);
  const losses = [];
  for (const [at, name] of names.entries()) {
    losses.push(...(await loseSome([name], [held[at]], others, happen)));
  }
  return losses;
}

async function loseSome(names, held, others, happen) {
  const began = performance.now();
  const passed = () => performance.now() - began;
  const told = held.map(
    ({ signal }) =>
      new Promise((resolve) => signal.addEventListener('abort', () => resolve(passed()))),
  );
  const next = happen(names).then(() =>
    names.map(async (name) => {
      const lock = await others.acquire(name);
      const at = passed();
      return { at, lock };
    }),
  );
  const owners = await Promise.all(await next);
  const losses = (await Promise.all(told)).map((ms, at) => ({ told: ms, next: owners[at].at }));
  await Promise.all(owners.map(({ lock }) => lock.release()));
  return losses;
}

/** The ms from the DEL of other code's lock until its waiter has it. */
async function waitForOtherCode(locks, redis) {
  const waits = [];
  for (const name of namesOf(WAITS)) {
    await redis.set(`lock:${name}`, 'other code', 'PX', 600_000);
    const waiting = locks.acquire(name);
    await sleep(200 + Math.random() * 100);
    const began = performance.now();
    await redis.del(`lock:${name}`);
    const lock = await waiting;
    waits.push(performance.now() - began);
    await lock.release();
  }
  return waits;
}

/** How many commands the server runs for a lock that is held for so long. */
async function commands(locks, admin, ms) {
  const before = await admin.work();
  await Promise.all(namesOf(HOLDS).map((name) => locks.request(name, {}, () => sleep(ms))));
  const after = await admin.work();
  return (after.commands - before.commands) / HOLDS;
}

/** The server CPU of a renewal while `count` locks are held, in µs. */
async function costOf(open, count, admin) {
  const locks = await open();
  await holdAll(locks, count, TTL_MS);
  await sleep(2 * LONG_MS);
  const [before, renewals] = [await admin.work(), locks.stats().renewals];
  await sleep(2 * TTL_MS);
  const after = await admin.work();
  const cost = (after.cpu - before.cpu) / (locks.stats().renewals - renewals);
  await locks.close();
  return cost;
}

/** For how long the event loop is busy when `count` held locks are lost at once, between their renewals. */
async function stallOf(open, count, redis) {
  const locks = await open();
  await holdAll(locks, count, 100 * TTL_MS);
  await sleep(2 * LONG_MS);
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  await redis.flushall();
  await sleep(300);
  delay.disable();
  await locks.close();
  return delay.max / 1e6;
}

async function holdAll(locks, count, ttl) {
  const names = namesOf(count);
  for (let from = 0; from < count; from += 1_000) {
    await Promise.all(names.slice(from, from + 1_000).map((name) => locks.acquire(name, { ttl })));
  }
}

function namesOf(count) {
  return Array.from({ length: count }, (_, number) => `${NAMES}told:${number}`);
}

function times(ms) {
  return `${figure(percentile(ms, 0.5), 1)} / ${figure(percentile(ms, 0.99), 1)}`;
}
