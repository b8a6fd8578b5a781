// The libraries with locks that several may hold. Each has its default settings and the same lease.

const TTL_MS = 10_000;
const PATIENCE_MS = 600_000;
const PERMITS = 10;

export const PEERS = [
  { id: 'holdfast, exclusive', open: (url) => openHoldfast(url, {}) },
  { id: 'holdfast, shared', open: (url) => openHoldfast(url, { mode: 'shared' }) },
  {
    id: 'holdfast, limit 10',
    open: (url) => openHoldfast(url, { mode: 'shared', limit: PERMITS }),
  },
  { id: 'redis-semaphore, limit 10', open: openRedisSemaphore },
];

async function openHoldfast(url, options) {
  const { connect } = await import('../../dist/index.mjs');
  const locks = await connect(url, { ttl: TTL_MS, wait: PATIENCE_MS });
  return {
    acquire: (name) => locks.acquire(name, options),
    async release(_name, lock) {
      if (!(await lock.release())) throw new Error('release found the lock lost');
    },
  };
}

async function openRedisSemaphore(url) {
  const { Redis } = await import('ioredis');
  const { Semaphore } = await import('redis-semaphore');
  const client = new Redis(url, { lazyConnect: true });
  await client.connect();
  const settings = { lockTimeout: TTL_MS, acquireTimeout: PATIENCE_MS };
  return {
    async acquire(name) {
      const semaphore = new Semaphore(client, name, PERMITS, settings);
      await semaphore.acquire();
      return semaphore;
    },
    release: (_name, semaphore) => semaphore.release(),
  };
}
