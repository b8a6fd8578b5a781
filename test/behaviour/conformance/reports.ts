/** The reports of a manager: counts, and tracing channels. */

import assert from 'node:assert/strict';
import { tracingChannel } from 'node:diagnostics_channel';
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
    const traces: unknown[] = [];
    const channels = ['acquire', 'release'].map((name) => {
      const channel = tracingChannel<object, object>(`holdfast:${name}`);
      const asyncEnd = (trace: object) => void traces.push([name, trace]);
      const ignore = () => {};
      const handlers = { start: ignore, end: ignore, asyncStart: ignore, asyncEnd, error: ignore };
      channel.subscribe(handlers);
      return () => channel.unsubscribe(handlers);
    });
    const lock = await locks.acquire('x');
    await lock.release();
    for (const unsubscribe of channels) unsubscribe();
    const about = { lock: 'x', server: place.label, clientId: locks.clientId };
    assert.deepEqual(traces, [
      ['acquire', { ...about, result: lock }],
      ['release', { ...about, holder: lock, result: true }],
    ]);
  },
};
