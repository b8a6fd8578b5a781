/** `holdfast/opentelemetry`: the metrics, with the real SDK. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { measureLocks } from 'holdfast/opentelemetry';
import { connect } from '../support/holdfast.js';
import { serverOfFile } from '../support/server-of-file.js';
import { until } from '../support/wait.js';

const server = serverOfFile();

/** A provider, and what it exports: the values by name and attributes. */
function collector() {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
  const provider = new MeterProvider({ readers: [reader] });
  const collect = async () => {
    exporter.reset();
    await provider.forceFlush();
    const metrics = exporter.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics);
    const points = metrics.flatMap((scope) =>
      scope.metrics.flatMap(({ descriptor, dataPoints }) =>
        dataPoints.map(({ attributes, value }) => {
          const labels = Object.entries(attributes).map(([key, of]) => `${key}=${of}`);
          const number = typeof value === 'number' ? value : value.count;
          return [[descriptor.name, ...labels].join(' '), number] as const;
        }),
      ),
    );
    return new Map(points);
  };
  return { provider, collect };
}

for (const kind of ['redis', 'memory'] as const) {
  test(`on ${kind} the instruments tell what happened, until that is ended`, async () => {
    const target = kind === 'redis' ? server.url : 'memory:otel';
    const { provider, collect } = collector();
    const [locks, others] = [await connect(target), await connect(target)];
    const end = measureLocks(locks, { meter: provider.getMeter('test'), manager: 'shop' });
    let points = await collect();
    assert.equal(points.get('holdfast.lost lock.manager=shop lock.lost.reason=expired'), 0);
    const lock = await locks.acquire('item:42');
    assert.equal(await locks.tryAcquire('item:42'), null);
    points = await collect();
    assert.equal(points.get('holdfast.held lock.manager=shop'), 1);
    assert.equal(points.get('holdfast.connected lock.manager=shop'), 1);
    assert.equal(points.get('holdfast.acquired lock.manager=shop'), 1);
    const waits = 'holdfast.acquire.duration lock.manager=shop lock.kind=item lock.outcome';
    assert.equal(points.get(`${waits}=acquired`), 1);
    assert.equal(points.get(`${waits}=taken`), 1);
    await lock.release();
    const robbed = await locks.acquire('item:43');
    await others.forceRelease('item:43');
    await until(() => robbed.signal.aborted, 'the loss');
    points = await collect();
    const holds = 'holdfast.hold.duration lock.manager=shop lock.kind=item lock.end';
    assert.equal(points.get(`${holds}=released`), 1);
    assert.equal(points.get(`${holds}=stolen`), 1);
    assert.equal(points.get('holdfast.lost lock.manager=shop lock.lost.reason=stolen'), 1);
    const warned = 'holdfast.warnings lock.manager=shop lock.warning.code=WARN_LOCK_POLLING';
    assert.equal(points.get(warned), 0);
    assert.ok(points.has('holdfast.oldest_hold.duration lock.manager=shop'));
    const several = { mode: 'shared', limit: 8, permits: 5 } as const;
    const share = await locks.acquire('gpu:0', several);
    points = await collect();
    assert.equal(points.get('holdfast.permits.held lock.manager=shop lock.kind=gpu'), 5);
    assert.equal(points.get('holdfast.permits.limit lock.manager=shop lock.kind=gpu'), 8);
    await share.release();
    const stop = new AbortController();
    const leading = locks.lead('job', { signal: stop.signal }, ({ signal }) => {
      return new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    });
    await until(() => locks.stats().leads[0]?.leading === true, 'a leader');
    points = await collect();
    assert.equal(points.get('holdfast.leading lock.manager=shop lock.lead=job'), 1);
    stop.abort();
    await leading;
    const { acquired } = locks.stats();
    end();
    await (await locks.acquire('item:44')).release();
    points = await collect();
    assert.equal(points.get('holdfast.acquired lock.manager=shop'), acquired);
    assert.equal(points.get(`${holds}=released`), 1);
    measureLocks(locks, { meter: provider.getMeter('test') });
    assert.equal(locks.listenerCount('close'), 1);
    await Promise.all([locks.close(), others.close()]);
    assert.deepEqual(locks.eventNames(), []);
    await provider.shutdown();
  });
}

test('an option that does not exist is refused, with the one that was meant', async () => {
  await using manager = await connect('memory:');
  const wrong = { manger: 'orders' } as never;
  assert.throws(
    () => measureLocks(manager, wrong),
    /measureLocks has no option "manger".*"manager"/,
  );
});
