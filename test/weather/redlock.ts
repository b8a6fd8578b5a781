/** The drop-ins `holdfast/redlock` and `holdfast/redlock4`. */

import assert from 'node:assert/strict';
import { ExecutionError, Redlock, type Settings } from 'holdfast/redlock';
import { sleep, until } from '../support/wait.js';
import type { Scene } from './scene.js';
import { weathered } from './survives.js';
import { type Adapter, type Cells, not } from './weather.js';
import { failureOf, gate, many, messageOf } from './web.js';

import Redlock4 = require('holdfast/redlock4');

const LEASE_MS = 10_000;
const FEW = { retryCount: 2, retryDelay: 50, retryJitter: 0 };

/** What both versions can do, in one form. */
interface Api {
  acquire(name: string | string[], ttl?: number): Promise<{ release(): Promise<unknown> }>;
  /** With the event of errors. */
  listen(listener: (error: Error) => void): void;
  unlisten(): void;
}

type Make = (scene: Scene, settings?: Partial<Settings>) => Api;

const five: Make = (scene, settings = FEW) => {
  const redlock = new Redlock([scene.client()], settings);
  return {
    acquire: (name, ttl = LEASE_MS) => redlock.acquire([name].flat(), ttl),
    listen: (listener) => redlock.on('error', listener),
    unlisten: () => redlock.removeAllListeners('error').on('error', () => {}),
  };
};

const four: Make = (scene, settings = FEW) => {
  const redlock = new Redlock4([scene.client()], settings);
  return {
    async acquire(name, ttl = LEASE_MS) {
      const lock = await redlock.lock(name, ttl);
      return { release: async () => lock.unlock() };
    },
    listen: (listener) => redlock.on('clientError', listener),
    unlisten: () => redlock.removeAllListeners('clientError'),
  };
};

/** What remains of a key whose locks were released. */
async function assertFree(name: string): Promise<void> {
  await until(async () => (await weathered.server.admin.exists(name)) === 0, `${name} to be free`);
}

function cellsOf(make: Make, own: Pick<Cells, 'rubbish' | 'stopped' | 'throws'>): Cells {
  return {
    ...own,
    answered: not('it answers no request'),
    async left(scene) {
      const [one, other] = [make(scene), make(scene, { ...FEW, retryCount: 1_000 })];
      const lock = await one.acquire(scene.name);
      const waits = failureOf(() => other.acquire(scene.name));
      // The end of the clients ends the wait, and the locks of renewed ones.
      await sleep(50);
      await scene.end();
      assert.match(await waits, /clients were closed/);
      await assertReleasedLater(lock, scene.name);
    },
    async refused(scene) {
      const api = make(scene);
      await (await api.acquire(scene.name)).release();
      const told: string[] = [];
      api.listen((error) => told.push(error.message));
      await weathered.refuse();
      assert.match(await failureOf(() => api.acquire(scene.name)), /OOM/);
      assert.ok(told.some((message) => /OOM/.test(message)));
      await weathered.takeAgain();
      await (await api.acquire(scene.name)).release();
      await assertFree(scene.name);
    },
    async hung(scene) {
      const api = make(scene, { ...FEW, retryCount: 0 });
      await (await api.acquire(scene.name)).release();
      weathered.server.pause();
      assert.match(await failureOf(() => api.acquire(scene.name)), /LockConnectionError.*answer/);
      weathered.server.resume();
      const patient = make(scene, { ...FEW, retryCount: 100 });
      await (await patient.acquire(scene.name)).release();
      await assertFree(scene.name);
    },
    async twice(scene) {
      const api = make(scene, { ...FEW, retryCount: 100 });
      let inside = 0;
      const enter = async () => {
        const lock = await api.acquire(scene.name);
        inside += 1;
        await sleep(5);
        assert.equal(inside, 1);
        inside -= 1;
        await lock.release();
      };
      await Promise.all([enter(), enter()]);
      const lock = await api.acquire(scene.name);
      const both = await Promise.allSettled([lock.release(), lock.release()]);
      assert.equal(both[0]?.status, 'fulfilled');
      await assertFree(scene.name);
    },
    stream: not('it has no streams'),
    async separator(scene) {
      const api = make(scene);
      const names = ['a,b', 'a', 'b', 'a, b', '{a}:b', 'a\nb', 'a:b'].map(
        (n) => `${scene.name}${n}`,
      );
      const locks = [];
      for (const name of names) locks.push(await api.acquire(name));
      for (const name of names)
        assert.match(await failureOf(() => api.acquire(name)), /LockTimeout/);
      for (const lock of locks) await lock.release();
      const all = await api.acquire(names);
      for (const name of names)
        assert.match(await failureOf(() => api.acquire(name)), /LockTimeout/);
      await all.release();
      for (const name of names) await assertFree(name);
    },
    async thousand(scene) {
      const api = make(scene, { ...FEW, retryCount: 10_000 });
      const client = scene.client();
      let count = 0;
      await many(1_000, async () => {
        const lock = await api.acquire(scene.name);
        count += 1;
        await lock.release();
      });
      assert.equal(count, 1_000);
      const locks = await many(1_000, (i) => api.acquire(`${scene.name}:${i}`));
      await Promise.all(locks.map((lock) => lock.release()));
      assert.deepEqual(await client.keys(`${scene.name}:*`), []);
      // Some services make one for each request, with the same client.
      const events = client.eventNames().map((event) => client.listenerCount(event));
      for (let i = 0; i < 1_000; i++) {
        const each = new Redlock([client], FEW);
        if (i % 100 === 0) await (await each.acquire([scene.name], LEASE_MS)).release();
      }
      const after = client.eventNames().map((event) => client.listenerCount(event));
      const more = after.reduce((a, b) => a + b, 0) - events.reduce((a, b) => a + b, 0);
      assert.ok(more <= 1, `${more} listeners are left on the client`);
    },
    options: not('it has managers of its own; `besideOldCode` is its own setting'),
  };
}

/** A lock of clients that have ended is left to expire, as its page says; here it is removed. */
async function assertReleasedLater(lock: { release(): Promise<unknown> }, name: string) {
  await lock.release().catch(() => {});
  await weathered.server.admin.del(name);
}

/** A listener that throws changes no outcome: its error is one of the process. */
async function listenerThrows(scene: Scene, make: Make): Promise<void> {
  const [holder, api, other] = [make(scene), make(scene), make(scene)];
  const lock = await holder.acquire(scene.name);
  for (const each of [api, other]) await (await each.acquire(`${scene.name}:own`)).release();
  const listener = () => {
    throw new Error('the listener failed');
  };
  api.listen(listener);
  scene.after(() => api.unlisten());
  const told: Error[] = [];
  other.listen((error) => told.push(error));
  await weathered.refuse();
  scene.expectUncaught(/the listener failed/);
  assert.match(await failureOf(() => api.acquire(`${scene.name}:own`)), /OOM/);
  await weathered.takeAgain();
  await weathered.server.killClients();
  await until(() => told.length > 0, 'the others to be told of the loss of the connection');
  await until(
    async () =>
      (await lock.release().then(
        () => true,
        () => false,
      )) || true,
    'the release',
  );
  await assertFree(scene.name);
}

const own5: Pick<Cells, 'rubbish' | 'stopped' | 'throws'> = {
  async throws(scene) {
    const redlock = new Redlock([scene.client()], FEW);
    const fails = async () => assert.fail('the routine failed');
    assert.match(
      await failureOf(() => redlock.using([scene.name], 5_000, fails)),
      /routine failed/,
    );
    await assertFree(scene.name);
    await listenerThrows(scene, five);
  },
  async rubbish(scene) {
    const redlock = new Redlock([scene.client()], FEW);
    for (const value of [undefined, 7, null, { a: 5 }]) {
      const routine = (() => value) as never;
      assert.deepEqual(await redlock.using([scene.name], 5_000, routine), value);
    }
    await assertFree(scene.name);
    for (const [names, ttl] of [
      [[], 5_000],
      [[''], 5_000],
      ['a', 5_000],
      [['a'], Number.NaN],
      [['a'], '5s'],
    ]) {
      const wrong = () => redlock.acquire(names as never, ttl as never);
      assert.match(
        await failureOf(wrong),
        /^(Type|Range)?Error: .*(names|name|resources|[dD]uration)/,
      );
    }
    const noClient = new Redlock([undefined as never], FEW);
    assert.match(await failureOf(() => noClient.acquire(['a'], 5_000)), /client/);
  },
  stopped: {
    async first(scene) {
      const redlock = new Redlock([scene.client()], FEW);
      const ran: boolean[] = [];
      const using = redlock.using([scene.name], 700, async () => ran.push(true));
      const error = await using.then(
        () => undefined,
        (failure: Error) => failure,
      );
      return { ran, error: error instanceof ExecutionError && messageOf(error.cause) };
    },
    async meanwhile(scene) {
      const redlock = new Redlock([scene.client()], FEW);
      await redlock.using([scene.name], 5_000, async () => {});
    },
    judge(returned) {
      const { ran, error } = returned as { ran: boolean[]; error: string };
      assert.deepEqual(ran, [], 'no routine begins without its lock');
      assert.match(error, /LockLostError/);
    },
  },
};

const own4: Pick<Cells, 'rubbish' | 'stopped' | 'throws'> = {
  async throws(scene) {
    const redlock = new Redlock4([scene.client()], FEW);
    // A callback in the style of Node that throws is an error of the process, as with redlock 4.
    scene.expectUncaught(/the callback failed/);
    const called = gate();
    void redlock.lock(scene.name, LEASE_MS, (error, lock) => {
      assert.equal(error, null);
      void lock?.unlock().then(called.open);
      throw new Error('the callback failed');
    });
    await called.opened;
    await assertFree(scene.name);
    await listenerThrows(scene, four);
  },
  async rubbish(scene) {
    const redlock = new Redlock4([scene.client()], FEW);
    for (const callback of [7, null, 'a']) {
      const lock = await redlock.lock(scene.name, LEASE_MS, callback as never);
      await lock.unlock();
    }
    for (const [names, ttl] of [
      [[], 5_000],
      ['', 5_000],
      ['a', Number.NaN],
      ['a', undefined],
    ]) {
      const wrong = () => redlock.lock(names as never, ttl as never);
      assert.match(
        await failureOf(wrong),
        /^(Type|Range)?Error: .*(names|name|resources|[dD]uration)/,
      );
    }
  },
  stopped: {
    async first(scene) {
      const redlock = new Redlock4([scene.client()], FEW);
      return { error: await failureOf(() => redlock.lock(scene.name, 700)) };
    },
    async meanwhile(scene) {
      await new Redlock4([scene.client()], FEW).lock(scene.name, 60_000);
    },
    async judge(returned, scene) {
      assert.match((returned as { error: string }).error, /LockError.*LockLostError/);
      assert.equal(await weathered.server.admin.exists(scene.name), 1, 'the other has it');
      await weathered.server.admin.del(scene.name);
    },
  },
};
export const adapters: readonly Adapter[] = [
  { name: 'redlock', cells: cellsOf(five, own5) },
  { name: 'redlock4', cells: cellsOf(four, own4) },
];
