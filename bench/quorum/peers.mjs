// The libraries that lock on several servers. Each is used as its documentation shows, with default settings and the
// same lease; imports stay inside `open`.

const TTL_MS = 10_000;

export const PEERS = [
  { id: 'holdfast', open: openHoldfast },
  { id: 'redlock', open: openRedlock },
  { id: 'redlock-universal', open: openRedlockUniversal },
];

async function openHoldfast(urls) {
  const { connect } = await import('../../dist/index.mjs');
  // These servers were started a moment ago, and have forgotten nothing.
  const locks = await connect({ quorum: urls }, { ttl: TTL_MS, longestLease: 0 });
  // Nor will they be restarted.
  locks.on('warning', () => {});
  return {
    acquire: (name) => locks.acquire(name),
    async release(_name, lock) {
      if (!(await lock.release())) throw new Error('release answered false');
    },
  };
}

async function openRedlock(urls) {
  const { default: Redlock } = await import('redlock');
  const redlock = new Redlock(await connectAll(urls));
  return {
    acquire: (name) => redlock.acquire([name], TTL_MS),
    release: (_name, lock) => lock.release(),
  };
}

async function openRedlockUniversal(urls) {
  const { createRedlock, IoredisAdapter } = await import('redlock-universal');
  const adapters = (await connectAll(urls)).map((client) => new IoredisAdapter(client));
  return {
    async acquire(name) {
      const lock = createRedlock({ adapters, key: name, ttl: TTL_MS });
      return { lock, handle: await lock.acquire() };
    },
    async release(_name, { lock, handle }) {
      if (!(await lock.release(handle))) throw new Error('release answered false');
    },
  };
}

async function connectAll(urls) {
  const { Redis } = await import('ioredis');
  const clients = urls.map((url) => new Redis(url, { lazyConnect: true }));
  await Promise.all(clients.map((client) => client.connect()));
  return clients;
}
