/** `holdfast/nest`: the decorators, the health indicator and the module, in an application of Nest. */

import assert from 'node:assert/strict';
import { Injectable, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { Term } from 'holdfast';
import { LockManager } from 'holdfast';
import {
  currentLock,
  currentSlot,
  HoldfastModule,
  Leader,
  Lock,
  lockHealth,
  Once,
} from 'holdfast/nest';
import { sleep, until } from '../support/wait.js';
import { COMMAND_MS, type Scene } from './scene.js';
import { weathered } from './survives.js';
import { type Adapter, not } from './weather.js';
import { failureOf, many } from './web.js';

/** What the methods do, by the name of their lock. */
const bodies = new Map<string, () => unknown>();

const run = (name: string) => bodies.get(name)?.();

@Injectable()
class Shop {
  @Lock('shop:${0}')
  async sell(name: string): Promise<unknown> {
    return run(name);
  }

  @Lock('shop:${0}', { wait: 100 })
  async sellSoon(name: string): Promise<unknown> {
    return run(name);
  }

  @Lock('short:${0}', { ttl: 500 })
  async sellShort(name: string): Promise<unknown> {
    return run(name);
  }

  @Lock('${0}:${1}')
  async pair(_a: string, _b: string): Promise<string> {
    return currentLock().name;
  }

  @Once('once:${0}', { slot: '${1}' })
  async settle(name: string, _slot: string): Promise<undefined> {
    run(name);
    return undefined;
  }

  @Once('kept:${0}', { slot: 'one', keepResult: true })
  async kept(name: string): Promise<string | undefined> {
    run(name);
    return currentSlot();
  }
}

@Injectable()
class Relay {
  static body: (term: Term) => Promise<void> = async () => {};
  static errors: unknown[] = [];

  @Leader('relay', { onError: (error) => void Relay.errors.push(error) })
  async lead(term: Term): Promise<void> {
    return Relay.body(term);
  }
}

async function open(scene: Scene, providers: readonly Type[] = [Shop]) {
  const options = { commandTimeout: COMMAND_MS, ...scene.options };
  const app = await NestFactory.createApplicationContext(
    {
      module: class App {},
      imports: [HoldfastModule.forRoot({ target: scene.url, ...options })],
      providers: [...providers],
    },
    { logger: false },
  );
  scene.after(() => app.close());
  const locks = app.get(LockManager);
  return { app, locks, shop: providers.includes(Shop) ? app.get(Shop) : ({} as Shop) };
}

export const adapters: readonly Adapter[] = [
  {
    name: 'nest',
    cells: {
      answered: not('the interceptor is that of holdfast/idempotency, whose pages are tried there'),
      left: not('a method does not know its client: its caller waits'),
      async throws(scene) {
        const { shop, locks } = await open(scene);
        bodies.set(scene.name, () => assert.fail('the method failed'));
        assert.match(await failureOf(() => shop.sell(scene.name)), /the method failed/);
        assert.match(await failureOf(() => shop.settle(scene.name, 'a')), /the method failed/);
        bodies.set(scene.name, () => 7);
        assert.equal(await shop.sell(scene.name), 7);
        Relay.errors = [];
        Relay.body = () => Promise.reject(new Error('the leader failed'));
        const { app } = await open(scene, [Relay]);
        await until(() => Relay.errors.length > 0, 'the error of the leader');
        assert.match(String(Relay.errors[0]), /the leader failed/);
        await app.close();
        assert.equal(await locks.leader('relay'), null);
      },
      async refused(scene) {
        const { shop, locks } = await open(scene);
        bodies.set(scene.name, () => 7);
        await weathered.refuse();
        assert.match(await failureOf(() => shop.sell(scene.name)), /OOM/);
        assert.match(await failureOf(() => shop.settle(scene.name, 'a')), /OOM/);
        const { down } = { down: await lockHealth('locks', locks) };
        assert.equal(down.locks.status, 'down');
        assert.match(down.locks.message ?? '', /OOM/);
        await weathered.takeAgain();
        assert.equal(await shop.sell(scene.name), 7);
        assert.equal((await lockHealth('locks', locks)).locks.status, 'up');
      },
      async hung(scene) {
        const { shop, locks } = await open(scene);
        bodies.set(scene.name, () => 7);
        await shop.sell(scene.name);
        weathered.server.pause();
        const health = await lockHealth('locks', locks, { timeout: 300 });
        assert.equal(health.locks.status, 'down');
        assert.match(health.locks.message ?? '', /no answer within 300 ms/);
        assert.match(
          await failureOf(() => shop.sellSoon(scene.name)),
          /LockConnectionError.*answer/,
        );
        weathered.server.resume();
        assert.equal(await shop.sell(scene.name), 7);
      },
      async twice(scene) {
        const { shop } = await open(scene);
        let inside = 0;
        bodies.set(scene.name, async () => {
          inside += 1;
          await sleep(5);
          assert.equal(inside, 1);
          inside -= 1;
        });
        await Promise.all([shop.sell(scene.name), shop.sell(scene.name)]);
        let runs = 0;
        bodies.set(scene.name, () => {
          runs += 1;
        });
        await Promise.all([shop.settle(scene.name, 'a'), shop.settle(scene.name, 'a')]);
        assert.equal(runs, 1);
      },
      async rubbish(scene) {
        const { shop } = await open(scene);
        for (const value of [undefined, null, 7]) {
          bodies.set(scene.name, () => value);
          assert.equal(await shop.sell(scene.name), value);
        }
        for (const name of [undefined, null, '', {}, Number.NaN, '\ud800']) {
          assert.match(
            await failureOf(() => shop.sell(name as never)),
            /needs a text or a number for/,
          );
        }
        assert.throws(() => currentLock(), { code: 'ERR_LOCK_NOT_DECORATED' });
      },
      stream: not('it has no streams: the interceptor is tried with holdfast/idempotency'),
      stopped: {
        async first(scene) {
          const { shop } = await open(scene);
          const seen: unknown[] = [];
          bodies.set('a', () => seen.push(currentLock().held));
          const error = await failureOf(() => shop.sellShort('a'));
          return { seen, error };
        },
        async meanwhile(scene) {
          bodies.set('a', () => 7);
          assert.equal(await (await open(scene)).shop.sellShort('a'), 7);
        },
        judge(returned) {
          const { seen, error } = returned as { seen: unknown[]; error: string };
          assert.deepEqual(seen, [false]);
          assert.match(error, /LockLostError/);
        },
      },
      async separator(scene) {
        const { shop, locks } = await open(scene);
        const pairs: [string, string][] = [
          ['a:b', 'c'],
          ['a', '{b}'],
          ['${1}', 'b'],
          ['$&', "$'"],
        ];
        for (const [a, b] of pairs) assert.equal(await shop.pair(a, b), `${a}:${b}`);
        // Two slots whose job and name join to the same text.
        let runs = 0;
        for (const name of ['a', 'a:b']) bodies.set(name, () => ++runs);
        await shop.settle('a', 'b:c');
        await shop.settle('a:b', 'c');
        await shop.settle('a', 'b:c');
        assert.equal(runs, 2);
        assert.equal(locks.stats().held, 0);
      },
      async thousand(scene) {
        const { shop } = await open(scene);
        const counts = { one: 0, each: 0 };
        bodies.set(scene.name, () => ++counts.one);
        await many(1_000, () => shop.sell(scene.name));
        await many(1_000, async (i) => {
          const name = `${scene.name}:${i}`;
          bodies.set(name, () => ++counts.each);
          await shop.settle(name, 'a');
          bodies.delete(name);
        });
        assert.deepEqual(counts, { one: 1_000, each: 1_000 });
      },
      async options(scene) {
        const { shop, locks, app } = await open(scene);
        const other = await open(scene);
        let runs = 0;
        bodies.set(scene.name, () => ++runs);
        await Promise.all([shop.settle(scene.name, 'a'), other.shop.settle(scene.name, 'a')]);
        assert.equal(runs, 1);
        assert.equal(await shop.kept(scene.name), 'one');
        assert.equal(await other.shop.kept(scene.name), 'one');
        // Asks the server each time, and leaves no lock behind.
        assert.equal((await lockHealth('locks', locks)).locks.status, 'up');
        assert.equal(locks.stats().idle, 0);
        weathered.server.pause();
        const health = await lockHealth('locks', locks, { timeout: 200 });
        assert.equal(health.locks.status, 'down');
        weathered.server.resume();
        assert.equal(await shop.sell(scene.name), 3);
        await app.close();
        assert.equal(await other.shop.sell(scene.name), 4);
        await other.app.close();
      },
    },
  },
];
