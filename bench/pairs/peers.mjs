// The participants. `open` connects and returns `acquire`, which resolves with the argument that
// `release` needs; both throw unless the server really granted and freed the lock.
//
// Each is used as its documentation shows, with one connection, default settings and the same
// lease. The promises of a library are awaited as its users do, without a function of our own
// between. Imports stay inside `open`, so that a process loads one participant only.

import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { RawClient } from './raw-client.mjs';

const TTL_MS = 10_000;

/** The compare-and-delete of hand-written locks. */
const RELEASE =
  'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end';

const newToken = () => randomBytes(16).toString('hex');

/** The hand-written snippet: the baseline of all comparisons. */
export const BASELINE = 'ioredis EVALSHA';

/** The snippet without a client library: what JavaScript can reach at best. */
export const YARDSTICK = 'limit';

/** An older build of holdfast, in the folder that this variable names. */
export const BEFORE = 'the version before';
export const BEFORE_FOLDER = 'HOLDFAST_BENCH_BEFORE';

/** These save round trips, and are measured behind a network alone. */
export const UNAWAITED = 'awaitRelease: false';
export const LINGERING = 'linger: 100';
export const ROUND_TRIP = 'one round trip';

/**
 * `role`: `own`, `snippet` (hand-written, the common client as it comes), `library` (locks),
 * `yardstick`, `other`, or `network` (measured behind a network alone). `key`: the key that exists while a name is locked;
 * none for what takes no lock. `again`: each task takes one name again and again.
 */
export const PEERS = [
  {
    id: 'holdfast',
    role: 'own',
    packages: [],
    key: (name) => `lock:${name}`,
    open: openHoldfast,
  },
  {
    id: BEFORE,
    role: 'other',
    packages: [],
    key: (name) => `lock:${name}`,
    open: openBefore,
  },
  { id: YARDSTICK, role: 'yardstick', packages: [], open: openRaw },
  { id: 'ioredis EVAL', role: 'snippet', packages: ['ioredis'], open: openIoredisEval },
  { id: BASELINE, role: 'snippet', packages: ['ioredis'], open: openIoredisEvalsha },
  {
    id: 'ioredis autopipelining',
    role: 'other',
    packages: ['ioredis'],
    open: (url) => openIoredisEvalsha(url, { enableAutoPipelining: true }),
  },
  { id: 'node-redis EVAL', role: 'other', packages: ['redis'], open: openNodeRedisEval },
  { id: 'node-redis EVALSHA', role: 'other', packages: ['redis'], open: openNodeRedisEvalsha },
  { id: 'valkey-glide', role: 'other', packages: ['@valkey/valkey-glide'], open: openGlide },
  { id: 'redlock', role: 'library', packages: ['redlock', 'ioredis'], open: openRedlock },
  {
    id: 'redis-semaphore',
    role: 'library',
    packages: ['redis-semaphore', 'ioredis'],
    key: (name) => `mutex:${name}`,
    open: openRedisSemaphore,
  },
  {
    id: 'redlock-universal',
    role: 'library',
    packages: ['redlock-universal', 'ioredis'],
    open: openRedlockUniversal,
  },
  {
    id: UNAWAITED,
    role: 'network',
    packages: [],
    key: (name) => `lock:${name}`,
    open: openUnawaited,
  },
  {
    id: LINGERING,
    role: 'network',
    packages: [],
    key: (name) => `lock:${name}`,
    again: true,
    open: (url) => openHoldfast(url, { linger: 100 }),
  },
  { id: ROUND_TRIP, role: 'network', packages: [], key: null, open: openPing },
].map((peer) => ({ key: (name) => name, ...peer }));

function expect(actual, wanted, what) {
  if (actual !== wanted) throw new Error(`${what} answered ${String(actual)}, not ${wanted}`);
}

function openBefore(url) {
  const entry = join(process.env[BEFORE_FOLDER], 'dist', 'index.mjs');
  return openHoldfast(url, {}, pathToFileURL(entry).href);
}

async function openHoldfast(url, options = {}, entry = '../../dist/index.mjs') {
  const { connect } = await import(entry);
  const locks = await connect(url, { ttl: TTL_MS, ...options });
  return {
    acquire: (name) => locks.acquire(name),
    async release(_name, lock) {
      expect(await lock.release(), true, 'release');
    },
  };
}

async function openUnawaited(url) {
  const { connect } = await import('../../dist/index.mjs');
  const locks = await connect(url, { ttl: TTL_MS, awaitRelease: false });
  return {
    acquire: (name) => locks.acquire(name),
    release: (_name, lock) => lock[Symbol.asyncDispose](),
  };
}

async function openPing(url) {
  const client = await RawClient.connect(url);
  return {
    acquire: () => client.call('PING'),
    release() {},
  };
}

async function openRaw(url) {
  const client = await RawClient.connect(url);
  const sha = await client.call('SCRIPT', 'LOAD', RELEASE);
  return {
    async acquire(name) {
      const token = newToken();
      expect(await client.call('SET', name, token, 'NX', 'PX', String(TTL_MS)), 'OK', 'SET');
      return token;
    },
    async release(name, token) {
      expect(await client.call('EVALSHA', sha, '1', name, token), '1', 'EVALSHA');
    },
  };
}

async function connectIoredis(url, options = {}) {
  const { Redis } = await import('ioredis');
  const client = new Redis(url, { lazyConnect: true, ...options });
  await client.connect();
  return client;
}

async function openIoredisEval(url) {
  const client = await connectIoredis(url);
  return {
    acquire: (name) => setWithIoredis(client, name),
    async release(name, token) {
      expect(await client.eval(RELEASE, 1, name, token), 1, 'EVAL');
    },
  };
}

async function openIoredisEvalsha(url, options) {
  const client = await connectIoredis(url, options);
  client.defineCommand('releaseLock', { numberOfKeys: 1, lua: RELEASE });
  return {
    acquire: (name) => setWithIoredis(client, name),
    async release(name, token) {
      expect(await client.releaseLock(name, token), 1, 'EVALSHA');
    },
  };
}

async function setWithIoredis(client, name) {
  const token = newToken();
  expect(await client.set(name, token, 'PX', TTL_MS, 'NX'), 'OK', 'SET');
  return token;
}

async function openNodeRedisEval(url) {
  const { createClient } = await import('redis');
  const client = await createClient({ url }).connect();
  return {
    acquire: (name) => setWithNodeRedis(client, name),
    async release(name, token) {
      expect(await client.eval(RELEASE, { keys: [name], arguments: [token] }), 1, 'EVAL');
    },
  };
}

async function openNodeRedisEvalsha(url) {
  const { createClient, defineScript } = await import('redis');
  const releaseLock = defineScript({
    SCRIPT: RELEASE,
    NUMBER_OF_KEYS: 1,
    parseCommand(parser, name, token) {
      parser.pushKey(name);
      parser.push(token);
    },
    transformReply: (reply) => reply,
  });
  const client = await createClient({ url, scripts: { releaseLock } }).connect();
  return {
    acquire: (name) => setWithNodeRedis(client, name),
    async release(name, token) {
      expect(await client.releaseLock(name, token), 1, 'EVALSHA');
    },
  };
}

async function setWithNodeRedis(client, name) {
  const token = newToken();
  const options = { condition: 'NX', expiration: { type: 'PX', value: TTL_MS } };
  expect(await client.set(name, token, options), 'OK', 'SET');
  return token;
}

async function openGlide(url) {
  const { GlideClient, Logger, Script, TimeUnit } = await import('@valkey/valkey-glide');
  // Keeps its warnings about slow moments out of the report.
  Logger.setLoggerConfig('error');
  const { hostname, port, username, password, pathname } = new URL(url);
  const credentials = {
    username: decodeURIComponent(username) || 'default',
    password: decodeURIComponent(password),
  };
  const client = await GlideClient.createClient({
    addresses: [{ host: hostname, port: Number(port || 6379) }],
    databaseId: Number(pathname.slice(1)),
    // Its default is 1000, which loading the script on top of 1000 pairs exceeds.
    inflightRequestsLimit: 4000,
    ...(password === '' ? {} : { credentials }),
  });
  const script = new Script(RELEASE);
  const options = {
    conditionalSet: 'onlyIfDoesNotExist',
    expiry: { type: TimeUnit.Milliseconds, count: TTL_MS },
  };
  return {
    async acquire(name) {
      const token = newToken();
      expect(await client.set(name, token, options), 'OK', 'SET');
      return token;
    },
    async release(name, token) {
      expect(await client.invokeScript(script, { keys: [name], args: [token] }), 1, 'script');
    },
  };
}

async function openRedlock(url) {
  const { default: Redlock } = await import('redlock');
  const redlock = new Redlock([await connectIoredis(url)]);
  return {
    acquire: (name) => redlock.acquire([name], TTL_MS),
    // Rejects unless the script deleted the key.
    release: (_name, lock) => lock.release(),
  };
}

async function openRedisSemaphore(url) {
  const { Mutex } = await import('redis-semaphore');
  const client = await connectIoredis(url);
  return {
    async acquire(name) {
      const mutex = new Mutex(client, name, { lockTimeout: TTL_MS });
      await mutex.acquire();
      expect(mutex.isAcquired, true, 'isAcquired');
      return mutex;
    },
    // Its result does not say whether it freed the lock: the check of the keys after each run does.
    async release(_name, mutex) {
      await mutex.release();
      expect(mutex.isAcquired, false, 'isAcquired');
    },
  };
}

async function openRedlockUniversal(url) {
  const { createLock, IoredisAdapter } = await import('redlock-universal');
  const adapter = new IoredisAdapter(await connectIoredis(url));
  // With its circuit breaker on, every new lock would begin with a PING.
  const settings = { adapter, ttl: TTL_MS, circuitBreaker: false };
  return {
    async acquire(name) {
      const lock = createLock({ ...settings, key: name });
      return { lock, handle: await lock.acquire() };
    },
    async release(_name, { lock, handle }) {
      expect(await lock.release(handle), true, 'release');
    },
  };
}
