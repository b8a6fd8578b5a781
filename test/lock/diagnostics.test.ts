/** Tracing where a tracing channel does not tell whether anybody listens, as those of Bun. */

import assert from 'node:assert/strict';
import { type TracingChannel, tracingChannel } from 'node:diagnostics_channel';
import { after, before, test } from 'node:test';
import { connect } from '../support/holdfast.js';

type Proto = TracingChannel<object> & { tracePromise(...given: unknown[]): unknown };

const proto = Object.getPrototypeOf(tracingChannel('holdfast:acquire')) as Proto;
const { tracePromise } = proto;
const known = Object.getOwnPropertyDescriptor(proto, 'hasSubscribers');
/** Node looks itself as it traces; Bun does not. */
let isTracing = false;

before(() => {
  const get = () => (isTracing ? true : undefined);
  Object.defineProperty(proto, 'hasSubscribers', { configurable: true, get });
  proto.tracePromise = function (this: Proto, ...given: unknown[]) {
    isTracing = true;
    try {
      return tracePromise.apply(this, given as never);
    } finally {
      isTracing = false;
    }
  } as never;
});

after(() => {
  proto.tracePromise = tracePromise;
  Reflect.deleteProperty(proto, 'hasSubscribers');
  if (known !== undefined) Object.defineProperty(proto, 'hasSubscribers', known);
});

const OPERATIONS = ['acquire', 'extend', 'release'] as const;

for (const event of ['start', 'end', 'asyncStart', 'asyncEnd'] as const) {
  test(`who listens to ${event} alone is told of each operation, and no more once it listens no more`, async () => {
    const locks = await connect('memory:');
    const told: string[] = [];
    const listeners = OPERATIONS.map((operation) => {
      const channel = tracingChannel<object>(`holdfast:${operation}`)[event];
      const listener = (message: unknown) => {
        told.push(`${operation} ${(message as { lock: string }).lock}`);
      };
      channel.subscribe(listener);
      return () => channel.unsubscribe(listener);
    });
    const use = async (name: string) => {
      const lock = await locks.acquire(name);
      await lock.extend();
      await lock.release();
    };
    await use('a');
    assert.deepEqual(told, ['acquire a', 'extend a', 'release a']);
    for (const forget of listeners) forget();
    await use('b');
    assert.equal(told.length, 3);
    await locks.close();
  });
}

test('who listens to errors alone is told of them', async () => {
  const locks = await connect('memory:');
  const told: unknown[] = [];
  const listener = (message: unknown) => void told.push((message as { outcome: string }).outcome);
  const { error } = tracingChannel<object>('holdfast:acquire');
  error.subscribe(listener);
  const lock = await locks.acquire('a');
  await assert.rejects(locks.acquire('a', { wait: 1 }));
  await lock.release();
  error.unsubscribe(listener);
  assert.deepEqual(told, ['ERR_LOCK_TIMEOUT']);
  await locks.close();
});
