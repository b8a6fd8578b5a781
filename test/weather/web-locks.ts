/** `request` of a manager, in place of `navigator.locks`: what all adapters stand on. */

import assert from 'node:assert/strict';
import { holdfast } from '../support/holdfast.js';
import { sleep, until } from '../support/wait.js';
import { weathered } from './survives.js';
import { type Adapter, not } from './weather.js';
import { failureOf, gate, many } from './web.js';

const { LockLostError } = holdfast;

export const adapters: readonly Adapter[] = [
  {
    name: 'web locks',
    cells: {
      answered: not('it answers no request'),
      async left(scene) {
        const locks = await scene.connect();
        const [held, goOn, abort] = [gate(), gate(), new AbortController()];
        const first = locks.request(scene.name, async () => {
          held.open();
          await goOn.opened;
        });
        await held.opened;
        const { signal } = abort;
        const waits = locks.request(scene.name, { signal }, () => assert.fail('not to run'));
        await until(() => locks.stats().waiting === 1, 'the second to wait');
        abort.abort(new Error('the caller has left'));
        assert.match(await failureOf(() => waits), /the caller has left/);
        goOn.open();
        await first;
      },
      async throws(scene) {
        const locks = await scene.connect();
        for (const callback of [() => assert.fail('mine'), async () => assert.fail('mine')]) {
          assert.match(await failureOf(() => locks.request(scene.name, callback)), /mine/);
        }
        assert.equal(
          await locks.request(scene.name, { ifAvailable: true }, (lock) => !lock),
          false,
        );
        // Its error goes before that of a release that is refused.
        const { admin } = weathered.server;
        const refused = locks.request(scene.name, { ttl: 500 }, async () => {
          await admin.call('ACL', 'SETUSER', 'default', '-evalsha', '-eval');
          throw new Error('mine again');
        });
        assert.match(await failureOf(() => refused), /mine again/);
        await admin.call('ACL', 'SETUSER', 'default', '+evalsha', '+eval');
        // Listeners: neither the operation nor the end of the manager is theirs.
        const own = await scene.connect();
        for (const event of ['warning', 'close', 'lost'] as const) {
          const listener = () => {
            throw new Error(`listener of ${event}`);
          };
          own.on(event, listener);
          scene.after(() => own.off(event, listener));
          scene.expectUncaught(new RegExp(`listener of ${event}`));
        }
        const lost = own.request(scene.name, async (lock) => {
          await locks.forceRelease(scene.name);
          await until(() => lock.signal.aborted, 'the loss');
          // No such event: that is worth a warning.
          own.once('losses' as never, () => {});
          own.removeAllListeners('losses' as never);
        });
        assert.match(await failureOf(() => lost), /LockLostError/);
        await own.close();
      },
      async refused(scene) {
        const locks = await scene.connect();
        await weathered.refuse();
        const refused = () => locks.request(scene.name, () => assert.fail('not to run'));
        assert.match(await failureOf(refused), /LockServerError.*OOM/);
        await weathered.takeAgain();
        assert.equal(await locks.request(scene.name, () => 1), 1);
        const result = locks.request(scene.name, async () => {
          await weathered.refuse();
          return 2;
        });
        // A release frees memory: no server refuses it.
        assert.equal(await result, 2);
      },
      async hung(scene) {
        const locks = await scene.connect({ ttl: 10_000 });
        weathered.server.pause();
        const hung = () =>
          locks.request(scene.name, { wait: 100 }, () => assert.fail('not to run'));
        assert.match(await failureOf(hung), /LockConnectionError.*(no answer|not answer)/);
        weathered.server.resume();
        assert.equal(await locks.request(scene.name, () => 1), 1);
      },
      async twice(scene) {
        const locks = await scene.connect();
        let inside = 0;
        const enter = () =>
          locks.request(scene.name, async () => {
            inside += 1;
            await sleep(5);
            assert.equal(inside, 1);
            inside -= 1;
          });
        await Promise.all([enter(), enter()]);
      },
      async rubbish(scene) {
        const locks = await scene.connect();
        // biome-ignore lint/suspicious/noThenProperty: what some handlers return
        const thenable = { then: (resolve: (value: number) => void) => resolve(7) };
        assert.equal(await locks.request(scene.name, () => thenable), 7);
        const broken = {
          // biome-ignore lint/suspicious/noThenProperty: a trap
          get then() {
            throw new Error('no then');
          },
        };
        assert.match(await failureOf(() => locks.request(scene.name, () => broken)), /no then/);
        assert.equal(await locks.request(scene.name, () => {}), undefined);
        const wrong = () => locks.request(scene.name, undefined as never, 7 as never);
        assert.match(await failureOf(wrong), /the callback must be a function/);
      },
      stream: not('it has no streams'),
      stopped: {
        async first(scene) {
          const locks = await scene.connect({ ttl: 500 });
          const seen: unknown[] = [];
          const asked = locks.request(scene.name, (lock) => {
            seen.push(lock.held, lock.signal.aborted);
          });
          return {
            seen: await asked.then(
              () => seen,
              (error: Error) => [...seen, error.name],
            ),
          };
        },
        async meanwhile(scene) {
          const locks = await scene.connect();
          await locks.request(scene.name, () => {});
        },
        judge: (returned) =>
          assert.deepEqual(returned, { seen: [false, true, LockLostError.name] }),
      },
      async separator(scene) {
        const locks = await scene.connect();
        const names = ['a:b', 'a/b', '{a}:b', 'a:{b}', 'a, b', 'a\nb', 'a%b', 'hf1.a'];
        await locks.request(names, async ({ fences }) => {
          assert.deepEqual(Object.keys(fences).sort(), [...names].sort());
          for (const name of names) assert.equal(await locks.tryAcquire(name), null);
        });
        for (const name of ['a:queue', 'a:waiting']) {
          assert.match(
            await failureOf(() => locks.request(name, () => {})),
            /TypeError.*:(queue|waiting)/,
          );
        }
      },
      async thousand(scene) {
        const locks = await scene.connect();
        const counts = { one: 0, each: 0 };
        const signal = AbortSignal.timeout(600_000);
        const enter = () => locks.request(scene.name, { signal, wait: 60_000 }, () => ++counts.one);
        await Promise.all(Array.from({ length: 1_000 }, enter));
        await many(1_000, (i) => locks.request(`${scene.name}:${i}`, () => ++counts.each));
        assert.deepEqual(counts, { one: 1_000, each: 1_000 });
      },
      async options(scene) {
        const [locks, others] = [await scene.connect(), await scene.connect()];
        const { linger, maxHold, wait } = scene.options;
        if (linger !== undefined) {
          for (let i = 0; i < 3; i++) await locks.request(scene.name, () => {});
          assert.equal(locks.stats().idle, 1);
          await locks.close();
          assert.equal(await others.request(scene.name, () => 'had it'), 'had it');
          await others.close();
          return;
        }
        const held = locks.request(scene.name, async (lock) => {
          const other = others.request(scene.name, () => 'had it');
          if (wait === 0) assert.match(await failureOf(() => other), /LockTimeoutError/);
          if (maxHold === undefined) return lock.held;
          assert.equal(await other, 'had it');
          return lock.held;
        });
        if (maxHold === undefined) assert.equal(await held, true);
        else assert.match(await failureOf(() => held), /LockLostError.*maxHold/);
        assert.equal(await others.request(scene.name, { wait: 20_000 }, () => 1), 1);
      },
    },
  },
];
