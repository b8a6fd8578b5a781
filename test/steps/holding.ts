/** What the lists of locks have in common: how a caller uses a lock, and what is promised of any lock. */

import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { connect, type LockManager } from '../support/holdfast.js';
import { type Promised, type Scene, type Seen, WARM_UP } from './feature.js';

/** How long a process under test waits for an answer, in ms. */
export const COMMAND_MS = 1_000;

/** Opens a manager. The first acquire of one has more steps than those that follow, which are the usual ones. */
export async function openManager({ url, who }: Scene): Promise<LockManager> {
  const locks = await connect(url, who === 'first' ? { commandTimeout: COMMAND_MS } : {});
  await warmUp(locks);
  return locks;
}

/** Does what only the first acquire does. If it fails, on a machine that is short of CPU, the next one is the first. */
export async function warmUp(locks: LockManager): Promise<void> {
  await locks.request(WARM_UP, () => {}).catch(() => {});
}

/** A client of ioredis; one of a first caller gives up. */
export function clientAt({ url, who }: Pick<Scene, 'url' | 'who'>): Redis {
  const impatient = { commandTimeout: COMMAND_MS, maxRetriesPerRequest: 1 };
  const client = new Redis(url, who === 'first' ? impatient : {});
  client.on('error', () => {});
  return client;
}

/** A client of node-redis; one of a first caller gives up. */
export async function nodeRedisAt({ url, who }: Pick<Scene, 'url' | 'who'>) {
  const socket = who === 'first' ? { socketTimeout: COMMAND_MS } : {};
  const client = createClient({ url, socket });
  client.on('error', () => {});
  try {
    await client.connect();
  } catch (error) {
    client.destroy();
    throw error;
  }
  return client;
}

/** Ends a client, also one that is not connected. */
export async function quit(client: Redis): Promise<void> {
  await client.quit().catch(() => client.disconnect());
}

/** What a caller believes. */
export interface Belief {
  readonly key: string;
  readonly token: string;
  /** Whether it is the holder, as far as it knows. */
  held(): boolean;
}

/**
 * Uses a lock: writes down that the caller has it, and has had it, and `deceived` if the caller believes to hold
 * the lock while the store has another holder.
 */
export async function use(scene: Scene, belief: Belief): Promise<void> {
  if (!belief.held()) return;
  scene.note(`has ${scene.who}`);
  await check(scene, belief);
  scene.note(`had ${scene.who}`);
}

/** Writes `deceived` down if somebody believes what is not so. */
export async function check(scene: Scene, { key, token, held }: Belief): Promise<void> {
  const reader = new Redis(scene.servers['redis'] ?? '');
  try {
    const before = held();
    const value = await reader.get(key);
    if (before && held() && value !== token && value !== `${token}+`) {
      scene.note(`deceived ${token}, the lock has ${value}`);
    }
  } finally {
    reader.disconnect();
  }
}

/** Keys that stay for half a minute after the last waiter. */
const OF_A_QUEUE = /:(queue|waiting|waiters|shared)$/;

function hasResult(seen: Seen, who: 'first' | 'second' | 'again'): boolean {
  return seen[who].error === undefined && seen[who].killed === undefined;
}

/** What is promised of any lock. */
export const OF_LOCKS: Readonly<Record<string, Promised<unknown>>> = {
  'a call ends': ({ first, second, again }) =>
    [first, second, again].every(({ error }) => error?.name !== 'Never'),
  'no lock is left behind: who comes later gets it': (seen) =>
    hasResult(seen, 'second') && hasResult(seen, 'again'),
  'who believes to hold the lock is its holder': ({ effects }) =>
    !effects.some((effect) => effect.startsWith('deceived')),
  'two never hold it at once': ({ fault, effects }) => {
    let holder = '';
    return effects.every((effect) => {
      const [what, who = ''] = effect.split(' ');
      if (what === 'had') holder = holder === who ? '' : holder;
      if (what !== 'has') return true;
      // One that was stopped or killed does not end its use.
      const alone = holder === '' || fault.startsWith('process');
      holder = who;
      return alone;
    });
  },
  'a released lock leaves nothing behind': ({ store }) =>
    Object.keys(store).every((key) => OF_A_QUEUE.test(key) || key.startsWith('data:')),
};
