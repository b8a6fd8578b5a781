/** Guards of data in Redis: docs/fencing.md. The lock is on a connection that no fault meets, the data behind the wire. */

import { fencedEval, fencedSet } from 'holdfast/fence';
import type { Redis } from 'ioredis';
import { connect, type Lock, type LockManager } from '../support/holdfast.js';
import type { Feature, Outcome, Promised, Scene } from './feature.js';
import { clientAt, nodeRedisAt, quit } from './holding.js';

type Client = Parameters<typeof fencedSet>[0];

interface Guarded {
  readonly locks: LockManager;
  readonly client: Client;
  end(): Promise<unknown>;
}

interface Read {
  readonly read: string | null;
}

/** Reads what the last owner wrote, and writes its own name. */
async function readAndWrite({ client, locks }: Guarded, scene: Scene): Promise<Read> {
  const { ttl, wait } = scene;
  const lock: Lock = await locks.acquire(scene.name, { ttl, wait, renew: false });
  try {
    const key = `data:${scene.name}`;
    const get = "return redis.call('GET', KEYS[1])";
    const read = (await fencedEval(client, lock, get, { keys: [key] })) as string | null;
    await fencedSet(client, lock, key, scene.who);
    return { read };
  } finally {
    await lock.release();
  }
}

const readOf = ({ value }: Outcome) => (value as Read | undefined)?.read;

/** What is promised of any data that are guarded by a fence. */
export const OF_FENCES: Readonly<Record<string, Promised<unknown>>> = {
  'a call ends': ({ first, second, again }) =>
    [first, second, again].every(({ error }) => error?.name !== 'Never'),
  'later owners are not refused': ({ second, again }) =>
    second.error === undefined && again.error === undefined,
  'a late owner learns that it is late': ({ first, second }) =>
    first.error?.name !== 'StaleFenceError' || second.error === undefined,
};

const promises: Readonly<Record<string, Promised<unknown>>> = {
  ...OF_FENCES,
  'a write that was reported is what the next owner reads': ({ first, second }) =>
    first.value === undefined || readOf(second) === 'first',
  'once a later owner has read, no write of a former one is accepted': ({ again, store }) =>
    readOf(again) === 'second' &&
    Object.entries(store).some(([key, value]) => key.startsWith('data:') && value === 'again'),
  'a write is whole, or not there': ({ second }) =>
    [null, 'first'].includes(readOf(second) as string | null),
};

const guarded = {
  page: 'docs/fencing.md, Guards',
  close: async ({ locks, end }: Guarded) => {
    await locks.close();
    await end();
  },
  first: readAndWrite,
  second: readAndWrite,
  promises,
};

const byIoredis: Feature<Guarded> = {
  ...guarded,
  name: 'fencedEval and fencedSet with ioredis',
  async open(scene) {
    const client: Redis = clientAt(scene);
    return { locks: await connect(scene.servers['redis']), client, end: () => quit(client) };
  },
};

const byNodeRedis: Feature<Guarded> = {
  ...guarded,
  name: 'fencedEval and fencedSet with node-redis',
  async open(scene) {
    const client = await nodeRedisAt(scene);
    const end = async () => client.destroy();
    return { locks: await connect(scene.servers['redis']), client, end };
  },
};

export const features: readonly Feature[] = [byIoredis, byNodeRedis];
