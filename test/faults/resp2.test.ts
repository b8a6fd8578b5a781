/** Servers without HELLO, where messages have a connection of their own, and what breaks there. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServerAbilities } from 'holdfast';
import { Cluster } from '../support/cluster.js';
import { ended, manager } from '../support/ended.js';
import { connect, type LockManager } from '../support/holdfast.js';
import { FaultProxy } from '../support/proxy.js';
import { RestrictedServer } from '../support/restricted.js';
import { Sentinels } from '../support/sentinels.js';
import { RedisServer, type ServerOptions } from '../support/server.js';
import { until } from '../support/wait.js';

/** Takes HELLO away. */
const RESP2 = ['--rename-command', 'HELLO', ''];

async function start(options: ServerOptions = {}): Promise<RedisServer> {
  const server = await RedisServer.start({ args: RESP2, ...options });
  ended.push(() => server.stop());
  return server;
}

/** What the servers of a manager have in common: all of them must agree. */
function allowed(
  locks: LockManager,
): Omit<ServerAbilities, 'server' | 'compareAndDelete' | 'refused' | 'risks'> {
  const { servers } = locks.stats();
  assert.ok(servers.length > 0, 'no server');
  const [first, ...others] = servers.map(
    ({ server: _, compareAndDelete: __, refused: ___, risks: ____, ...rest }) => rest,
  );
  for (const other of others) assert.deepEqual(other, first);
  return first as Omit<ServerAbilities, 'server' | 'compareAndDelete' | 'refused' | 'risks'>;
}

const ALL = {
  protocol: 2,
  clock: true,
  pubsub: true,
  plainCommands: true,
  tracking: false,
} as const;

/** The waiter of `waiter` gets the lock by a message: it would poll only at the end of the lease. */
async function isHandedOver(holder: LockManager, waiter: LockManager, name: string): Promise<void> {
  const first = await holder.acquire(name, { ttl: 600_000 });
  const waiting = waiter.acquire(name, { wait: 60_000 });
  await until(() => waiter.stats().waiting === 1, 'the waiter');
  await first.release();
  await (await waiting).release();
}

/** A theft is told by a message: the next renewal would be due only after minutes. */
async function isToldOfTheft(owner: LockManager, thief: LockManager, name: string): Promise<void> {
  const lock = await owner.acquire(name, { ttl: 600_000 });
  const stolen = await thief.acquire(name, { steal: true });
  await until(() => !lock.held, 'the owner to be told');
  await stolen.release();
}

/** The connections of managers. */
async function connections(server: RedisServer): Promise<number> {
  const clients = `${await server.admin.client('LIST')}`.split('\n');
  return clients.filter((line) => / name=holdfast/.test(line)).length;
}

/** Waits for a manager's next reconnect. */
async function reconnects(locks: LockManager): Promise<void> {
  let again = false;
  locks.once('reconnect', () => {
    again = true;
  });
  await until(() => again, 'the reconnect');
}

test('a password, a user and a database need no HELLO', async () => {
  const server = await start({ password: 'secret' });
  await server.admin.call('ACL', 'SETUSER', 'app', 'on', '>app secret', '~*', '&*', '+@all');
  const { port } = server;
  const byPassword = await manager(`redis://:secret@127.0.0.1:${port}/3`, { clientName: 'shop' });
  const byUser = await manager(`redis://127.0.0.1:${port}/3`, {
    username: 'app',
    password: 'app secret',
  });
  await isHandedOver(byPassword, byUser, 'a');
  const clients = `${await server.admin.client('LIST')}`;
  assert.match(clients, /name=shop .*db=3 .*resp=2/);
  assert.match(clients, /db=3 .*user=app/);
  await assert.rejects(connect(`redis://:wrong@127.0.0.1:${port}`), { serverCode: 'WRONGPASS' });
  await assert.rejects(connect(`redis://127.0.0.1:${port}`), { serverCode: 'NOAUTH' });
});

test('grants and thefts are told by message, and stats() tells the protocol', async () => {
  const { url } = await start();
  const [a, b] = [await manager(url), await manager(url)];
  assert.deepEqual(allowed(a), ALL);
  await isHandedOver(a, b, 'one');
  await isToldOfTheft(a, b, 'two');
});

test('who may not subscribe polls, and a warning says so', async () => {
  const server = await start({ password: 'secret' });
  await server.admin.call('ACL', 'SETUSER', 'mute', 'on', '>mute', '~*', 'resetchannels', '+@all');
  const locks = await connect(`redis://mute:mute@127.0.0.1:${server.port}`);
  ended.push(() => locks.close());
  const warnings: unknown[] = [];
  locks.on('warning', (warning) => warnings.push((warning as Error & { code: string }).code));
  await until(() => warnings.length > 0, 'the warning');
  assert.deepEqual(warnings, ['WARN_LOCK_POLLING']);
  assert.equal(allowed(locks).pubsub, false);
  const held = await locks.acquire('a', { ttl: 60_000 });
  const waiting = locks.acquire('a', { wait: 20_000 });
  await held.release();
  await (await waiting).release();
});

for (const [broken, kill] of [
  ['for messages', ['TYPE', 'pubsub']],
  ['for commands', ['TYPE', 'normal', 'SKIPME', 'yes']],
] as const) {
  test(`the connection ${broken} breaks alone: both are made anew, and nothing is lost`, async () => {
    const server = await start();
    const [a, b] = [await manager(server.url), await manager(server.url)];
    const held = await a.acquire('held', { ttl: 600_000 });
    const waiting = b.acquire('held', { wait: 60_000 });
    await until(() => b.stats().waiting === 1, 'the waiter');
    const again = Promise.all([reconnects(a), reconnects(b)]);
    assert.equal(await server.admin.call('CLIENT', 'KILL', ...kill), 2);
    await again;
    assert.equal(held.held, true);
    assert.equal(await held.release(), true);
    await (await waiting).release();
    await isHandedOver(a, b, 'later');
    await isToldOfTheft(a, b, 'later still');
    // Two for each manager: none is left behind.
    assert.equal(await connections(server), 4);
  });
}

test('a firewall forgets the connection for messages: it is noticed, though nothing else is sent', async () => {
  const server = await start();
  const proxy = await FaultProxy.start(server.port);
  ended.push(() => proxy.stop());
  const locks = await manager(proxy.url, { connectTimeout: 1_000 });
  const again = reconnects(locks);
  proxy.silenceSubscribers();
  await again;
  await isToldOfTheft(locks, await manager(server.url), 'a');
});

test('the connection for messages breaks before it is counted: nobody is told of a denial', async () => {
  const server = await start();
  const proxy = await FaultProxy.start(server.port);
  ended.push(() => proxy.stop());
  let broken: Promise<unknown> | undefined;
  proxy.onRequest = (chunk) => {
    if (broken !== undefined || !chunk.includes('\nNUMSUB\r')) return;
    // Until then the request waits.
    proxy.hold();
    broken = server.admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub').then(() => proxy.deliver());
  };
  const locks = await manager(proxy.url);
  assert.ok(broken, 'the subscription was counted');
  await broken;
  const warnings: unknown[] = [];
  locks.on('warning', (warning) => warnings.push(warning));
  await isHandedOver(await manager(server.url), locks, 'a');
  assert.deepEqual(allowed(locks), ALL);
  assert.deepEqual(warnings, []);
});

test('close ends both connections', async () => {
  const server = await start();
  const locks = await connect(server.url);
  assert.equal(allowed(locks).protocol, 2);
  assert.equal(await connections(server), 2);
  await locks.close();
  await until(async () => (await connections(server)) === 0, 'both connections to end');
  assert.deepEqual(locks.stats().servers, []);
});

test('a quorum: hand-over by message, also after one server has lost the connection for messages', async () => {
  const servers = await RedisServer.startSeveral(3, { args: RESP2 });
  ended.push(() => Promise.all(servers.map((server) => server.stop())));
  const target = { quorum: servers.map(({ url }) => url) };
  const [a, b] = [
    await manager(target, { longestLease: 0 }),
    await manager(target, { longestLease: 0 }),
  ];
  assert.deepEqual(allowed(a), ALL);
  assert.equal(a.stats().servers.length, 3);
  await isHandedOver(a, b, 'one');
  // Only the waiter has subscribed.
  const again = reconnects(b);
  await servers[0]?.admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
  await again;
  await isHandedOver(a, b, 'two');
});

test('a Cluster: shard channels and losses are told by message', async () => {
  const cluster = await Cluster.start({ args: RESP2 });
  ended.push(() => cluster.stop());
  const target = { cluster: cluster.urls };
  const [a, b] = [await manager(target), await manager(target)];
  await isHandedOver(a, b, 'one');
  await isToldOfTheft(a, b, 'two');
  assert.deepEqual(allowed(a), ALL);
});

test('Sentinels and servers without RESP3: the failover is followed as soon as they tell', async () => {
  const deployment = await Sentinels.start({ args: RESP2 });
  ended.push(() => deployment.stop());
  const proxies = await Promise.all(
    deployment.sentinels.map(({ port }) => RestrictedServer.start(port, 'no RESP3')),
  );
  ended.push(() => Promise.all(proxies.map((proxy) => proxy.stop())));
  const sentinels = proxies.map(({ url }) => url.replace('redis://', ''));
  const target = { sentinels, master: deployment.name };
  const [a, b] = [await manager(target), await manager(target)];
  await isHandedOver(a, b, 'one');
  assert.deepEqual(allowed(a), ALL);
  const told: string[] = [];
  a.once('disconnect', ({ message }) => told.push(message));
  const again = Promise.all([reconnects(a), reconnects(b)]);
  await deployment.failOver();
  await again;
  assert.match(`${told}`, /a Sentinel reports that the master is/);
  await isHandedOver(a, b, 'two');
});
