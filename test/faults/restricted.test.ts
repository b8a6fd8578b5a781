/** Servers that refuse what services refuse: see test/support/restricted.ts. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ConnectOptions } from 'holdfast';
import { ended } from '../support/ended.js';
import { connect, type LockManager } from '../support/holdfast.js';
import { RestrictedServer, type RestrictionName } from '../support/restricted.js';
import { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';

async function real(): Promise<RedisServer> {
  const server = await RedisServer.start();
  ended.push(() => server.stop());
  return server;
}

async function restricted(server: RedisServer, ...names: RestrictionName[]) {
  const proxy = await RestrictedServer.start(server.port, ...names);
  ended.push(() => proxy.stop());
  return proxy;
}

interface Manager {
  readonly locks: LockManager;
  /** The codes of its warnings. */
  readonly warnings: string[];
}

async function manager(url: string, options: ConnectOptions = {}): Promise<Manager> {
  const locks = await connect(url, options);
  ended.push(() => locks.close());
  const warnings: string[] = [];
  locks.on('warning', (warning) => warnings.push((warning as Error & { code: string }).code));
  return { locks, warnings };
}

/** Takes a lock, hands it to a waiter of another manager, and has everything gone in the end. */
async function isExclusive(url: string): Promise<string[]> {
  const [a, b] = [await manager(url), await manager(url)];
  const first = await a.locks.acquire('one');
  assert.equal(await b.locks.tryAcquire('one'), null);
  await first.extend(60_000);
  const waiting = b.locks.acquire('one', { wait: 20_000 });
  await until(() => b.locks.stats().waiting === 1, 'the waiter');
  assert.equal(await first.release(), true);
  const second = await waiting;
  assert.ok(second.fence > first.fence, `${second.fence} after ${first.fence}`);
  assert.equal(await second.release(), true);
  const third = await a.locks.acquire('one');
  assert.ok(third.fence > second.fence, `${third.fence} after ${second.fence}`);
  await third.release();
  return a.warnings;
}

test('no CLIENT SETINFO, no fields of INFO, no WAIT: exclusive locks work, and nothing is warned of', async () => {
  const server = await real();
  const proxy = await restricted(server, 'no CLIENT SETINFO', 'no fields of INFO', 'no WAIT');
  assert.deepEqual(await isExclusive(proxy.url), []);
});

test('no RESP3: everything works, and nothing is warned of', async () => {
  const server = await real();
  const proxy = await restricted(server, 'no RESP3');
  assert.deepEqual(await isExclusive(proxy.url), []);
  const clients = `${await server.admin.client('LIST')}`.split('\n');
  const ours = clients.filter((line) => line.includes(' name=holdfast'));
  assert.ok(ours.length >= 2 && ours.every((line) => line.includes('resp=2')), `${clients}`);
});

test('HELLO 3 is answered in RESP2: the connection goes by that, and everything works', async () => {
  const proxy = await restricted(await real(), 'RESP2 whatever is asked for', 'the name Kvrocks');
  assert.deepEqual(await isExclusive(proxy.url), []);
  const { locks } = await manager(proxy.url);
  assert.deepEqual(
    locks.stats().servers.map(({ protocol, pubsub }) => ({ protocol, pubsub })),
    [{ protocol: 2, pubsub: true }],
  );
});

test('a password is sent once if HELLO 3 is answered in RESP2', async () => {
  const server = await real();
  await server.admin.call('ACL', 'SETUSER', 'app', 'on', '>s3cret', '~*', '&*', '+@all', '-auth');
  const proxy = await restricted(server, 'RESP2 whatever is asked for');
  const { locks } = await manager(proxy.url, { username: 'app', password: 's3cret' });
  await (await locks.acquire('a')).release();
});

test('RESP3 without pushes: messages have a connection of their own, and everything works', async () => {
  const server = await real();
  const proxy = await restricted(server, 'RESP3 without pushes', 'the name Kvrocks');
  assert.deepEqual(await isExclusive(proxy.url), []);
  const { locks } = await manager(proxy.url);
  assert.deepEqual(
    locks.stats().servers.map(({ protocol, pubsub }) => ({ protocol, pubsub })),
    [{ protocol: 3, pubsub: true }],
  );
  const channels = (await server.admin.call('PUBSUB', 'CHANNELS', 'holdfast:*')) as string[];
  const counts = (await server.admin.call('PUBSUB', 'NUMSUB', ...channels)) as unknown[];
  const subscribed = counts.filter((_, i) => i % 2 === 1).map(Number);
  // The connections for requests have none left.
  assert.ok(subscribed.length > 0 && subscribed.every((count) => count === 1), `${counts}`);
});

test('RESP3 without pushes: a quorum hands its locks off by messages', async () => {
  const servers = [await real(), await real(), await real()];
  const proxies = await Promise.all(
    servers.map((each) => restricted(each, 'RESP3 without pushes')),
  );
  const target = { quorum: proxies.map(({ url }) => url) };
  const broken: string[] = [];
  const open = async () => {
    const locks = await connect(target, { longestLease: 0, connectTimeout: 2_000 });
    ended.push(() => locks.close());
    locks.on('disconnect', ({ message }) => broken.push(message));
    return locks;
  };
  const [a, b] = [await open(), await open()];
  const first = await a.acquire('one', { ttl: 600_000 });
  const waiting = b.acquire('one', { wait: 60_000 });
  await until(() => b.stats().waiting === 1, 'the waiter');
  assert.equal(await first.release(), true);
  assert.equal(await (await waiting).release(), true);
  assert.deepEqual(
    a.stats().servers.map(({ pubsub }) => pubsub),
    [true, true, true],
  );
  assert.deepEqual(broken, []);
});

test('no PUBSUB in scripts, as on Kvrocks: one warning says that waiters poll, and they get their locks', async () => {
  const proxy = await restricted(
    await real(),
    'RESP2 whatever is asked for',
    'no PUBSUB in scripts',
  );
  assert.deepEqual(await isExclusive(proxy.url), ['WARN_LOCK_POLLING']);
});

test('an active replica, as of KeyDB: one warning says that a lock may be granted twice', async () => {
  const proxy = await restricted(await real(), 'the role of an active replica');
  const { locks, warnings } = await manager(proxy.url);
  const told: string[] = [];
  locks.on('warning', ({ message }) => told.push(message));
  const again = new Promise((resolve) => locks.once('reconnect', () => resolve(undefined)));
  await until(() => warnings.length > 0, 'the warning');
  proxy.cut();
  await again;
  await (await locks.acquire('a')).release();
  assert.deepEqual(warnings, ['WARN_LOCK_ACTIVE_REPLICA']);
  assert.match(
    `${told}`,
    /may grant a lock twice: 127\.0\.0\.1:\d+ is an active replica .*turn active replication off/,
  );
});

test('no TIME in scripts: exclusive locks work by polling, one warning says so, and the rest is refused', async () => {
  const server = await real();
  const proxy = await restricted(server, 'no TIME in scripts');
  assert.deepEqual(await isExclusive(proxy.url), ['WARN_LOCK_CLOCK']);
  const { locks } = await manager(proxy.url);
  const held = await locks.acquire('held');
  const before = await server.keyspace();
  const { locks: others } = await manager(proxy.url);
  for (const refused of [
    () => others.acquire('free', { mode: 'shared' }),
    () => others.acquire('free', { mode: 'shared', limit: 2 }),
    () => others.acquire('held', { steal: true }),
    () => others.forceRelease('held'),
  ]) {
    const error = await Promise.resolve(refused()).catch((error: unknown) => error);
    const { serverCode, message } = error as Record<string, unknown>;
    assert.equal(serverCode, 'NOCLOCK', `${refused}: ${message}`);
  }
  assert.deepEqual(Object.keys(await server.keyspace()).sort(), Object.keys(before).sort());
  const both = await others.acquire(['free', 'free too']);
  await both.release();
  assert.equal(held.held, true);
  assert.equal(await held.release(), true);
  assert.deepEqual(Object.keys(await server.keyspace()), ['holdfast:fence']);
});

test('no PUBLISH in scripts: one warning says that waiters poll, and they get their locks', async () => {
  const proxy = await restricted(await real(), 'no PUBLISH in scripts');
  assert.deepEqual(await isExclusive(proxy.url), ['WARN_LOCK_POLLING']);
});

test('one slot per script, as behind a proxy of several servers: each slot has a counter', async () => {
  const server = await real();
  const proxy = await restricted(server, 'one slot per script');
  assert.deepEqual(await isExclusive(proxy.url), []);
  const counters = Object.keys(await server.keyspace());
  assert.equal(counters.length, 1);
  assert.match(`${counters}`, /^holdfast:\{\d+\}:fence$/);
});

test('keys as KEYS[n] alone: no lock is taken that no script could release', async () => {
  const server = await real();
  const proxy = await restricted(server, 'keys as KEYS[n] alone');
  const { locks } = await manager(proxy.url);
  await assert.rejects(locks.acquire('a', { wait: 0 }), /bad lua script/);
  assert.deepEqual(Object.keys(await server.keyspace()), []);
});

test('a key in every script: everything works, and one warning says that scripts take all locks', async () => {
  const proxy = await restricted(await real(), 'a key in every script');
  assert.deepEqual(await isExclusive(proxy.url), ['WARN_LOCK_SCRIPTS']);
});

test('no TIME in scripts: a quorum does not use the server, and says why', async () => {
  const servers = [await real(), await real(), await real()];
  const limited = await Promise.all(servers.map((each) => restricted(each, 'no TIME in scripts')));
  const [first, second, third] = limited.map(({ url }) => url) as [string, string, string];
  const options = { longestLease: 0, connectTimeout: 2_000 };
  await assert.rejects(
    connect({ quorum: [first, second, third] }, options),
    /its scripts may not read the clock \(TIME\), which a vote needs/,
  );
  const quorum = [first, servers[1]?.url ?? '', servers[2]?.url ?? ''];
  const locks = await connect({ quorum }, options);
  ended.push(() => locks.close());
  const lock = await locks.acquire('two of three');
  assert.equal(await servers[0]?.admin.exists('lock:two of three'), 0);
  assert.equal(await servers[1]?.admin.exists('lock:two of three'), 1);
  assert.equal(await lock.release(), true);
});

test('database 0 only: another one is refused at connect', async () => {
  const proxy = await restricted(await real(), 'database 0 only');
  await assert.rejects(connect(`${proxy.url}/1`), /DB index is out of range/);
  await isExclusive(proxy.url);
});

test('a server of a Cluster under the URL of one server: the message says how to name it', async () => {
  const proxy = await restricted(await real(), 'another server has all slots');
  const { locks } = await manager(proxy.url);
  await assert.rejects(
    locks.acquire('elsewhere', { wait: 5_000 }),
    (error: Record<string, unknown>) => {
      assert.equal(error['serverCode'], 'MOVED');
      assert.match(`${error['message']}`, /a server of a Cluster.*\{ cluster: \[/);
      return true;
    },
  );
});

test('no WAIT: the option replicas is refused at connect', async () => {
  const proxy = await restricted(await real(), 'no WAIT');
  await assert.rejects(connect(proxy.url, { replicas: 1 }), /unknown command 'WAIT'/);
});

test('RESP2, and two connections that lead to different servers: one warning says that waiters poll', async () => {
  const [one, other] = [await real(), await real()];
  const proxy = await restricted(one, 'no RESP3');
  proxy.turns = [one.port, other.port];
  const warned: string[] = [];
  const open = async () => {
    const { locks } = await manager(proxy.url);
    locks.on('warning', ({ message }) => warned.push(message));
    assert.deepEqual(
      locks.stats().servers.map(({ protocol, pubsub }) => ({ protocol, pubsub })),
      [{ protocol: 2, pubsub: false }],
    );
    return locks;
  };
  const [a, b] = [await open(), await open()];
  const first = await a.acquire('one');
  const waiting = b.acquire('one', { wait: 20_000 });
  await until(() => b.stats().waiting === 1, 'the waiter');
  assert.equal(await first.release(), true);
  assert.equal(await (await waiting).release(), true);
  assert.ok(
    warned.length > 0 && warned.every((text) => /different servers/.test(text)),
    `${warned}`,
  );
});

const PROBES: Readonly<Record<string, RegExp>> = {
  'the history of its data': /^INFO server/,
  'its role': /^INFO replication/,
  'its clock': /^TIME/,
  'the fence counter': /^GET holdfast:/,
  MGET: /^MGET holdfast:/,
  'what scripts may do': /^EVAL .*refusals/s,
  'scripts by their hash': /^EVALSHA /,
  'keys of two slots': /^EVAL return 1 2 /,
  'keys in variables': /^EVAL local key = KEYS/,
  subscribing: /^SUBSCRIBE holdfast:/,
  publishing: /^PUBLISH holdfast:/,
  'counting subscribers': /^PUBSUB NUMSUB/,
};

/**
 * If any error were a denial:
 *
 * 1. A proxy answers A's GET of the common fence counter once with `-ERR`. A takes that for a denial, and gets the lock with
 *    a fence from the lock's own counter, which starts from the clock today.
 * 2. B gets the lock next, with a lower fence from the common counter, which started yesterday.
 */
for (const [what, question] of Object.entries(PROBES)) {
  test(`after one error in answer to the question about ${what} nothing counts as denied`, async () => {
    const server = await real();
    const proxy = await restricted(server);
    const direct = await manager(server.url);
    await (await direct.locks.acquire('a')).release();
    const { locks, warnings } = await manager(proxy.url);
    const before = locks.stats().servers;
    assert.equal(before.length, 1);
    const reconnected = new Promise((resolve) => locks.once('reconnect', () => resolve(undefined)));
    const accepted = proxy.accepted;
    proxy.failsOnce = question;
    proxy.cut();
    await reconnected;
    assert.equal(proxy.failsOnce, undefined, 'the question was not asked');
    assert.equal(proxy.accepted, accepted + 2);
    assert.deepEqual(locks.stats().servers, before);
    let last = 0;
    for (const each of [locks, direct.locks, locks]) {
      const lock = await each.acquire('a', { wait: 20_000 });
      assert.ok(lock.fence > last, `${lock.fence} after ${last}`);
      last = lock.fence;
      assert.equal(await lock.release(), true);
    }
    assert.deepEqual(warnings, []);
  });
}

test('idle connections that are cut: the manager connects again, and its locks stay held', async () => {
  const proxy = await restricted(await real());
  proxy.idleMs = 100;
  const { locks } = await manager(proxy.url);
  const lock = await locks.acquire('kept', { ttl: 60_000 });
  for (let time = 0; time < 2; time++) {
    await new Promise((resolve) => locks.once('reconnect', () => resolve(undefined)));
  }
  assert.equal(lock.held, true);
  const { locks: others } = await manager(proxy.url);
  const cut = new Promise((resolve) => others.once('disconnect', () => resolve(undefined)));
  const waiting = others.acquire('kept', { wait: 20_000 });
  await cut;
  assert.equal(await lock.release(), true);
  assert.equal(await (await waiting).release(), true);
});

test('an address that leads to another server: what that has not is lost, and fences rise', async () => {
  const [old, next] = [await real(), await real()];
  const proxy = await restricted(old);
  const { locks } = await manager(proxy.url);
  const lock = await locks.acquire('moved');
  const lost = new Promise((resolve) => locks.once('lost', resolve));
  proxy.upstreamPort = next.port;
  proxy.cut();
  await lost;
  assert.equal(lock.held, false);
  const again = await locks.acquire('moved', { wait: 20_000 });
  assert.ok(again.fence > lock.fence, `${again.fence} after ${lock.fence}`);
  await again.release();
});
