/** Spans of OpenTelemetry and metrics of Prometheus, made of what a manager does on a real server. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { context, SpanStatusCode, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { Registry } from 'prom-client';
import { ROOT } from '../../support/child.js';
import { untilQueued } from '../../support/crew.js';
import { connect, type LockManager } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';

const FOLDER = join(ROOT, 'examples', 'observability');

let server: RedisServer;
let locks: LockManager;
let others: LockManager;
const exporter = new InMemorySpanExporter();
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });

before(async () => {
  server = await RedisServer.start();
  [locks, others] = await Promise.all([connect(server.url), connect(server.url)]);
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
});

after(async () => {
  context.disable();
  await Promise.all([locks?.close(), others?.close()]);
  await server?.stop();
});

afterEach(() => exporter.reset());

async function load(file: string): Promise<Record<string, (...args: unknown[]) => unknown>> {
  return import(pathToFileURL(join(FOLDER, file)).href);
}

async function traced(action: () => Promise<unknown>): Promise<ReadableSpan[]> {
  const { traceLocks } = await load('tracing.mjs');
  const end = traceLocks?.(provider.getTracer('test')) as () => void;
  await action();
  end();
  return exporter.getFinishedSpans();
}

test('each operation is a span below the one that is active, with lock, server, mode and fence', async () => {
  const tracer = provider.getTracer('test');
  let fence = 0;
  let parent = '';
  const spans = await traced(() =>
    tracer.startActiveSpan('sell', async (span) => {
      parent = span.spanContext().spanId;
      await locks.request('item:42', async (lock) => {
        fence = lock.fence;
        await lock.extend();
      });
      span.end();
    }),
  );
  const where = { 'lock.name': 'item:42', 'lock.server': `${server.url}/0` };
  const seen = spans.map(({ name, attributes, parentSpanContext }) => {
    return [name, { ...attributes }, parentSpanContext?.spanId];
  });
  const taken = { ...where, 'lock.acquired': true, 'lock.mode': 'exclusive', 'lock.fence': fence };
  assert.deepEqual(seen, [
    ['lock acquire', taken, parent],
    ['lock extend', where, parent],
    ['lock release', where, parent],
    ['sell', {}, undefined],
  ]);
});

test('a lock that is taken is no error, a wait in vain is one', async () => {
  const lock = await others.acquire('item:42');
  const spans = await traced(async () => {
    assert.equal(await locks.tryAcquire('item:42'), null);
    await assert.rejects(locks.acquire('item:42', { wait: 50 }), { code: 'ERR_LOCK_TIMEOUT' });
  });
  await lock.release();
  const [tried, waited] = spans;
  assert.equal(tried?.attributes['lock.acquired'], false);
  assert.equal(tried?.status.code, SpanStatusCode.UNSET);
  assert.equal(waited?.attributes['error.type'], 'ERR_LOCK_TIMEOUT');
  assert.equal(waited?.status.code, SpanStatusCode.ERROR);
  assert.equal(waited?.events[0]?.name, 'exception');
});

test('several locks that are acquired together are one span, and are released one by one', async () => {
  const spans = await traced(async () => {
    await (await locks.acquire(['a', 'b'])).release();
  });
  const seen = spans.map(({ name, attributes }) => [name, attributes['lock.name']]);
  assert.deepEqual(seen[0], ['lock acquire', 'a, b']);
  assert.deepEqual(seen.slice(1).sort(), [
    ['lock release', 'a'],
    ['lock release', 'b'],
  ]);
  assert.equal(spans[0]?.attributes['lock.mode'], 'exclusive');
});

test('when tracing has ended nothing is traced', async () => {
  await traced(async () => {});
  await (await locks.acquire('item:42')).release();
  assert.equal(exporter.getFinishedSpans().length, 0);
  assert.equal(trace.getActiveSpan(), undefined);
});

/** The value of a series, such as `holdfast_held`. */
async function numberAt(registry: Registry, series: string): Promise<number> {
  const text = await registry.metrics();
  const line = text.split('\n').find((each) => each.startsWith(`${series} `));
  assert.ok(line !== undefined, `${series} is not in\n${text}`);
  return Number(line.slice(series.length + 1));
}

test('the metrics tell what happened, and every one that the page speaks of is there', async () => {
  const { measureLocks } = await load('metrics.mjs');
  const registry = new Registry();
  await using own = await connect(server.url);
  measureLocks?.(own, [registry]);

  const blocking = await others.acquire('item:42');
  const waiting = own.acquire('item:42', { label: 'own' });
  await untilQueued(server, 'item:42', ['own']);
  assert.equal(await numberAt(registry, 'holdfast_waiting'), 1);
  await blocking.release();
  const lock = await waiting;
  assert.equal(await numberAt(registry, 'holdfast_held'), 1);
  assert.equal(await numberAt(registry, 'holdfast_acquired_total'), 1);
  assert.equal(await numberAt(registry, 'holdfast_abandoned_total'), 0);
  const age = await numberAt(registry, 'holdfast_oldest_hold_seconds');
  assert.ok(age >= 0 && age < 60, String(age));
  assert.equal(await numberAt(registry, 'holdfast_hand_off_seconds_bucket{le="+Inf"}'), 1);
  const acquired = '{kind="item",outcome="acquired"}';
  // Both managers are of this process.
  assert.equal(await numberAt(registry, `holdfast_acquire_seconds_count${acquired}`), 2);

  assert.equal(await own.tryAcquire('item:42'), null);
  const taken = '{kind="item",outcome="taken"}';
  assert.equal(await numberAt(registry, `holdfast_acquire_seconds_count${taken}`), 1);

  const lost = new Promise((resolve) => own.once('lost', resolve));
  await others.forceRelease('item:42');
  await lost;
  assert.equal(lock.held, false);
  assert.equal(await numberAt(registry, 'holdfast_lost_total{kind="item",reason="stolen"}'), 1);

  const page = readFileSync(join(ROOT, 'docs', 'observability.md'), 'utf8');
  const text = await registry.metrics();
  const named = new Set(page.match(/\bholdfast_[a-z_]+/g));
  assert.ok(named.size > 5);
  for (const name of named) assert.ok(text.includes(`\n${name}`), `${name} does not exist`);
});
