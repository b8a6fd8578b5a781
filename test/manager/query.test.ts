/** The answers of `query` about keys that holdfast has not written, or not as locks. */

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { connect, type LockManager } from '../support/holdfast.js';
import { enrol, leastRights } from '../support/least-rights.js';
import { FaultProxy } from '../support/proxy.js';
import { serverOfFile } from '../support/server-of-file.js';
import { until } from '../support/wait.js';

let locks: LockManager;

const server = serverOfFile({}, async () => {
  locks = await connect(server.url);
});

beforeEach(() => server.admin.flushall());

test('on memory: a query sees what its manager asked for before it', async () => {
  await using own = await connect('memory:');
  for (let round = 0; round < 20; round += 1) {
    const held = own.acquire(`a:${round}`);
    const pending = own.acquire(`a:${round}`);
    const seen = await own.query();
    assert.deepEqual([seen.held.length, seen.pending.length], [1, 1]);
    await (await held).release();
    await (await pending).release();
  }
});

test('a query sees what its manager asked for before it, though that is slow on its way', async (t) => {
  const proxy = await FaultProxy.start(server.port);
  t.after(() => proxy.stop());
  await using slow = await connect(proxy.url);
  const released = await slow.acquire('released');
  // Only the connection of the manager is slow, not that of its query.
  proxy.hold();
  const release = released.release();
  const first = slow.acquire('a');
  const second = slow.acquire('a');
  const share = slow.acquire('b', { mode: 'shared' });
  const both = slow.acquire(['c', 'd']);
  const asked = slow.query();
  const later = slow.acquire('later');
  // More than long enough for a query that waits for nothing.
  for (let i = 0; i < 20; i += 1) await locks.query();
  proxy.deliver();
  const seen = await asked;
  const names = seen.held.map(({ name }) => name).filter((name) => name !== 'later');
  assert.deepEqual(names, ['a', 'b', 'c', 'd']);
  assert.deepEqual(
    seen.pending.map(({ name }) => name),
    ['a'],
  );
  assert.equal(await release, true);
  await (await first).release();
  for (const each of [second, share, both, later]) await (await each).release();
});

test('a query does not wait for what waits itself, or cannot be sent', async (t) => {
  const proxy = await FaultProxy.start(server.port);
  t.after(() => proxy.stop());
  await using own = await connect(proxy.url);
  const lock = await locks.acquire('taken');
  const waiting = own.acquire('taken');
  assert.equal((await own.query()).pending.length, 1);
  assert.equal((await own.query()).pending.length, 1);
  proxy.refuse = true;
  proxy.cut();
  const never = own.acquire('never').catch(() => {});
  await assert.rejects(own.query(), { code: 'ERR_LOCK_CONNECTION' });
  await lock.release();
  proxy.refuse = false;
  await (await waiting).release();
  await never;
});

test('other code is told as the holder of the one lock that is asked for', async () => {
  await server.admin.set('lock:old', 'somebody+', 'PX', 60_000);
  await server.admin.set('lock:older', 'for ever');
  assert.deepEqual(
    await locks.query(),
    { held: [], pending: [] },
    'among all keys it may be anything',
  );
  const waiting = locks.acquire('old', { label: 'me' });
  await until(() => locks.stats().waiting === 1, 'the caller to wait');
  const { held, pending } = await locks.query({ name: 'old' });
  const [{ ttl, ...holder } = { ttl: null }] = held;
  assert.ok(ttl !== null && ttl > 50_000);
  const nobody = { clientId: '', owner: null, label: null, askedAt: null, fence: null };
  const one = { permits: 1, limit: null, result: false, idleFor: null };
  const hold = { state: 'foreign', mode: 'exclusive', ...one, ...nobody };
  assert.deepEqual(holder, { name: 'old', ...hold, token: 'somebody+' });
  assert.deepEqual(
    pending.map(({ label }) => label),
    ['me'],
  );
  assert.deepEqual((await locks.query({ name: 'older' })).held, [
    { name: 'older', ...hold, token: 'for ever', ttl: null },
  ]);
  await server.admin.del('lock:old');
  const lock = await waiting;
  assert.equal((await locks.query({ name: 'old' })).held[0]?.state, 'held');
  await lock.release();
});

test('of a long value of other code the beginning is told, and none that is no text', async () => {
  await server.admin.set('lock:long', `${'x'.repeat(511)}é${'y'.repeat(9_000)}`);
  assert.equal((await locks.query({ name: 'long' })).held[0]?.token, 'x'.repeat(511));
  await server.admin.set('lock:bytes', Buffer.from([0xff, 0xfe]));
  assert.deepEqual((await locks.query({ name: 'bytes' })).held, []);
  await server.admin.hset('lock:hash', 'field', 'value');
  assert.deepEqual((await locks.query({ name: 'hash' })).held, []);
  await server.admin.set('lock:leader:job', 'somebody');
  assert.equal(await locks.leader('job'), null, 'other code leads nothing');
});

test('a lock that is called like a side key is told', async () => {
  const names = ['fence', 'queue', 'shared', 'waiters', 'waiting'];
  for (const name of names) await locks.acquire(name);
  const { held } = await locks.query();
  assert.deepEqual(
    held.map(({ name }) => name),
    names,
  );
  await server.admin.flushall();
});

test('page by page: not everything at once', async () => {
  const names = Array.from({ length: 300 }, (_, i) => `many:${i}`);
  await Promise.all(names.map((name) => locks.acquire(name)));
  let pages = 0;
  for await (const { held } of locks.queryPages({ count: 50 })) {
    pages += 1;
    assert.ok(held.length < 300);
  }
  assert.ok(pages > 3, `${pages} pages`);
  await server.admin.flushall();
});

test('keys of other types, other keys and side keys are no locks', async () => {
  await server.admin.hset('lock:hash', 'field', 'value');
  await server.admin.set('other', 'value');
  const shared = await locks.acquire('{tag}:shared one', { mode: 'shared' });
  const lock = await locks.acquire('x');
  const waiting = locks.acquire('x');
  while ((await locks.query()).pending.length === 0);
  const { held, pending } = await locks.query();
  assert.deepEqual(
    held.map(({ name }) => name),
    ['x', '{tag}:shared one'],
  );
  assert.deepEqual(
    pending.map(({ name }) => name),
    ['x'],
  );
  await lock.release();
  await (await waiting).release();
  await shared.release();
  assert.deepEqual(await locks.query(), { held: [], pending: [] });
});

test('one lock is read by its key, and no other', async () => {
  const text = 'a*b';
  const held = [
    await locks.acquire(text),
    await locks.acquire(`${text}c`),
    await locks.acquire('ab'),
  ];
  await server.admin.call('CONFIG', 'RESETSTAT');
  const { held: found } = await locks.query({ name: text });
  assert.deepEqual(
    found.map(({ name }) => name),
    [text],
  );
  assert.doesNotMatch(String(await server.admin.info('commandstats')), /cmdstat_scan:/);
  assert.deepEqual(await locks.query({ name: 'free' }), { held: [], pending: [] });
  await using own = await connect('memory:');
  await own.acquire(text);
  await own.acquire(`${text}c`);
  assert.equal((await own.query({ name: text })).held.length, 1);
  await assert.rejects(
    locks.query({ name: 'a', startsWith: 'a' }),
    /"name" or "startsWith", not both/,
  );
  await Promise.all(held.map((lock) => lock.release()));
});

test('a waiter has waited since its call, by the clock of the server', async () => {
  await using others = await connect(server.url);
  const lock = await locks.acquire('x');
  const asked = performance.now();
  const waiting = others.acquire('x');
  await until(async () => (await locks.query()).pending.length === 1, 'a queue entry');
  const known = performance.now();
  await setTimeout(100);
  const [waiter] = (await locks.query({ name: 'x' })).pending;
  const now = performance.now();
  const waited = waiter?.waited ?? 0;
  assert.ok(waited >= 100 - 5 && waited <= now - asked + 5, `${waited}, ${known - asked}`);
  await lock.release();
  await (await waiting).release();
});

test('a holder tells when it asked for the lock, by its own clock', async () => {
  await using others = await connect(server.url);
  const before = Date.now();
  await setTimeout(200);
  const lock = await locks.acquire('x');
  const taken = Date.now();
  const waiting = others.acquire('x');
  await until(async () => (await locks.query()).pending.length === 1, 'a queue entry');
  const queued = Date.now();
  await setTimeout(100);
  const asked = async () => Number((await locks.query({ name: 'x' })).held[0]?.askedAt);
  // A busy machine may stop a manager between the two clocks that it reads as it starts: then its times are early.
  const early = 150;
  const first = await asked();
  const isRight = first >= before + 200 - early && first <= taken + 2;
  assert.ok(isRight, `${first - before}, ${taken - before}`);
  await lock.release();
  const next = await waiting;
  const second = await asked();
  assert.ok(second >= taken - early && second <= queued + 2, 'when it asked, not when it got it');
  await next.release();
  await server.admin.set('lock:x', 'hf1.c.1', 'PX', 60_000);
  assert.equal((await locks.query({ name: 'x' })).held[0]?.askedAt, null);
  await server.admin.del('lock:x');
});

test('the mark of a queue and the share of nobody are never shown', async () => {
  const lock = await locks.acquire('x');
  const waiting = locks.acquire('x', { mode: 'shared' });
  while ((await locks.query()).pending.length === 0);
  const { held } = await locks.query();
  assert.deepEqual(
    held.map(({ token }) => token),
    [lock.token],
  );
  assert.equal(await server.admin.get('lock:x'), `${lock.token}+`);
  await lock.release();
  const share = await waiting;
  assert.deepEqual(
    (await locks.query()).held.map(({ token }) => token),
    [share.token],
  );
});

test('who may not look is told so, and not that there is nothing', async () => {
  const user = leastRights('query');
  await locks.acquire('x');
  await server.admin.set('lock:old', 'somebody', 'PX', 60_000);
  for (const right of ['+evalsha', '+eval', '+get', '+pttl', '~{lock:*}:*', '~lock:*']) {
    await server.admin.script('FLUSH');
    const rules = user.rules.filter((rule) => rule !== right);
    assert.equal(rules.length, user.rules.length - 1, right);
    const url = await enrol(server, { ...user, rules });
    const query = async () => {
      const less = await connect(url);
      less.on('warning', () => {});
      try {
        await less.query();
      } finally {
        await less.close();
      }
    };
    const refused = { code: 'ERR_LOCK_SERVER', serverCode: 'NOPERM' };
    await assert.rejects(query, refused, `without ${right}`);
  }
});

test('keys that a user may not see hide no others, whichever comes first', async () => {
  const names = Array.from({ length: 10 }, (_, i) => `item:${i}`);
  await Promise.all(names.map((name) => locks.acquire(name)));
  const [, keys] = await server.admin.scan(0, 'COUNT', 1_000);
  const first = keys.find((key) => key.startsWith('lock:item:')) ?? '';
  const seen = names.map((name) => `lock:${name}`).filter((key) => key !== first);
  assert.equal(seen.length, names.length - 1);
  const user = leastRights('query');
  const rules = user.rules.flatMap((rule) => {
    if (rule === '~lock:*') return seen.map((key) => `~${key}`);
    return rule === '~{lock:*}:*' ? seen.map((key) => `~{${key}}:*`) : [rule];
  });
  await server.admin.script('FLUSH');
  const less = await connect(await enrol(server, { ...user, rules }));
  less.on('warning', () => {});
  const { held } = await less.query();
  assert.deepEqual(
    held.map(({ name }) => `lock:${name}`),
    seen,
  );
  const hidden = less.query({ startsWith: first.slice('lock:'.length) });
  await assert.rejects(hidden, { serverCode: 'NOPERM' });
  await less.close();
});

test('with an empty prefix the whole database is looked at', async () => {
  const plain = await connect(server.url, { prefix: '' });
  const lock = await plain.acquire('job');
  const { held } = await plain.query({ startsWith: 'jo' });
  assert.deepEqual(
    held.map(({ name, token }) => [name, token]),
    [['job', lock.token]],
  );
  await plain.close();
});

test('a name with characters that patterns know is taken as it is', async () => {
  for (const name of ['a*b', 'a[bc]d', 'a\\b', '^a', 'a?c', 'a-b']) {
    const lock = await locks.acquire(name);
    await locks.acquire(`${name}x`);
    const { held } = await locks.query({ startsWith: name });
    assert.deepEqual(
      held.map((info) => info.name),
      [name, `${name}x`],
      name,
    );
    assert.equal(held[0]?.token, lock.token);
    await server.admin.flushall();
  }
});

test('a server that falls silent in the middle is not waited for', async () => {
  const proxy = await FaultProxy.start(server.port);
  const patient = await connect(proxy.url, { commandTimeout: 300 });
  for (const last of ['SCAN', 'EVAL']) {
    await server.admin.set('lock:a', 'hf1.a.1', 'PX', 60_000);
    proxy.onRequest = (chunk) => {
      if (chunk.includes(last)) proxy.loseReplies = true;
    };
    const silence = { code: 'ERR_LOCK_CONNECTION', message: /no answer within 300 ms/ };
    await assert.rejects(patient.query(), silence, last);
    proxy.onRequest = undefined;
    proxy.loseReplies = false;
  }
  await patient.close();
  await proxy.stop();
});

test('each who waits to share a lock or for an owner is told, and of the others one of each manager', async (t) => {
  const managers = await Promise.all([0, 1, 2].map(() => connect(server.url)));
  t.after(() => Promise.all(managers.map((each) => each.close())));
  const [holder, one, other] = managers as [LockManager, LockManager, LockManager];
  const whole = await holder.acquire('whole');
  const parted = await holder.acquire('parted');
  const shared = { mode: 'shared', limit: 2, label: 'one' } as const;
  const calls = [
    ...[one, one].map((each) => each.acquire('whole', { label: 'one' })),
    other.acquire('whole', { label: 'other' }),
    ...['a', 'b'].map((owner) => one.acquire('whole', { owner })),
    ...[one, one].map((each) => each.acquire('parted', shared)),
  ];
  const waiting = async () => (await holder.query()).pending;
  await until(async () => (await waiting()).length >= 6, 'the waiters');
  const told = (await waiting()).map(({ name, mode, label }) => `${name} ${mode} ${label}`);
  assert.deepEqual(told.sort(), [
    'parted shared one',
    'parted shared one',
    'whole exclusive a',
    'whole exclusive b',
    'whole exclusive one',
    'whole exclusive other',
  ]);
  await Promise.all([whole.release(), parted.release()]);
  await Promise.all(calls.map(async (call) => (await call).release()));
});
