// The drop-in packages beside the libraries whose API they have. Both sides run the same code, but for the import; each
// has one client, or one per server.

const TTL_MS = 10_000;
const PATIENCE_MS = 600_000;
const LIMIT = 10;
const PERMITS = 2;
/** Polls as often as a caller would who wants a busy lock soon. */
const REDLOCK = { retryCount: -1, retryDelay: 10, retryJitter: 5 };
const TIMES = { lockTimeout: TTL_MS, acquireTimeout: PATIENCE_MS };

/** The core, whose CPU time is the measure of the drop-ins. */
const CORE = 'holdfast';

/** The core on as many servers as a drop-in, and with as many permits. */
export const coreOf = ({ servers = 1, limit = 1, permits = 1 }) =>
  `${CORE}, ${[servers, limit, permits].join(' ')}`;

/**
 * `id`: the class. `original` and `dropIn`: imports of the module that has it. `use(module, clients)` answers `acquire(name)`,
 * and `release(name, lock)`. `servers`: how many it locks on. `limit` and `permits`: of a semaphore.
 */
export const DROP_INS = [
  {
    id: 'redlock 5',
    original: () => import('redlock5'),
    dropIn: () => import('../../dist/adapters/redlock/index.mjs'),
    use: useRedlock5,
  },
  {
    id: 'redlock 4',
    original: () => import('redlock4'),
    dropIn: () => import('../../dist/adapters/redlock4/index.mjs'),
    use: useRedlock4,
  },
  ofRedisSemaphore('Mutex', {}, ({ Mutex }, [client], name) => new Mutex(client, name, TIMES)),
  ofRedisSemaphore(
    'Semaphore',
    { limit: LIMIT },
    ({ Semaphore }, [client], name) => new Semaphore(client, name, LIMIT, TIMES),
  ),
  ofRedisSemaphore(
    'MultiSemaphore',
    { limit: LIMIT, permits: PERMITS },
    ({ MultiSemaphore }, [client], name) => new MultiSemaphore(client, name, LIMIT, PERMITS, TIMES),
  ),
  ofRedisSemaphore(
    'RedlockMutex',
    { servers: 3 },
    ({ RedlockMutex }, clients, name) => new RedlockMutex(clients, name, TIMES),
  ),
];

/** Opens a side of a drop-in, or the core, which needs no client of a service. */
export async function open(id, side, urls) {
  if (id === CORE) return openCore(urls, ...side.split(' ').map(Number));
  const { [side]: load, use, servers = 1 } = DROP_INS.find((each) => each.id === id);
  const module = await load();
  return use(module, await clientsOf(urls.slice(0, servers)));
}

async function openCore(urls, servers, limit, permits) {
  const { connect } = await import('../../dist/index.mjs');
  const locks = await connect(servers === 1 ? urls[0] : { quorum: urls.slice(0, servers) }, {
    ttl: TTL_MS,
    wait: PATIENCE_MS,
  });
  const options = limit === 1 ? undefined : { mode: 'shared', limit, permits };
  return {
    acquire: (name) => locks.acquire(name, options),
    release: (_name, lock) => lock.release(),
  };
}

function useRedlock5({ default: Redlock }, clients) {
  const redlock = new Redlock(clients, REDLOCK);
  redlock.on('error', () => {});
  return {
    acquire: (name) => redlock.acquire([name], TTL_MS),
    release: (_name, lock) => lock.release(),
  };
}

function useRedlock4({ default: Redlock }, clients) {
  const redlock = new Redlock(clients, REDLOCK);
  return {
    acquire: (name) => redlock.lock(name, TTL_MS),
    release: (_name, lock) => lock.unlock(),
  };
}

function ofRedisSemaphore(id, terms, make) {
  return {
    id,
    ...terms,
    original: () => import('redis-semaphore'),
    dropIn: () => import('../../dist/adapters/redis-semaphore/index.mjs'),
    use: (module, clients) => ({
      async acquire(name) {
        const lock = make(module, clients, name);
        await lock.acquire();
        return lock;
      },
      release: (_name, lock) => lock.release(),
    }),
  };
}

async function clientsOf(urls) {
  const { Redis } = await import('ioredis');
  const clients = urls.map((url) => new Redis(url, { lazyConnect: true }));
  await Promise.all(clients.map((client) => client.connect()));
  return clients;
}
