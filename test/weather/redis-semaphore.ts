/** The drop-in `holdfast/redis-semaphore`: a mutex and a semaphore. */

import assert from 'node:assert/strict';
import {
  type Lock,
  type LockOptions,
  LostLockError,
  Mutex,
  Semaphore,
} from 'holdfast/redis-semaphore';
import { sleep, until } from '../support/wait.js';
import type { Scene } from './scene.js';
import { weathered } from './survives.js';
import { type Adapter, type Cells, not } from './weather.js';
import { failureOf, many } from './web.js';

type Make = (scene: Scene, options?: LockOptions & { key?: string }) => Lock;

const mutex: Make = (scene, { key = scene.name, ...options } = {}) =>
  new Mutex(scene.client(), key, options);
const semaphore: Make = (scene, { key = scene.name, ...options } = {}) =>
  new Semaphore(scene.client(), key, 1, options);

/** A signal that is aborted soon. */
function gone(): AbortSignal {
  const abort = new AbortController();
  setTimeout(() => abort.abort(new Error('gone')), 20);
  return abort.signal;
}

async function assertFree(scene: Scene, make: Make): Promise<void> {
  const next = make(scene, { acquireTimeout: 20_000 });
  await next.acquire();
  await next.release();
}

function cellsOf(make: Make): Cells {
  return {
    answered: not('it answers no request'),
    async left(scene) {
      const [holder, waits] = [make(scene), make(scene)];
      await holder.acquire();
      const abort = new AbortController();
      const waiting = failureOf(() => waits.acquire(abort.signal));
      await sleep(50);
      abort.abort(new Error('the caller has left'));
      assert.match(await waiting, /the caller has left/);
      // Of one object: the one that leaves its place must not take the turn of those behind it.
      const turns = [
        waits.tryAcquire(),
        failureOf(() => waits.acquire(gone())),
        waits.tryAcquire(),
      ];
      assert.match(String(await turns[1]), /gone/);
      await holder.release();
      const [first, , last] = await Promise.all(turns);
      assert.ok(first === true || last === true, `${first} ${last}`);
      await waits.release();
      await assertFree(scene, make);
    },
    async throws(scene) {
      const lost: unknown[] = [];
      const lock = make(scene, { onLockLost: (error) => lost.push(error) });
      await lock.acquire();
      const [held = ''] = await weathered.server.admin.keys(`*${scene.name}*`);
      await weathered.server.admin.del(held);
      await until(() => lost.length === 1, 'the loss', 30_000);
      assert.ok(lost[0] instanceof LostLockError);
      assert.equal(lock.isAcquired, false);
      await assertFree(scene, make);
    },
    async refused(scene) {
      const lock = make(scene);
      await lock.acquire();
      await lock.release();
      await weathered.refuse();
      assert.match(await failureOf(() => lock.acquire()), /OOM/);
      assert.equal(lock.isAcquired, false);
      await weathered.takeAgain();
      await lock.acquire();
      await lock.release();
    },
    async hung(scene) {
      const lock = make(scene, { acquireTimeout: 500 });
      await lock.acquire();
      await lock.release();
      weathered.server.pause();
      assert.match(await failureOf(() => lock.acquire()), /LockConnectionError.*answer/);
      weathered.server.resume();
      await assertFree(scene, make);
    },
    async twice(scene) {
      const one = make(scene);
      const both = await Promise.allSettled([one.acquire(), one.acquire()]);
      assert.ok(both.some(({ status }) => status === 'fulfilled'));
      await Promise.allSettled([one.release(), one.release()]);
      assert.equal(one.isAcquired, false);
      await weathered.server.admin.del(...(await weathered.server.admin.keys('*')), 'none');
      await assertFree(scene, make);
    },
    async rubbish(scene) {
      for (const [options, cause] of [
        [{ identifier: 7 }, /identifier/],
        [{ lockTimeout: 'soon' }, /"lockTimeout" must be a number, got "soon"/],
        [{ refreshInterval: Number.NaN }, /"refreshInterval" must be a number, got number NaN/],
        [{ acquireTimeout: null }, /"acquireTimeout" must be a number, got null/],
      ] as const) {
        const acquire = async () => make(scene, options as never).acquire();
        assert.match(await failureOf(acquire), cause);
      }
      // What was never acquired is nobody's.
      await make(scene).release();
      await assertFree(scene, make);
    },
    stream: not('it has no streams'),
    stopped: {
      async first(scene) {
        const told: string[] = [];
        const onLockLost = (error: Error) => void told.push(error.name);
        const lock = make(scene, { lockTimeout: 700, onLockLost });
        const acquired = await lock.tryAcquire().catch((error: Error) => error.message);
        const believed = lock.isAcquired;
        await until(() => told.length > 0, 'the loss', 5_000).catch(() => {});
        return { acquired, believed, told: told.length };
      },
      async meanwhile(scene) {
        await assertFree(scene, make);
      },
      judge(returned) {
        const { believed } = returned as { believed: boolean };
        assert.equal(believed, false, JSON.stringify(returned));
      },
    },
    async separator(scene) {
      const keys = ['a:b', 'a', '{a}:b', 'a,b', 'a\nb', 'a b'].map((key) => `${scene.name}${key}`);
      const locks = keys.map((key) => make(scene, { key, acquireAttemptsLimit: 1 }));
      for (const lock of locks) await lock.acquire();
      for (const key of keys) {
        assert.equal(await make(scene, { key, acquireAttemptsLimit: 1 }).tryAcquire(), false);
      }
      for (const lock of locks) await lock.release();
    },
    async thousand(scene) {
      const client = scene.client();
      const of = (key: string) => {
        const options = { acquireTimeout: 60_000 };
        return make === mutex
          ? new Mutex(client, key, options)
          : new Semaphore(client, key, 1, options);
      };
      let count = 0;
      await many(1_000, async () => {
        const lock = of(scene.name);
        await lock.acquire();
        count += 1;
        await lock.release();
      });
      const locks = await many(1_000, async (i) => {
        const lock = of(`${scene.name}:${i}`);
        await lock.acquire();
        return lock;
      });
      await Promise.all(locks.map((lock) => lock.release()));
      assert.equal(count, 1_000);
      const listeners = client.eventNames().map((event) => client.listenerCount(event));
      assert.ok(Math.max(...listeners) <= 10, listeners.join());
    },
    options: not('it has managers of its own; `besideOldCode` is its own option'),
  };
}

export const adapters: readonly Adapter[] = [
  { name: 'redis-semaphore, a mutex', cells: cellsOf(mutex) },
  { name: 'redis-semaphore, a semaphore', cells: cellsOf(semaphore) },
];
