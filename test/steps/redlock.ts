/** The drop-in packages for redlock 5 and 4: docs/redlock.md. */

import { Lock, Redlock } from 'holdfast/redlock';
import Redlock4 from 'holdfast/redlock4';
import type { Redis } from 'ioredis';
import { type Feature, type Preparation, type Scene, WARM_UP } from './feature.js';
import { clientAt, OF_LOCKS, quit, use } from './holding.js';

interface Five {
  readonly client: Redis;
  readonly redlock: Redlock;
}

const five: Pick<Feature<Five>, 'page' | 'leavesLocks' | 'open' | 'close' | 'promises'> = {
  page: 'docs/redlock.md',
  // `quit` leaves locks to expire.
  leavesLocks: ['closes'],
  open: async (scene: Scene): Promise<Five> => {
    const { wait } = scene;
    const client = clientAt(scene);
    const redlock = new Redlock([client], { retryCount: wait / 100, retryDelay: 100 });
    // The first acquire has steps of its own.
    await (await redlock.acquire([WARM_UP], 1_000)).release();
    return { client, redlock };
  },
  close: async ({ redlock, client }: Five) => {
    await redlock.quit().catch(() => {});
    await quit(client);
  },
  promises: OF_LOCKS,
};

/** How a first caller tries: not for as long as the second. */
const SOON = { retryCount: 2, retryDelay: 100 };

const beliefOf = (lock: Lock) => ({
  key: lock.resources[0] ?? '',
  token: lock.value,
  held: () => lock.expiration > Date.now(),
});

async function takeBy({ redlock }: Five, scene: Scene): Promise<string> {
  const lock = await redlock.acquire([scene.name], scene.ttl);
  await use(scene, beliefOf(lock));
  await lock.release();
  return 'had it';
}

const acquire: Feature<Five> = {
  ...five,
  name: 'redlock 5: acquire, extend, release',
  async first({ redlock }, scene) {
    let lock = await redlock.acquire([scene.name], scene.ttl, SOON);
    try {
      await use(scene, beliefOf(lock));
      lock = await redlock.extend(lock, scene.ttl + 1_000, SOON);
      await use(scene, beliefOf(lock));
    } finally {
      await lock.release();
    }
    return 'had it';
  },
  second: takeBy,
};

const using: Feature<Five> = {
  ...five,
  name: 'redlock 5: using',
  async first({ redlock }, scene) {
    return redlock.using(
      [scene.name],
      scene.ttl,
      { ...SOON, automaticExtensionThreshold: 100 },
      async (signal) => {
        scene.note('has first');
        await new Promise((resolve) => setImmediate(resolve));
        if (!signal.aborted) scene.note('had first');
        return 'had it';
      },
    );
  },
  second: takeBy,
};

const resourcesOf = ({ name }: Scene) => [`${name}a`, `${name}b`];

async function takeTwo({ redlock }: Five, scene: Scene): Promise<string> {
  const settings = scene.who === 'first' ? SOON : {};
  const lock = await redlock.acquire(resourcesOf(scene), scene.ttl, settings);
  for (const key of lock.resources) await use(scene, { ...beliefOf(lock), key });
  await lock.release();
  return 'had both';
}

const two: Feature<Five> = {
  ...five,
  name: 'redlock 5: two resources',
  first: takeTwo,
  second: takeTwo,
};

interface Told extends Preparation {
  readonly holder: Lock;
}

/** A lock of another process, by its value alone: `extend` and `release` take it over. */
const byValue: Feature<Five, Told> = {
  ...five,
  name: 'redlock 5: a lock of another process, by its value',
  async prepare(scene) {
    const client = clientAt({ url: scene.servers['redis'] ?? '', who: 'holder' });
    const redlock = new Redlock([client]);
    // Longer than a process takes to start.
    const holder = await redlock.acquire([scene.name], Math.max(scene.ttl, 3_000));
    const { resources, value, expiration } = holder;
    const close = async () => {
      await redlock.quit().catch(() => {});
      await quit(client);
    };
    return { holder, given: { resources, value, expiration }, close };
  },
  async first({ redlock }, scene) {
    const { resources, value, expiration } = scene.given as Lock;
    let lock = new Lock(redlock, resources, value, [], expiration);
    try {
      lock = await redlock.extend(lock, scene.ttl + 1_000, SOON);
    } finally {
      await lock.release();
    }
    return 'released it';
  },
  async second({ redlock }, scene, { holder }) {
    // If the first could not release it, its owner does so before the next caller.
    if (scene.who === 'again') await holder.release();
    const isKept = holder.expiration - Date.now() > scene.wait;
    const settings = scene.who === 'second' && isKept ? SOON : {};
    const lock = await redlock.acquire([scene.name], scene.ttl, settings);
    await use(scene, beliefOf(lock));
    await lock.release();
    return 'had it';
  },
  promises: {
    ...OF_LOCKS,
    'no lock is left behind: who comes later gets it': ({ again }) => again.error === undefined,
    'a release that is reported has freed the lock': ({ first, second }) =>
      first.error !== undefined || first.killed === true || second.error === undefined,
  },
};

type Four = { readonly client: Redis; readonly redlock: Redlock4 };

const four: Feature<Four> = {
  name: 'redlock 4: lock, extend, unlock',
  page: 'docs/redlock.md',
  leavesLocks: ['closes'],
  open: async (scene) => {
    const { wait, who } = scene;
    const client = clientAt(scene);
    const retries = who === 'first' ? SOON : { retryCount: wait / 100, retryDelay: 100 };
    const redlock = new Redlock4([client], retries);
    redlock.on('clientError', () => {});
    await (await redlock.lock(WARM_UP, 1_000)).unlock();
    return { client, redlock };
  },
  close: async ({ redlock, client }) => {
    await Promise.resolve(redlock.quit()).catch(() => {});
    await quit(client);
  },
  async first({ redlock }, scene) {
    const lock = await redlock.lock(scene.name, scene.ttl);
    const belief = () => ({
      key: scene.name,
      token: lock.value ?? '',
      held: () => lock.expiration > Date.now(),
    });
    try {
      await use(scene, belief());
      await lock.extend(scene.ttl + 1_000);
      await use(scene, belief());
    } finally {
      await lock.unlock();
    }
    return 'had it';
  },
  async second({ redlock }, scene) {
    const lock = await redlock.lock(scene.name, scene.ttl);
    const held = () => lock.expiration > Date.now();
    await use(scene, { key: scene.name, token: lock.value ?? '', held });
    await lock.unlock();
    return 'had it';
  },
  promises: OF_LOCKS,
};

export const features: readonly Feature[] = [acquire, using, two, byValue, four];
