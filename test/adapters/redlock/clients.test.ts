/**
 * The connection that `holdfast/redlock` reads from a client: a lock stands where that client finds it, in
 * the same database and by the same prefix; and what cannot be carried over is refused, by name.
 */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { type Client, Lock, Redlock } from 'holdfast/redlock';
import { Cluster as ClusterClient, Redis } from 'ioredis';
import { createClient, createClientPool, createCluster, createSentinel } from 'redis';
import { Authority } from '../../support/certificates.js';
import { Cluster } from '../../support/cluster.js';
import { Sentinels } from '../../support/sentinels.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

const PASSWORD = 'p@ss:/%+? word';
const USER = 'jo@e';
const NAMES = 'DNS:localhost,IP:127.0.0.1';

const authority = new Authority();
let server: RedisServer;
let socket: RedisServer;
let secure: RedisServer;
let cluster: Cluster;
let sentinels: Sentinels;

before(async () => {
  server = await RedisServer.start({ password: PASSWORD });
  await server.admin.call('ACL', 'SETUSER', USER, 'on', `>${PASSWORD}`, '~*', '&*', '+@all');
  socket = await RedisServer.start({ socket: true, password: PASSWORD });
  const { ca } = authority;
  secure = await RedisServer.start({ tls: { server: authority.issue(NAMES), ca } });
  cluster = await Cluster.start();
  sentinels = await Sentinels.start({ password: 'secret', sentinelPassword: 'other' });
});

after(async () => {
  await sentinels?.stop();
  await cluster?.stop();
  await Promise.all([server, socket, secure].map((each) => each?.stop()));
  authority.remove();
});

/** The common interface of both libraries. */
type Reader = Client & { get(key: string): Promise<unknown> };

/** A lock stands where `client` finds it; afterwards both connections are ended. */
async function findsLock(client: Reader): Promise<void> {
  const redlock = new Redlock([client], { retryCount: 0 });
  const lock = await redlock.acquire(['tea'], 60_000);
  assert.equal(await client.get('tea'), lock.value);
  // As if the lock came from another process: then this client extends it.
  const told = new Lock(redlock, lock.resources, lock.value, [], lock.expiration);
  const extended = await told.extend(120_000);
  await extended.release();
  assert.equal(await client.get('tea'), null);
  await redlock.quit();
}

async function connected<T extends { connect(): Promise<unknown> }>(client: T): Promise<T> {
  await client.connect();
  return client;
}

const secret = encodeURIComponent(PASSWORD);
const user = encodeURIComponent(USER);

/** A client of node-redis 3. Its `get` answers a promise, for the test. */
function callbackClient(options: object): Reader {
  const { createClient: create } = require('redis3') as { createClient(options: object): Reader };
  const client = create({ port: server.port, ...options });
  const get = client.get.bind(client) as (
    key: string,
    done: (error: Error | null, value: unknown) => void,
  ) => void;
  return Object.assign(client, { get: promisify(get) });
}

const READ: Readonly<Record<string, () => Reader | Promise<Reader>>> = {
  'node-redis 3: a password, a database and a prefix': () =>
    callbackClient({ password: PASSWORD, db: 4, prefix: 'shop:' }),
  'ioredis: a port, a user and a password': () =>
    new Redis(server.port, { username: USER, password: PASSWORD }),
  'ioredis: a URL': () => new Redis(`redis://${user}:${secret}@localhost:${server.port}/3`),
  'ioredis: a password, a database and a keyPrefix': () =>
    new Redis({ port: server.port, password: PASSWORD, db: 5, keyPrefix: 'shop:' }),
  'ioredis: the database that was selected since': async () => {
    const client = new Redis(server.port, { password: PASSWORD, db: 5 });
    await client.select(7);
    return client;
  },
  'ioredis: a socket file': () => {
    const path = new URL(socket.url).pathname;
    return new Redis({ path, password: PASSWORD, db: 2 });
  },
  'ioredis: TLS': () =>
    new Redis({ host: 'localhost', port: secure.port, tls: { ca: authority.ca.cert } }),
  'ioredis: TLS that trusts anybody': () =>
    new Redis(`rediss://localhost:${secure.port}`, { tls: { rejectUnauthorized: false } }),
  'ioredis: not connected yet': () =>
    new Redis(server.port, { password: PASSWORD, lazyConnect: true }),
  'ioredis: Sentinels': () =>
    new Redis({
      sentinels: sentinels.sentinels.map(({ port }) => ({ host: '127.0.0.1', port })),
      name: sentinels.name,
      password: 'secret',
      sentinelPassword: 'other',
      db: 1,
    }),
  'ioredis: a Cluster, by URLs': () => new ClusterClient(cluster.urls, { keyPrefix: 'shop:' }),
  'ioredis: a Cluster, by addresses and ports': () =>
    new ClusterClient([
      { host: '127.0.0.1', port: cluster.nodes[0]?.port as number },
      cluster.nodes[1]?.port as number,
    ]),
  'node-redis: a URL': () =>
    connected(createClient({ url: `redis://${user}:${secret}@localhost:${server.port}/3` })),
  'node-redis: a port, a password, a database and a keyPrefix': () =>
    connected(
      createClient({
        socket: { port: server.port },
        password: PASSWORD,
        database: 4,
        keyPrefix: 'shop:',
      }),
    ),
  'node-redis: a socket file': () => {
    const path = new URL(socket.url).pathname;
    return connected(
      createClient({ socket: { path, tls: false }, password: PASSWORD, database: 2 }),
    );
  },
  'node-redis: TLS': () => {
    const tls = { tls: true as const, ca: authority.ca.cert };
    return connected(createClient({ socket: { host: 'localhost', port: secure.port, ...tls } }));
  },
  'node-redis: a cluster': () =>
    connected(createCluster({ rootNodes: cluster.urls.map((url) => ({ url })) })),
};

for (const [what, open] of Object.entries(READ)) {
  test(`${what}: the lock stands where the client finds it`, async () => {
    const client = await open();
    await findsLock(client);
  });
}

test('three clients are a quorum, each with its own login and database', async () => {
  const servers = await RedisServer.startSeveral(2);
  const clients = [
    new Redis(server.port, { password: PASSWORD, db: 9, keyPrefix: 'shop:' }),
    ...servers.map(({ port }, i) => new Redis(port, { db: i, keyPrefix: 'shop:' })),
  ];
  const redlock = new Redlock(clients);
  const lock = await redlock.acquire(['tea'], 60_000);
  for (const client of clients) {
    await until(async () => (await client.get('tea')) === lock.value, 'the value on all servers');
  }
  await redlock.quit();
  await Promise.all(servers.map((each) => each.stop()));
});

const lazy = { lazyConnect: true };

/** Each client with the setting that its refusal names. */
const REFUSED: readonly [what: string, client: () => unknown, names: RegExp][] = [
  ['a mock of ioredis', () => ({ options: {}, defineCommand() {} }), /does not reveal/],
  ['a client of another library', () => ({ customCommand() {} }), /client 1 does not reveal/],
  [
    'an own connector',
    () => Object.assign(new Redis(lazy), { options: { Connector: class {} } }),
    /"Connector" of the ioredis client/,
  ],
  [
    'an own check of the server',
    () => new Redis({ ...lazy, tls: { checkServerIdentity: () => undefined } }),
    /"tls.checkServerIdentity" of the ioredis client/,
  ],
  ['a profile of TLS', () => new Redis({ ...lazy, tls: 'TLSv1' as never }), /"tls" .* is a string/],
  [
    'an address translation',
    () => new ClusterClient([7000], { ...lazy, natMap: () => null }),
    /"natMap" of the ioredis Cluster/,
  ],
  [
    'the nodes of SRV records',
    () => new ClusterClient([{ host: 'a' }], { ...lazy, useSRVRecords: true }),
    /"useSRVRecords"/,
  ],
  [
    'replicas of Sentinels',
    () => new Redis({ ...lazy, sentinels: [{ host: 'a' }], name: 'm', role: 'slave' }),
    /is for replicas \("role"\)/,
  ],
  [
    'TLS with the Sentinels alone',
    () => {
      return new Redis({ ...lazy, sentinels: [{ host: 'a' }], name: 'm', sentinelTLS: {} });
    },
    /TLS either with the Sentinels or with the master/,
  ],
  [
    'credentials of an unknown kind',
    () => createClient({ credentialsProvider: { type: 'another' } as never }),
    /"credentialsProvider" of the node-redis client/,
  ],
  [
    'an address map',
    () => createCluster({ rootNodes: [], nodeAddressMap: {} }),
    /"nodeAddressMap" of the node-redis cluster/,
  ],
  [
    'Sentinels of node-redis',
    () => createSentinel({ name: 'm', sentinelRootNodes: [{ host: 'a', port: 1 }] }),
    /does not reveal the address of its server/,
  ],
  ['a pool of node-redis', () => createClientPool(), /does not reveal the address of its server/],
  ['nothing', () => null, /client 1 does not reveal/],
];

for (const [what, open, names] of REFUSED) {
  test(`${what}: refused by the first lock, with what to do`, async () => {
    const redlock = new Redlock([open() as Client]);
    const code = 'ERR_INVALID_ARG_VALUE';
    const first = () => redlock.acquire(['a'], 1_000);
    await assert.rejects(first, { name: 'TypeError', code, message: names });
    await assert.rejects(first, /or give locks a connection of their own/);
  });
}

test('clients with credentials of a service: one, and a quorum', async () => {
  const servers = await RedisServer.startSeveral(3, { password: PASSWORD });
  try {
    const credentials = async () => ({ username: 'default', password: PASSWORD });
    const credentialsProvider = { type: 'async-credentials-provider', credentials } as const;
    // As services have it: a server that stops may end a connection ahead of the answer to QUIT.
    const open = ({ url }: RedisServer) =>
      connected(createClient({ url, credentialsProvider }).on('error', () => {}));
    await findsLock((await open(servers[0] as RedisServer)) as unknown as Reader);
    const clients = await Promise.all(servers.map(open));
    const redlock = new Redlock(clients as unknown as Client[], { retryCount: 0 });
    const lock = await redlock.acquire(['tea'], 60_000);
    for (const client of clients) assert.equal(await client.get('tea'), lock.value);
    await lock.release();
    await redlock.quit();
  } finally {
    await Promise.all(servers.map((each) => each.stop()));
  }
});

const DIFFERENT: readonly [what: string, options: object, names: RegExp][] = [
  ['another keyPrefix', { keyPrefix: 'b:' }, /client 2 of 3 has another keyPrefix/],
  ['another TLS', { keyPrefix: 'a:', tls: {} }, /client 2 of 3 has another "tls"/],
  [
    'Sentinels',
    { keyPrefix: 'a:', sentinels: [{ host: 'a' }], name: 'm' },
    /client 2 of 3 is not that of a single server/,
  ],
];

for (const [what, options, names] of DIFFERENT) {
  test(`a quorum whose second client has ${what}: refused by the first lock`, async () => {
    const alike = () => new Redis({ ...lazy, keyPrefix: 'a:' });
    const clients = [alike(), new Redis({ ...lazy, ...options }), alike()];
    const first = new Redlock(clients).acquire(['a'], 1_000);
    await assert.rejects(first, { code: 'ERR_INVALID_ARG_VALUE', message: names });
  });
}
