/** Stores that fail between the steps of a request, and attempts that overtake each other. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, type TestContext, test } from 'node:test';
import type { LockWarning } from 'holdfast';
import {
  type IdempotencyOptions,
  type IdempotencyStore,
  memoryStore,
  redisStore,
} from 'holdfast/idempotency';
import { measureLocks } from 'holdfast/prometheus';
import { Redis } from 'ioredis';
import { Registry } from 'prom-client';
import { connect, type LockManager } from '../../support/holdfast.js';
import { FaultProxy } from '../../support/proxy.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { failingStore, gate, type Handler, listener, serve } from './plain.js';
import { post } from './services.js';

const UNKNOWN = 'The outcome of the request for this Idempotency-Key is unknown';

let locks: LockManager;

before(async () => {
  locks = await connect('memory:');
});

after(() => locks.close());

const isFree = (manager = locks) =>
  until(async () => (await manager.query()).held.length === 0, 'the lock to be free');

/** A service, and a function that sends it one request again and again; 409 is not waited for. */
async function start(
  t: TestContext,
  store: IdempotencyStore,
  handler: Handler,
  options: Partial<IdempotencyOptions> = {},
) {
  const port = await serve(t, listener(handler, { locks, store, ...options }));
  const key = randomUUID();
  return async () => {
    const { status, text } = await post(`http://127.0.0.1:${port}/`, key, { body: {} });
    await isFree(options.locks);
    return `${status} ${status === 409 ? JSON.parse(text).title : text}`;
  };
}

for (const [title, make, answers, runs] of [
  [
    'the first reading fails',
    () => failingStore('read', 1),
    ['500 Error: the store failed', '201 paid'],
    1,
  ],
  [
    'the begin is not written',
    () => failingStore('replace', 1, { more: 1 }),
    ['500 Error: the store failed', '201 paid'],
    1,
  ],
  [
    'the answer to the begin is lost',
    () => failingStore('replace', 1, { lost: 1 }),
    ['201 paid', '201 paid'],
    1,
  ],
  [
    'the answer to the begin is lost twice',
    () => failingStore('replace', 1, { lost: 2, more: 1 }),
    ['500 Error: the store failed', '201 paid'],
    1,
  ],
  [
    'the answer to the begin is lost, and then the store fails',
    () => failingStore('replace', 1, { lost: 1, more: 3 }),
    ['500 Error: the store failed', `409 ${UNKNOWN}`],
    0,
  ],
  [
    'the end is written at the second try',
    () => failingStore('replace', 2),
    ['201 paid', '201 paid'],
    1,
  ],
  [
    'the answer to the end is lost',
    () => failingStore('replace', 2, { lost: 1 }),
    ['201 paid', '201 paid'],
    1,
  ],
] as const) {
  test(`${title}: no lock is held, and a repeat is answered`, { timeout: 30_000 }, async (t) => {
    let count = 0;
    const send = await start(t, make(), (_request, response) => {
      count += 1;
      response.writeHead(201).end('paid');
    });
    for (const answer of answers) assert.equal(await send(), answer);
    assert.equal(count, runs);
  });
}

/** A store, the same for a server, and the id of the record that the server has read last. */
function seenStore() {
  const store = memoryStore();
  let id = '';
  const seen: IdempotencyStore = {
    ...store,
    read(one) {
      id = one;
      return store.read(one);
    },
  };
  return { store, seen, lastId: () => id };
}

/** A store in Redis, whose commands are on their way from a call of `replace` on, until `deliver` has brought them. */
async function lateStore(t: TestContext, call: number) {
  const redis = await RedisServer.start();
  t.after(() => redis.stop());
  const proxy = await FaultProxy.start(redis.port);
  t.after(() => proxy.stop());
  const client = new Redis(proxy.url, { commandTimeout: 200 });
  t.after(() => client.disconnect());
  const late = redisStore(client);
  let calls = 0;
  const store: IdempotencyStore = {
    ...late,
    replace(...args) {
      calls += 1;
      if (calls === call) proxy.hold();
      return late.replace(...args);
    },
  };
  const deliver = async () => {
    assert.ok(proxy.deliver() > 0);
    // The commands of a connection are executed in order.
    await client.ping();
  };
  return { store, deliver };
}

/** A manager of its own, whose warnings are collected: a manager warns once. */
async function warned(t: TestContext) {
  const own = await connect('memory:');
  t.after(() => own.close());
  const warnings: LockWarning[] = [];
  own.on('warning', (warning) => warnings.push(warning));
  return { own, warnings };
}

test('the end is not written: the client has its answer, one warning tells, and a repeat is answered 409', async (t) => {
  const { own, warnings } = await warned(t);
  const registry = new Registry();
  measureLocks(own, { registry });
  // The ends of two requests, each tried twice; the second has its begin in between.
  for (const first of [true, false]) {
    const store = failingStore('replace', 2, { more: 1 });
    const paid: Handler = (_request, response) => response.writeHead(201).end('paid');
    const send = await start(t, store, paid, { locks: own });
    assert.equal(await send(), '201 paid');
    assert.equal(await send(), `409 ${UNKNOWN}`);
    assert.equal(warnings.length, 1, `first: ${first}`);
  }
  const [warning] = warnings;
  assert.equal(warning?.code, 'WARN_IDEMPOTENCY_STORE');
  assert.match(
    String(warning?.message),
    /^the answer to ".+" could not be kept: Error: the store failed;/,
  );
  assert.match(
    await registry.metrics(),
    /holdfast_warnings\{.*code="WARN_IDEMPOTENCY_STORE".*\} 1/,
  );
});

test('a record that another attempt has replaced is not overwritten, and a warning tells', async (t) => {
  const { own, warnings } = await warned(t);
  const { store, seen, lastId } = seenStore();
  const late: Handler = async (_request, response) => {
    const text = (await store.read(lastId())) ?? assert.fail();
    const other = JSON.stringify({ ...JSON.parse(text), attempt: 'another' });
    assert.ok(await store.replace(lastId(), text, other, 1_000));
    response.end('late');
  };
  const send = await start(t, seen, late, { locks: own });
  assert.equal(await send(), '200 late');
  await until(() => warnings.length === 1, 'the warning');
  assert.match(String(warnings[0]?.message), /its record is gone, or is that of another attempt/);
  assert.equal(await send(), `409 ${UNKNOWN}`);
});

test('effects() whose answer was lost fails, and the request runs again after its failure', async (t) => {
  let count = 0;
  const store = failingStore('replace', 2, { lost: 2, more: 1 });
  const send = await start(
    t,
    store,
    async ({ idempotency }, response) => {
      count += 1;
      const failed = await idempotency?.effects().catch(() => true);
      response.writeHead(failed === true ? 503 : 201).end(`${count}`);
    },
    { marksEffects: true },
  );
  assert.deepEqual([await send(), await send(), await send()], ['503 1', '201 2', '201 2']);
});

for (const [title, calls, options, runs] of [
  ['the begin', 1, {}, 1],
  ['the mark of the effects', 2, { marksEffects: true }, 2],
] as const) {
  test(`${title} times out, and comes late by ioredis: the request may be sent again`, {
    timeout: 30_000,
  }, async (t) => {
    const { store, deliver } = await lateStore(t, calls);
    let count = 0;
    const send = await start(
      t,
      store,
      async ({ idempotency }, response) => {
        count += 1;
        const failed = await idempotency?.effects().catch(() => true);
        response.writeHead(failed === true ? 500 : 201).end('paid');
      },
      options,
    );
    assert.match(await send(), /^500 /);
    await deliver();
    assert.deepEqual([await send(), await send()], ['201 paid', '201 paid']);
    assert.equal(count, runs);
  });
}

test('effects() after the answer is stored does not change it', { timeout: 30_000 }, async (t) => {
  let late: Promise<void> | undefined;
  const send = await start(
    t,
    memoryStore(),
    ({ idempotency }, response) => {
      response.end('accepted');
      late = isFree().then(() => idempotency?.effects());
    },
    { marksEffects: true, recover: true },
  );
  assert.equal(await send(), '200 accepted');
  await late;
  const before = late;
  assert.equal(await send(), '200 accepted');
  assert.equal(late, before);
});

test('what an attempt may have done is told to all later ones, also after one that failed early', async (t) => {
  const told: (boolean | undefined)[] = [];
  const send = await start(
    t,
    memoryStore(),
    async ({ idempotency }, response) => {
      told.push(idempotency?.interrupted);
      if (told.length === 1) {
        await idempotency?.effects();
        response.destroy();
      } else if (told.length === 2) response.writeHead(503).end();
      else if (told.length === 3) response.destroy();
      else response.end('recovered');
    },
    { marksEffects: true, recover: true, grace: 0 },
  );
  await assert.rejects(send());
  await isFree();
  assert.equal(await send(), '503 ');
  await assert.rejects(send());
  await isFree();
  assert.equal(await send(), '200 recovered');
  assert.deepEqual(told, [false, true, true, true]);
});

test('an attempt that has lost its lock marks its effects while another begins: the other is told', async (t) => {
  const [entered, resumed, marked, ended] = [gate(), gate(), gate(), gate()];
  const [hasRead, goOn] = [gate(), gate()];
  const store = memoryStore();
  let reads = 0;
  const steps: IdempotencyStore = {
    ...store,
    async read(id) {
      const found = await store.read(id);
      reads += 1;
      // The first attempt reads once; the second ahead of its lock, and under it.
      if (reads === 3) {
        hasRead.open();
        await goOn.opened;
      }
      return found;
    },
  };
  const told: (boolean | undefined)[] = [];
  const send = await start(
    t,
    steps,
    async ({ idempotency }, response) => {
      told.push(idempotency?.interrupted);
      if (told.length === 1) {
        entered.open();
        await resumed.opened;
        await idempotency?.effects();
        marked.open();
        await ended.opened;
      }
      response.end('done');
    },
    { marksEffects: true, recover: true },
  );
  const one = send();
  await entered.opened;
  // As when its lease ends while its process is stopped.
  await locks.forceRelease((await locks.query()).held[0]?.name ?? '');
  const two = send();
  await hasRead.opened;
  resumed.open();
  await marked.opened;
  goOn.open();
  assert.equal(await two, '200 done');
  ended.open();
  assert.equal(await one, '200 done');
  assert.deepEqual(told, [false, true]);
});

test('an attempt does not replace that of a later lock', async (t) => {
  const { store, seen, lastId } = seenStore();
  const options = { marksEffects: true, grace: 0 };
  const send = await start(t, seen, (_request, response) => response.destroy(), options);
  await assert.rejects(send());
  await isFree();
  const text = (await store.read(lastId())) ?? assert.fail();
  const later = { ...JSON.parse(text), fence: Number.MAX_SAFE_INTEGER };
  assert.ok(await store.replace(lastId(), text, JSON.stringify(later), 1_000));
  assert.match(await send(), /^409 A request is outstanding/);
});
