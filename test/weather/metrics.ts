/** The metrics for Prometheus and OpenTelemetry, and the spans. */

import assert from 'node:assert/strict';
import { trace } from '@opentelemetry/api';
import { MeterProvider } from '@opentelemetry/sdk-metrics';
import { BasicTracerProvider } from '@opentelemetry/sdk-trace-base';
import { measureLocks as measureByOtel, traceLocks } from 'holdfast/opentelemetry';
import { measureLocks } from 'holdfast/prometheus';
import { Registry } from 'prom-client';
import type { LockManager } from '../support/holdfast.js';
import { sleep, until } from '../support/wait.js';
import type { Scene } from './scene.js';
import { weathered } from './survives.js';
import { type Adapter, not } from './weather.js';
import { failureOf, many } from './web.js';

/** A manager, and what its metrics say of a series. */
async function measured(scene: Scene, kinds?: (name: string) => string) {
  const locks = await scene.connect();
  const registry = new Registry();
  const end = measureLocks(locks, { registry, ...(kinds && { kinds }) });
  scene.after(end);
  const value = async (series: string) => {
    const text = await registry.metrics();
    const line = text.split('\n').find((each) => each.startsWith(`${series} `));
    return line === undefined ? undefined : Number(line.slice(series.length + 1));
  };
  return { locks, registry, value, end };
}

const waits = (kind: string, outcome: string) =>
  `holdfast_acquire_seconds_count{manager="default",kind="${kind}",outcome="${outcome}"}`;

/** A lock is a lock, whatever those say who look on. */
async function works(locks: LockManager, name: string): Promise<void> {
  assert.equal(await locks.request(name, () => 7), 7);
}

export const adapters: readonly Adapter[] = [
  {
    name: 'metrics',
    cells: {
      answered: not('they answer no request'),
      async left(scene) {
        const { locks, value } = await measured(scene);
        const held = await locks.acquire('item:1');
        const abort = new AbortController();
        const waiting = failureOf(() => locks.acquire('item:1', { signal: abort.signal }));
        await until(
          async () => (await value('holdfast_oldest_wait_seconds{manager="default"}')) !== 0,
          'the wait',
        );
        abort.abort(new Error('left'));
        assert.match(await waiting, /left/);
        assert.equal(await value(waits('item', 'aborted')), 1);
        assert.equal(await value('holdfast_oldest_wait_seconds{manager="default"}'), 0);
        await held.release();
      },
      async throws(scene) {
        const { locks, value } = await measured(scene, () => assert.fail('no kind'));
        locks.once('warning', () => {});
        await works(locks, 'item:1');
        assert.equal(await value(waits('other', 'acquired')), 1);
        // What a service puts into its tracer or meter: the lock is not its.
        const failing = new Proxy(
          {},
          {
            get: () => () => {
              throw new Error('the exporter failed');
            },
          },
        );
        const end = traceLocks(failing as never);
        scene.after(end);
        scene.after(traceLocks());
        await works(locks, 'item:2');
        end();
        const own = await scene.connect();
        const meter = new MeterProvider().getMeter('a');
        scene.after(
          measureByOtel(own, {
            meter: Object.assign(meter, { createHistogram: () => failing }) as never,
          }),
        );
        await works(own, 'item:3');
      },
      async refused(scene) {
        const { locks, value } = await measured(scene);
        await weathered.refuse();
        assert.match(await failureOf(() => locks.acquire('item:1')), /OOM/);
        assert.equal(await value(waits('item', 'ERR_LOCK_SERVER')), 1);
        await weathered.takeAgain();
        await works(locks, 'item:1');
      },
      async hung(scene) {
        const { locks, value } = await measured(scene);
        weathered.server.pause();
        await failureOf(() => locks.acquire('item:1', { wait: 100 }));
        // Its numbers need no server.
        assert.equal(await value(waits('item', 'ERR_LOCK_CONNECTION')), 1);
        weathered.server.resume();
        await works(locks, 'item:1');
      },
      async twice(scene) {
        const { locks, registry, end } = await measured(scene);
        const again = () => measureLocks(locks, { registry });
        assert.match(await failureOf(again), /already has the metrics of a manager "default"/);
        end();
        end();
        measureLocks(locks, { registry })();
        const both = [traceLocks(), traceLocks()];
        await works(locks, 'item:1');
        for (const each of both) each();
      },
      async rubbish(scene) {
        for (const kinds of [() => 7, () => undefined, async () => 'a']) {
          const { locks, value } = await measured(scene, kinds as never);
          locks.once('warning', () => {});
          await works(locks, 'item:1');
          assert.equal(await value(waits('other', 'acquired')), 1);
        }
        assert.match(await failureOf(() => measureLocks({} as never)), /takes a manager/);
        assert.match(await failureOf(() => measureByOtel(undefined as never)), /takes a manager/);
      },
      stream: not('they have no streams'),
      stopped: {
        async first(scene) {
          const { locks, value } = await measured(scene);
          await failureOf(() => locks.request('item:1', { ttl: 500 }, () => {}));
          const lost = 'holdfast_lost_total{manager="default",reason="expired"}';
          await until(async () => (await value(lost)) === 1, 'the loss', 5_000).catch(() => {});
          return { lost: await value(lost), held: await value('holdfast_held{manager="default"}') };
        },
        meanwhile: async (scene) => works(await scene.connect(), 'item:1'),
        judge: (returned) => assert.deepEqual(returned, { lost: 1, held: 0 }),
      },
      async separator(scene) {
        const { locks, value } = await measured(scene);
        for (const name of ['a"b:1', 'a\\b:1', 'a\nb:1', 'é:1', ':1', '{a}:1'])
          await works(locks, name);
        assert.equal(await value(waits('a\\"b', 'acquired')), 1);
        assert.equal(await value(waits('a\\\\b', 'acquired')), 1);
      },
      async thousand(scene) {
        const { locks, registry } = await measured(scene);
        locks.once('warning', () => {});
        const letters = (i: number) =>
          String.fromCharCode(97 + (i % 26), 97 + ((i / 26) % 26), 97 + i / 676);
        await many(1_000, (i) => works(locks, `${letters(i)}:x`));
        const lines = (await registry.metrics()).split('\n').length;
        assert.ok(lines < 2_500, `${lines} lines`);
        // One manager each, in one registry.
        for (let i = 0; i < 1_000; i++) measureLocks(locks, { registry, manager: `m${i}` })();
        assert.ok((await registry.metrics()).split('\n').length < 2_500);
        const provider = new BasicTracerProvider();
        for (let i = 0; i < 1_000; i++) traceLocks(provider.getTracer('a'))();
        trace.disable();
      },
      async options(scene) {
        const { locks, value } = await measured(scene);
        await works(locks, 'item:1');
        await works(locks, 'item:1');
        assert.equal(await value(waits('item', 'acquired')), 2);
        await until(
          async () =>
            (await value(
              'holdfast_hold_seconds_count{manager="default",kind="item",end="released"}',
            )) === 2,
          'both releases to be counted',
        );
        if (scene.options.maxHold !== undefined) {
          await assert.rejects(locks.request('item:1', () => sleep(500)));
          assert.equal(await value('holdfast_lost_total{manager="default",reason="maxHold"}'), 1);
        }
        const provider = new MeterProvider();
        measureByOtel(locks, { meter: provider.getMeter('a') });
        await locks.close();
        await provider.shutdown();
        assert.equal(await value('holdfast_held{manager="default"}'), undefined);
      },
    },
  },
];
