/** The drop-in package for redis-semaphore: docs/redis-semaphore.md. */

import { MultiSemaphore, Mutex, Semaphore } from 'holdfast/redis-semaphore';
import type { Redis } from 'ioredis';
import { type Feature, type Preparation, type Scene, type Seen, WARM_UP } from './feature.js';
import { check, clientAt, OF_LOCKS, quit, use } from './holding.js';

type Options = NonNullable<ConstructorParameters<typeof Mutex>[2]>;

const common = {
  page: 'docs/redis-semaphore.md',
  open: async (scene: Scene): Promise<Redis> => {
    const client = clientAt(scene);
    // The first acquire has steps of its own.
    const first = new Mutex(client, WARM_UP);
    await first.acquire();
    await first.release();
    return client;
  },
  close: quit,
  promises: OF_LOCKS,
};

const timesOf = ({ ttl, wait, who }: Scene): Options => ({
  lockTimeout: ttl,
  acquireTimeout: who === 'first' ? 1_000 : wait,
  onLockLost: () => {},
});

const beliefOf = (mutex: Mutex, { name }: Scene) => ({
  key: `mutex:${name}`,
  token: mutex.identifier,
  held: () => mutex.isAcquired,
});

async function holdAndLeave(mutex: Mutex, scene: Scene): Promise<string> {
  await mutex.acquire();
  scene.note(`got ${scene.who}`);
  try {
    await use(scene, beliefOf(mutex, scene));
  } finally {
    await mutex.release();
  }
  return 'had it';
}

const take = (client: Redis, scene: Scene) =>
  holdAndLeave(new Mutex(client, scene.name, timesOf(scene)), scene);

const mutex: Feature<Redis> = {
  ...common,
  name: 'redis-semaphore: Mutex, acquire and release',
  first: take,
  second: take,
};

const FREE = 'no lock is left behind: who comes later gets it';
const CLEAN = 'a released lock leaves nothing behind';

/** Whether the caller has an error that says that the lock may be held until its lease ends. */
const isTold = ({ first }: Seen): boolean =>
  ['LockClosedError', 'LockConnectionError'].includes(first.error?.name ?? '');

/** Another process may have a value that callers choose, so nothing is released under it a second time. */
const OF_CHOSEN_VALUES = {
  ...OF_LOCKS,
  [FREE]: (seen: Seen) => isTold(seen) || OF_LOCKS[FREE]?.(seen) === true,
  [CLEAN]: (seen: Seen) => isTold(seen) || OF_LOCKS[CLEAN]?.(seen) === true,
};

const identified: Feature<Redis> = {
  ...common,
  name: 'redis-semaphore: Mutex under an identifier of its own',
  promises: OF_CHOSEN_VALUES,
  first: (client, scene) =>
    holdAndLeave(
      new Mutex(client, scene.name, { ...timesOf(scene), identifier: `job of ${scene.name}` }),
      scene,
    ),
  second: take,
};

const again: Feature<Redis> = {
  ...common,
  name: 'redis-semaphore: Mutex, taken over by its own process',
  promises: OF_CHOSEN_VALUES,
  async first(client, scene) {
    const mutex = new Mutex(client, scene.name, timesOf(scene));
    await mutex.acquire();
    const check = new Mutex(client, scene.name, {
      ...timesOf(scene),
      identifier: mutex.identifier,
      acquiredExternally: true,
      refreshInterval: 0,
    });
    try {
      await check.acquire();
      await use(scene, beliefOf(mutex, scene));
    } finally {
      await mutex.release();
    }
    return 'had it';
  },
  second: take,
};

interface Holder extends Preparation {
  readonly holder: Mutex;
}

const takeOver: Feature<Redis, Holder> = {
  ...common,
  name: 'redis-semaphore: Mutex, take-over by its identifier',
  async prepare(scene) {
    const client = clientAt({ url: scene.servers['redis'] ?? '', who: 'holder' });
    const identifier = `job of ${scene.name}`;
    const holder = new Mutex(client, scene.name, { ...timesOf(scene), identifier });
    await holder.acquire();
    const close = async () => {
      await holder.release();
      await quit(client);
    };
    return { holder, given: identifier, close };
  },
  first: (client, scene) =>
    holdAndLeave(
      new Mutex(client, scene.name, {
        ...timesOf(scene),
        identifier: scene.given as string,
        acquiredExternally: true,
      }),
      scene,
    ),
  async second(client, scene, { holder }) {
    // While the holder has it, nobody else gets it; it does not wait for its own test.
    const patience = holder.isAcquired ? { acquireAttemptsLimit: 1 } : {};
    const next = new Mutex(client, scene.name, { ...timesOf(scene), ...patience });
    const got = await next.tryAcquire();
    if (got) {
      await check({ ...scene, who: 'holder' }, beliefOf(holder, scene));
      await use(scene, beliefOf(next, scene));
    }
    await next.release();
    if (!got && !holder.isAcquired) throw new Error('nobody has the lock, and it is not free');
    return got;
  },
  promises: {
    ...OF_LOCKS,
    // From the take-over on the lock is that of the other process: the holder is not told.
    'who believes to hold the lock is its holder': (seen) =>
      seen.effects.includes('got first') ||
      !seen.effects.some((effect) => effect.startsWith('deceived')),
    // The holder keeps it until the end of the test, if it was not taken over.
    'a released lock leaves nothing behind': () => true,
  },
};

const takePermit = async (client: Redis, scene: Scene) => {
  const permit = new Semaphore(client, scene.name, 1, timesOf(scene));
  await permit.acquire();
  scene.note(`has ${scene.who}`);
  await new Promise((resolve) => setImmediate(resolve));
  if (permit.isAcquired) scene.note(`had ${scene.who}`);
  await permit.release();
  return 'had it';
};

const semaphore: Feature<Redis> = {
  ...common,
  name: 'redis-semaphore: Semaphore, acquire and release',
  page: 'docs/redis-semaphore.md',
  first: takePermit,
  second: takePermit,
};

/** So many objects that the permits go back to the server once in between. */
const OBJECTS = 20;

/** Holds permits for one turn, and notes whether it believed to hold them from its beginning to its end. */
async function holdPermits(semaphore: MultiSemaphore, scene: Scene, who: string): Promise<void> {
  await semaphore.acquire();
  scene.note(`has ${who}`);
  await new Promise((resolve) => setImmediate(resolve));
  if (semaphore.isAcquired) scene.note(`had ${who}`);
  await semaphore.release();
}

/** The largest number of those that believed at one time to hold permits, each until it noted so. */
function most({ effects }: Seen): number {
  const ended = new Set(
    effects.filter((each) => each.startsWith('had ')).map((had) => had.slice(4)),
  );
  let [holding, largest] = [0, 0];
  for (const effect of effects) {
    const [what, who = ''] = effect.split(' ');
    if (!ended.has(who)) continue;
    holding += what === 'has' ? 1 : -1;
    largest = Math.max(largest, holding);
  }
  return largest;
}

/** Permits that pass from one object of the process to the next. */
function passing(name: string, limit: number, permits: number): Feature<Redis> {
  const { 'two never hold it at once': _, ...kept } = OF_LOCKS;
  const hold = (client: Redis, scene: Scene, share: number, who: string) =>
    holdPermits(new MultiSemaphore(client, scene.name, limit, share, timesOf(scene)), scene, who);
  return {
    ...common,
    name: `redis-semaphore: ${name} within the process`,
    async first(client, scene) {
      const objects = Array.from({ length: OBJECTS }, (_, i) =>
        hold(client, scene, permits, `first:${i}`),
      );
      const ended = await Promise.allSettled(objects);
      for (const each of ended) if (each.status === 'rejected') throw each.reason;
      return 'had them';
    },
    async second(client, scene) {
      // All permits: it waits for each that is left behind.
      await hold(client, scene, limit, scene.who);
      return 'had them';
    },
    promises: {
      ...kept,
      'never more hold it at once than the limit': (seen) => most(seen) <= limit / permits,
      'without a fault each has it': ({ fault, effects }) =>
        fault !== 'none' || effects.length === 2 * (OBJECTS + 2),
    },
  };
}

const passed = [passing('a permit passes', 1, 1), passing('several permits pass', 5, 2)];

export const features: readonly Feature[] = [
  mutex,
  identified,
  again,
  takeOver,
  semaphore,
  ...passed,
];
