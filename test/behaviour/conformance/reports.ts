/** The reports of a manager: counts, and tracing channels. */

import assert from 'node:assert/strict';
import { tracingChannel } from 'node:diagnostics_channel';
import type { Lock, LockTrace } from 'holdfast';
import { type Behaviours, enqueue, LONG, openSeveral } from './behaviour.js';

export const REPORTS: Behaviours = {
  'stats: count what was acquired, handed off, waited for in vain, and what is so now': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const first = await a.acquire('x', LONG);
    await a.acquire('y', LONG);
    assert.equal(await b.tryAcquire('x'), null);
    await assert.rejects(b.acquire('y', { wait: 0 }), { code: 'ERR_LOCK_TIMEOUT' });
    const waiting = [await enqueue(b, 'x'), await enqueue(b, 'x')];
    assert.equal(b.stats().waiting, 2);
    await first.release();
    for (const { granted } of waiting) await (await granted).release();
    const { held, acquired, handedOff, timedOut, lost, requests, handOffs } = b.stats();
    const gone = a.stats();
    assert.deepEqual(
      { held, waiting: b.stats().waiting, timedOut, lost },
      { held: 0, waiting: 0, timedOut: 1, lost: 0 },
    );
    assert.deepEqual([gone.held, gone.acquired, gone.handedOff], [1, 2, 0]);
    // Each `enqueue` takes a lock beside the one that it waits for.
    assert.equal(acquired, 4);
    assert.ok(handedOff <= 1, `${handedOff} handed off`);
    assert.ok(requests > 0);
    // From another manager: the second may have got it by the release of the first, which is of the same manager.
    const fromOthers = handOffs.reduce((sum, { count }) => sum + count, 0);
    assert.ok(
      fromOthers >= 1 && fromOthers <= acquired - 2 - handedOff,
      `${fromOthers} from others`,
    );
  },

  'diagnostics: an acquire and a release are traced, with the name of the store': async (place) => {
    const locks = await place.open();
    const traces = await tracesOf(['acquire', 'release'], async () => {
      await (await locks.acquire('x')).release();
    });
    const about = { lock: 'x', server: place.label, clientId: locks.clientId };
    const lock = traces[0]?.[1].result;
    assert.equal((lock as Lock).name, 'x');
    assert.deepEqual(traces, [
      ['acquire', { ...about, result: lock, outcome: 'acquired' }],
      ['release', { ...about, holder: lock, result: true }],
    ]);
  },

  'diagnostics: an acquire of several is one operation, however it ends': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const held = await b.acquire('y', LONG);
    const traces = await tracesOf(['acquire'], async () => {
      assert.equal(await a.tryAcquire(['x', 'y']), null);
      await assert.rejects(a.acquire(['x', 'y'], { wait: 50 }), { code: 'ERR_LOCK_TIMEOUT' });
      const waiting = a.acquire(['x', 'y'], LONG);
      setTimeout(() => void held.release(), 50);
      await waiting;
    });
    const seen = traces.map(([, { lock, outcome, result, error }]) => {
      const { fences } = (result ?? {}) as { fences?: object };
      const got = fences === undefined ? result : Object.keys(fences).sort().join();
      return [lock, outcome, got, (error as { code?: string } | undefined)?.code];
    });
    assert.deepEqual(seen, [
      ['x, y', 'taken', null, undefined],
      ['x, y', 'ERR_LOCK_TIMEOUT', undefined, 'ERR_LOCK_TIMEOUT'],
      ['x, y', 'acquired', 'x,y', undefined],
    ]);
  },

  'diagnostics: an acquire that its caller aborts has one outcome, whatever the reason': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    await b.acquire('x', LONG);
    const reasons = [undefined, null, 20, 'gone', new Error('gone'), { code: 'ERR_LOCK_TIMEOUT' }];
    const traces = await tracesOf(['acquire'], async () => {
      for (const reason of reasons) {
        const abort = new AbortController();
        const one = a.acquire('x', { ...LONG, signal: abort.signal });
        const several = a.acquire(['x', 'y'], { ...LONG, signal: abort.signal });
        abort.abort(reason);
        const isReason = (error: unknown) => error === abort.signal.reason;
        await Promise.all([assert.rejects(one, isReason), assert.rejects(several, isReason)]);
      }
    });
    const outcomes = traces.map(([, { outcome }]) => outcome);
    assert.deepEqual(outcomes, Array(2 * reasons.length).fill('aborted'));
  },

  'diagnostics: an abort after the failure does not change the outcome': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    await b.acquire('y', LONG);
    const abort = new AbortController();
    const isOver = () => abort.abort();
    // What was taken is given back once the wait for the other has failed.
    const { start } = tracingChannel('holdfast:release');
    start.subscribe(isOver);
    const traces = await tracesOf(['acquire'], () =>
      assert.rejects(a.acquire(['x', 'y'], { wait: 50, signal: abort.signal }), {
        code: 'ERR_LOCK_TIMEOUT',
      }),
    );
    start.unsubscribe(isOver);
    assert.ok(abort.signal.aborted);
    assert.equal(traces[0]?.[1].outcome, 'ERR_LOCK_TIMEOUT');
  },
};

/** The end of an operation, by the name of its channel. */
type Traced = readonly [
  string,
  LockTrace & { readonly result?: unknown; readonly error?: unknown },
];

/** The ends of the operations that `action` traces on `channels`. */
async function tracesOf(
  channels: readonly string[],
  action: () => Promise<void>,
): Promise<Traced[]> {
  const traces: Traced[] = [];
  const subscribed = channels.map((name) => {
    const channel = tracingChannel<object, object>(`holdfast:${name}`);
    const asyncEnd = (trace: object) => void traces.push([name, trace as Traced[1]]);
    const ignore = () => {};
    const handlers = { start: ignore, end: ignore, asyncStart: ignore, asyncEnd, error: ignore };
    channel.subscribe(handlers);
    return () => channel.unsubscribe(handlers);
  });
  try {
    await action();
  } finally {
    for (const unsubscribe of subscribed) unsubscribe();
  }
  return traces;
}
