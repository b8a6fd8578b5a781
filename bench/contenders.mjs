// The libraries that can wait for a held lock. `open` connects and returns
//   ask(name)      the promise of the library itself, or one step from it, for the argument of `release`
//   release(lock)  rejects unless it really freed the lock, as far as the library reports it
// Each has the same lease, and waits longer than any run; its other settings are the defaults,
// unless its id says otherwise.

const TTL_MS = 10_000;
const PATIENCE_MS = 600_000;

/**
 * `sends`: the commands that it sends itself; none of its scripts calls them, so that they can be
 * told from those that run inside of scripts.
 */
export const CONTENDERS = [
  { id: 'holdfast', sends: ['evalsha', 'eval'], open: openHoldfast },
  // Waits 10 ms between attempts by default.
  { id: 'redis-semaphore', sends: ['evalsha', 'eval', 'set'], open: openRedisSemaphore },
  { id: 'redlock', sends: ['evalsha', 'eval'], open: openRedlock },
  {
    id: 'redlock, 10 ms retry',
    sends: ['evalsha', 'eval'],
    open: (url) => openRedlock(url, { retryDelay: 10, retryJitter: 5 }),
  },
  { id: 'redlock-universal', sends: ['evalsha', 'eval', 'set'], open: openRedlockUniversal },
];

export const OWN = 'holdfast';

export function contenderCalled(wanted) {
  return CONTENDERS.find(({ id }) => id === wanted);
}

async function openHoldfast(url) {
  const { connect } = await import('../dist/index.mjs');
  const locks = await connect(url, { ttl: TTL_MS, wait: PATIENCE_MS });
  return {
    ask: (name) => locks.acquire(name),
    async release(lock) {
      if (!(await lock.release())) throw new Error('release found the lock lost');
    },
    stats: () => locks.stats(),
  };
}

async function openRedisSemaphore(url) {
  const { Mutex } = await import('redis-semaphore');
  const client = await connectIoredis(url);
  const settings = { lockTimeout: TTL_MS, acquireTimeout: PATIENCE_MS };
  return {
    ask(name) {
      const mutex = new Mutex(client, name, settings);
      return mutex.acquire().then(() => mutex);
    },
    release: (mutex) => mutex.release(),
  };
}

async function openRedlock(url, settings = {}) {
  const { default: Redlock } = await import('redlock');
  const redlock = new Redlock([await connectIoredis(url)], { retryCount: -1, ...settings });
  return {
    ask: (name) => redlock.acquire([name], TTL_MS),
    release: (lock) => lock.release(),
  };
}

async function openRedlockUniversal(url) {
  const { createLock, IoredisAdapter } = await import('redlock-universal');
  const adapter = new IoredisAdapter(await connectIoredis(url));
  const settings = {
    adapter,
    ttl: TTL_MS,
    circuitBreaker: false,
    retryAttempts: Number.MAX_SAFE_INTEGER,
  };
  return {
    ask(name) {
      const lock = createLock({ ...settings, key: name });
      return lock.acquire().then((handle) => ({ lock, handle }));
    },
    async release({ lock, handle }) {
      if (!(await lock.release(handle))) throw new Error('release found the lock lost');
    },
  };
}

async function connectIoredis(url) {
  const { Redis } = await import('ioredis');
  const client = new Redis(url, { lazyConnect: true });
  await client.connect();
  return client;
}
