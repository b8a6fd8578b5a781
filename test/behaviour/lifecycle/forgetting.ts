/**
 * A program that takes locks in every way, keeps only the references that a way is about, has garbage
 * collected, and prints the state of the locks. Its argument is the target of `connect`.
 */

import { connect, type Lock, type LockManager } from '../../support/holdfast.js';
import { sleep, until } from '../../support/wait.js';

/** A way to take a lock. */
interface Way {
  /** Takes the lock `name`, and calls `told` if a loss is reported. Only its result is referred to. */
  take(name: string, told: () => void): Promise<unknown>;
  /** Whether a loss can be reported to a listener. */
  readonly tells?: true;
  /** The step after the first collections. */
  next?(name: string): Promise<unknown>;
}

const [, , target = ''] = process.argv;
const open = () => connect(target);
let others: LockManager;
let end = () => {};
/** Called when every lock was taken away. */
const ended = new Promise<void>((resolve) => {
  end = resolve;
});
/** Locks of `others` that have a waiter. */
const theirs = new Map<string, Lock>();

const WAYS: Readonly<Record<string, Way>> = {
  'the fence and the signal alone': {
    tells: true,
    async take(name) {
      const { fence, signal } = await (await open()).acquire(name);
      return { fence, signal };
    },
  },
  'the signal of a set alone': {
    tells: true,
    async take(name) {
      const { signal } = await (await open()).acquire([name, `${name}:2`]);
      return { signal };
    },
  },
  'a signal made of the signal': {
    tells: true,
    async take(name) {
      const { signal } = await (await open()).acquire(name);
      return { signal: AbortSignal.any([signal, new AbortController().signal]) };
    },
  },
  'a listener of the signal': {
    tells: true,
    async take(name, told) {
      (await (await open()).acquire(name)).signal.addEventListener('abort', told);
    },
  },
  'a listener of the signal of a set': {
    tells: true,
    async take(name, told) {
      (await (await open()).acquire([name, `${name}:2`])).signal.addEventListener('abort', told);
    },
  },
  'a listener of the manager': {
    tells: true,
    async take(name, told) {
      const locks = await open();
      locks.once('lost', told);
      await locks.acquire(name);
    },
  },
  'a request that waits for something': {
    tells: true,
    async take(name, told) {
      const locks = await open();
      await new Promise<void>((resolve) => {
        const request = locks.request(name, async () => {
          resolve();
          await ended;
        });
        request.catch(told);
      });
    },
  },
  'a request that waits for what nobody can bring': {
    async take(name) {
      const locks = await open();
      await new Promise<void>((resolve) => {
        void locks.request(name, async () => {
          resolve();
          await new Promise(() => {});
        });
      });
    },
  },
  'a nested request that listens': {
    tells: true,
    async take(name, told) {
      const locks = await open();
      await new Promise<void>((resolve) => {
        void locks.request(name, () =>
          locks.request(name, { reentrant: true }, async ({ signal }) => {
            signal.onabort = told;
            resolve();
            await new Promise(() => {});
          }),
        );
      });
    },
  },
  'nothing, of a lock that is renewed': {
    take: async (name) => void (await (await open()).acquire(name, { ttl: 2_000 })),
  },
  'nothing, of a lock without renewal': {
    take: async (name) => void (await (await open()).acquire(name, { renew: false, ttl: 60_000 })),
  },
  'nothing, of a lock that is left to expire': {
    take: async (name) =>
      void (await (await open()).acquire(name, { renew: false, ttl: 60_000, leaveToExpire: true })),
  },
  'nothing, of a lock that was tried': {
    take: async (name) => void (await (await open()).tryAcquire(name)),
  },
  'nothing, of a share': {
    take: async (name) => void (await (await open()).acquire(name, { mode: 'shared' })),
  },
  'nothing, of a permit': {
    take: async (name) => void (await (await open()).acquire(name, { mode: 'shared', limit: 2 })),
  },
  'nothing, of a lock that was adopted': {
    async take(name) {
      const message = (await others.acquire(name)).toJSON();
      await (await open()).adopt(message);
    },
  },
  'nothing, of several locks': {
    take: async (name) => void (await (await open()).acquire([`${name}:2`, name])),
  },
  'nothing, of an acquire that waits': {
    async take(name) {
      theirs.set(name, await others.acquire(name));
      const locks = await open();
      void locks.acquire(name, { wait: 60_000 });
      await until(() => locks.stats().waiting === 1, 'it to wait');
    },
    async next(name) {
      await theirs.get(name)?.release();
    },
  },
};

const waste: object[][] = [];

/** Collects garbage with the flag --expose-gc; otherwise makes garbage until a full collection runs. */
const collect =
  globalThis.gc ??
  (() => {
    waste.push(Array.from({ length: 100_000 }, (_, i) => ({ i })));
    if (waste.length > 8) waste.length = 0;
  });

/** Waits until all unreferenced objects were collected. */
async function collected(): Promise<void> {
  const old: { it: object | undefined } = { it: {} };
  const witness = new WeakRef(old.it as object);
  for (let turn = 0; turn < 3; turn++) {
    collect();
    await sleep(1);
  }
  old.it = undefined;
  await sleep(1);
  await until(() => {
    collect();
    return witness.deref() === undefined;
  }, 'a collection');
}

async function main(): Promise<void> {
  others = await open();
  const ways = Object.entries(WAYS).map(([title, way], i) => ({ title, ...way, name: `way:${i}` }));
  const told = new Set<string>();
  const kept = new Map<string, { signal?: AbortSignal } | undefined>();
  for (const { title, name, take } of ways) {
    kept.set(title, (await take(name, () => told.add(title))) as { signal?: AbortSignal });
  }
  // Each collection frees objects to which those of the one before referred.
  for (let round = 0; round < 3; round++) await collected();
  await Promise.all(ways.map(({ next, name }) => next?.(name)));
  for (let round = 0; round < 3; round++) await collected();
  // An abandoned lock is not released at once, nor renewed.
  await sleep(2_500);
  const held = new Set<string>();
  for (const { title, name } of ways) {
    if ((await others.tryAcquire(name)) === null) held.add(title);
  }
  for (const { name } of ways) await others.forceRelease(name);
  // A callback that ends before its manager has heard of the loss ends in time.
  await sleep(1_000);
  end();
  const knows = (title: string) => told.has(title) || kept.get(title)?.signal?.aborted === true;
  const all = () => ways.every(({ title, tells }) => !tells || knows(title));
  await until(all, 'all to be told', 5_000).catch(() => {});
  const lines = ways.map(({ title, tells }) => {
    const silent = tells && !knows(title) ? ', nobody was told of its loss' : '';
    return `${title}: ${held.has(title) ? 'held' : 'given up'}${silent}`;
  });
  console.log(lines.join('\n'));
  process.exit(0);
}

void main();
