// How soon a holder knows that the server has lost its lock, and a waiter that other code has freed its own: where the server
// tells of changed keys, and where it must not. And what that costs.

import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { Admin } from '../admin.mjs';
import { NAMES } from '../names.mjs';
import { percentile } from '../samples.mjs';
import { startOwnServer, startProxy } from '../server.mjs';
import { figure, markdown } from '../table.mjs';
import { plainLosses } from './plain.mjs';

const TTL_MS = 10_000;
/** Longer than a lock must be held to be tracked. */
const LONG_MS = 1_500;
const BATCH = 50;
/** The number of servers that lose one lock each. */
const PLACES = 8;
/** The proxy delays data by so much in each direction. */
const DELAY_MS = 0.5;
/** The number of losses of each kind: without messages each takes seconds. */
const LOSSES = { told: 1_000, 'not told': 50, delayed: 200 };
const WAITS = 50;
const HOLDS = 100;
const COUNTS = [10_000, 100_000];
/** Two owners at a time for longer than this count as an overlap. */
const OVERLAP_MS = 5;

const ABOUT = `Managers whose user may track keys, and others whose user may not, on one server; \`delayed\` are told through a
proxy that takes ${DELAY_MS} ms each way. Times in ms, p50 / p99. ${BATCH} locks are lost at once by FLUSHALL and by eviction, one by one
by the rest where their holders are told. The next owners ask at once after the cause, in the same process; an overlap is longer
than ${OVERLAP_MS} ms.`;

const QUESTION = 'How soon is a loss known?';

export const TOLD = { id: 'told', question: QUESTION, about: ABOUT, run };

/**
 * The causes of a loss. `end` ends the holds of some names. `held` and `next` are the options of these holds and of their next
 * owners. `apart`: one name can be lost without the others. `timed`: the loss happens at `end`, so the time is counted from there.
 */
const CAUSES = {
  DEL: { apart: true, timed: true, end: (redis, names) => redis.del(...names.map(keyOf)) },
  'steal by the next owner': {
    apart: true,
    timed: true,
    end: async () => {},
    next: { steal: true },
  },
  FLUSHALL: { apart: false, timed: true, end: (redis) => redis.flushall() },
  eviction: { apart: false, timed: true, end: evictAll },
  'a lease that is not renewed': {
    apart: false,
    timed: false,
    end: async () => {},
    held: { renew: false, ttl: 2 * LONG_MS },
  },
};

async function run({ fail }) {
  const server = await startOwnServer();
  const proxy = await startProxy(server.url, DELAY_MS);
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
    for (const [kind, url] of Object.entries({
      told: server.url,
      'not told': untold,
      delayed: proxy.url,
    })) {
      process.stderr.write(`told: ${kind}\n`);
      const measured = await losses(kind, url, redis);
      if (kind !== 'delayed') measured.push(...(await costs(url, redis, admin)));
      rows.push(...measured.map((cells) => [kind, ...cells]));
    }
  } catch (error) {
    fail('holdfast', 'misbehaved', error.stack);
  } finally {
    redis.disconnect();
    admin.close();
    proxy.stop();
    await server.stop();
  }
  const lines = rows.map(([kind, what, value]) => `${kind.padEnd(10)}${what.padEnd(72)}${value}`);
  return { lines: ['TOLD', ...lines], table: markdown(['', '', ''], rows), charts: [] };
}

async function losses(kind, url, redis) {
  const [locks, others] = await Promise.all([open(url), open(url)]);
  const rows = [];
  try {
    if (kind !== 'not told') {
      const bare = await plainLosses(url, redis, LOSSES[kind], keyOf(`${NAMES}plain`));
      rows.push(['DEL to the answer that a bare connection gets when it is told', times(bare)]);
    }
    for (const [name, cause] of Object.entries(CAUSES)) {
      const oneByOne = cause.apart && kind !== 'not told';
      const loseAll = async (next) => {
        const lost = [];
        while (lost.length < LOSSES[kind]) {
          lost.push(...(await lose(locks, next, redis, cause, oneByOne)));
        }
        return lost;
      };
      const toAbort = (lost) => times(lost.map(({ told }) => told));
      if (cause.timed && cause.next === undefined) {
        rows.push([`${name} to the abort of the signal`, toAbort(await loseAll(undefined))]);
      }
      const lost = await loseAll(others);
      if (cause.timed) {
        rows.push([`${name} to the abort, while the next owner asks`, toAbort(lost)]);
      }
      const overlaps = lost.filter(({ told, next }) => told - next > OVERLAP_MS).length;
      rows.push([`${name}: overlaps with the next owner, of ${lost.length}`, `${overlaps}`]);
    }
    if (kind !== 'not told') {
      const flushed = await flushEach(kind === 'delayed' ? DELAY_MS : 0, LOSSES.delayed);
      rows.push(['FLUSHALL of one lock to the abort of the signal', times(flushed)]);
    }
    rows.push(['DEL by other code to the next owner', times(await waitForOtherCode(locks, redis))]);
  } finally {
    await Promise.all([locks.close(), others.close()]);
  }
  return rows;
}

async function costs(url, redis, admin) {
  const rows = [];
  const locks = await open(url);
  for (const ms of [10, LONG_MS]) {
    rows.push([`commands per hold of ${ms} ms`, figure(await commands(locks, admin, ms), 2)]);
  }
  await locks.close();
  for (const count of COUNTS) {
    const of = `of ${figure(count)} held locks`;
    rows.push([`server CPU per renewal ${of}, µs`, figure(await costOf(url, count, admin), 2)]);
    const stall = await stallOf(url, count, redis);
    rows.push([`longest delay of the event loop at FLUSHALL ${of}, ms`, figure(stall)]);
  }
  return rows;
}

async function open(url) {
  const { connect } = await import('../../dist/index.mjs');
  return connect(url, { ttl: TTL_MS, wait: 60_000 });
}

/** One lock each is lost by FLUSHALL, on servers of their own: the ms until its holder is told. */
async function flushEach(delayMs, count) {
  const places = await Promise.all(
    Array.from({ length: PLACES }, async () => {
      const server = await startOwnServer();
      const proxy = delayMs > 0 ? await startProxy(server.url, delayMs) : undefined;
      return {
        server,
        proxy,
        locks: await open((proxy ?? server).url),
        redis: new Redis(server.url),
      };
    }),
  );
  const told = [];
  while (told.length < count) {
    const held = await Promise.all(places.map(({ locks }) => locks.acquire(`${NAMES}told`)));
    await sleep(LONG_MS);
    for (const [at, { redis }] of places.entries()) {
      const [lost] = await loseSome([''], [held[at]], undefined, redis, CAUSES.FLUSHALL);
      told.push(lost.told);
    }
  }
  for (const { server, proxy, locks, redis } of places) {
    await locks.close();
    redis.disconnect();
    proxy?.stop();
    await server.stop();
  }
  return told;
}

/** When the signal of a lock is aborted. */
function abortOf({ signal }) {
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve(performance.now()), { once: true });
  });
}

/** Evicts all keys: no memory is allowed until none is left. */
async function evictAll(redis) {
  const set = (setting, value) => ['config', 'SET', setting, value];
  let left;
  do {
    const replies = await redis
      .pipeline([
        set('maxmemory-policy', 'allkeys-random'),
        set('maxmemory', '1'),
        ['dbsize'],
        set('maxmemory', '0'),
        set('maxmemory-policy', 'noeviction'),
      ])
      .exec();
    left = replies[2][1];
  } while (left > 0);
}

/** A batch of locks is lost, at once or one by one: the ms until each holder is told, and until the next owner of `others` has it. */
async function lose(locks, others, redis, cause, oneByOne) {
  const names = namesOf(BATCH);
  const held = await Promise.all(names.map((name) => locks.acquire(name, cause.held)));
  await sleep(LONG_MS);
  if (!oneByOne) return loseSome(names, held, others, redis, cause);
  const lost = [];
  for (const [at, name] of names.entries()) {
    lost.push(...(await loseSome([name], [held[at]], others, redis, cause)));
  }
  return lost;
}

async function loseSome(names, held, others, redis, { end, next: options }) {
  const began = performance.now();
  const passed = () => performance.now() - began;
  const told = held.map(async (lock) => (await abortOf(lock)) - began);
  await end(redis, names);
  const next = (others === undefined ? [] : names).map(async (name) => {
    const lock = await others.acquire(name, options);
    const at = passed();
    return { at, lock };
  });
  const owners = await Promise.all(next);
  const lost = (await Promise.all(told)).map((ms, at) => ({ told: ms, next: owners[at]?.at }));
  await Promise.all(owners.map(({ lock }) => lock.release()));
  return lost;
}

/** The ms from the DEL of other code's lock until its waiter has it. */
async function waitForOtherCode(locks, redis) {
  const waits = [];
  for (const name of namesOf(WAITS)) {
    await redis.set(keyOf(name), 'other code', 'PX', 600_000);
    const waiting = locks.acquire(name);
    await sleep(200 + Math.random() * 100);
    const began = performance.now();
    await redis.del(keyOf(name));
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
async function costOf(url, count, admin) {
  const locks = await open(url);
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
async function stallOf(url, count, redis) {
  const locks = await open(url);
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

function keyOf(name) {
  return `lock:${name}`;
}

function times(ms) {
  return `${figure(percentile(ms, 0.5), 1)} / ${figure(percentile(ms, 0.99), 1)}`;
}
