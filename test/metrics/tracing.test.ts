/** `holdfast/opentelemetry`: the spans of what a manager does on a real server. */

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { context, SpanStatusCode, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { traceLocks } from 'holdfast/opentelemetry';
import { connect, type LockManager } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';

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

async function traced(action: () => Promise<unknown>): Promise<ReadableSpan[]> {
  const end = traceLocks(provider.getTracer('test'));
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
  const { hostname: host, port } = new URL(server.url);
  const where = { 'lock.name': 'item:42', 'server.address': host, 'server.port': Number(port) };
  const seen = spans.map(({ name, attributes, parentSpanContext }) => {
    return [name, { ...attributes }, parentSpanContext?.spanId];
  });
  const taken = {
    ...where,
    'lock.outcome': 'acquired',
    'lock.acquired': true,
    'lock.mode': 'exclusive',
    'lock.fence': fence,
  };
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

test('several locks of which one is held are one span as well, which says how that ended', async () => {
  const lock = await others.acquire('b');
  const spans = await traced(async () => {
    assert.equal(await locks.tryAcquire(['a', 'b']), null);
    await assert.rejects(locks.acquire(['a', 'b'], { wait: 50 }), { code: 'ERR_LOCK_TIMEOUT' });
    const waiting = locks.acquire(['a', 'b']);
    setTimeout(() => void lock.release(), 50);
    await (await waiting).release();
  });
  const acquires = spans.filter(({ name }) => name === 'lock acquire');
  const seen = acquires.map(({ attributes, status }) => {
    const { 'lock.acquired': acquired, 'lock.outcome': outcome, 'error.type': error } = attributes;
    return [acquired, outcome, error, status.code === SpanStatusCode.ERROR];
  });
  assert.deepEqual(seen, [
    [false, 'taken', undefined, false],
    [false, 'ERR_LOCK_TIMEOUT', 'ERR_LOCK_TIMEOUT', true],
    [true, 'acquired', undefined, false],
  ]);
});

test('an acquire that its caller aborts says so, whatever the reason is', async () => {
  const lock = await others.acquire('item:42');
  const reasons = [undefined, null, 20, new Error('the client hung up')];
  const spans = await traced(async () => {
    for (const reason of reasons) {
      const abort = new AbortController();
      const waiting = locks.acquire('item:42', { signal: abort.signal });
      abort.abort(reason);
      await assert.rejects(waiting, (error) => error === abort.signal.reason);
    }
  });
  await lock.release();
  for (const { attributes } of spans) {
    assert.deepEqual(
      [attributes['lock.outcome'], attributes['error.type']],
      ['aborted', 'aborted'],
    );
  }
  assert.equal(spans.length, reasons.length);
});

test('when tracing has ended nothing is traced', async () => {
  await traced(async () => {});
  await (await locks.acquire('item:42')).release();
  assert.equal(exporter.getFinishedSpans().length, 0);
  assert.equal(trace.getActiveSpan(), undefined);
});
