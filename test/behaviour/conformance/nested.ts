/** Requests inside requests: with `reentrant` they share a lease, without they wait, and people are told. */

import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { LockWarning } from 'holdfast';
import type { LockManager } from '../../support/holdfast.js';
import { sleep, until } from '../../support/wait.js';
import { aborted, type Behaviours, LONG, openSeveral } from './behaviour.js';

const AGAIN = { reentrant: true } as const;
/** A callback that must not run. */
const NEVER = () => assert.fail('it was held');
/** For calls that wait for the request which awaits them: neither goes on before that. */
const BRIEF = { wait: 50 } as const;
/** What people read of such a call. */
const TOLD = /a request around the call holds it, .* \{ reentrant: true \}/;

/** What a call that waits for its own request rejects with. */
function timesOut(call: Promise<unknown>, lock: string, message: RegExp = TOLD): Promise<void> {
  return assert.rejects(call, { code: 'ERR_LOCK_TIMEOUT', lock, message });
}

/** The warnings of the manager about nested calls, in order. */
function warningsOf(locks: LockManager): LockWarning[] {
  const warnings: LockWarning[] = [];
  locks.on('warning', (warning) => {
    if (warning.code === 'WARN_LOCK_NESTED') warnings.push(warning);
  });
  return warnings;
}

/** The number of requests, once all servers of a quorum know of a grant. */
async function quiet(locks: LockManager): Promise<number> {
  let requests = Number.NaN;
  await until(async () => {
    ({ requests } = locks.stats());
    await sleep(50);
    return locks.stats().requests === requests;
  }, 'the last requests');
  return requests;
}

export const NESTING: Behaviours = {
  'nested: one that shares the lock is not refused for a lease that it does not get': async (
    place,
  ) => {
    const locks = await place.open();
    const brief = { ttl: 1, maxHold: 1, linger: 60_000, stallTimeout: 0 };
    await locks.request('x', { ttl: 60_000 }, async (outer) => {
      const { remaining } = outer;
      await locks.request('x', { ...AGAIN, ...brief }, async (inner) => {
        assert.equal(inner.fence, outer.fence);
        assert.ok(inner.remaining > remaining / 2);
      });
      const refused = { name: 'RangeError' };
      await assert.rejects(locks.request('x', brief, NEVER), refused, 'it shares nothing');
      await assert.rejects(locks.request('y', { ...AGAIN, ...brief }, NEVER), refused);
      const wrong = { ...AGAIN, ttl: 'soon' as '1s' };
      await assert.rejects(locks.request('x', wrong, NEVER), /ttl/);
    });
    await assert.rejects(locks.request('x', { ...AGAIN, ttl: 1 }, NEVER), { name: 'RangeError' });
  },

  'reentrant: a nested request gets the lease of the one around it, without the store': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const result = await a.request('x', async (outer) => {
      const requests = await quiet(a);
      const depth = await a.request('x', AGAIN, async (inner) => {
        assert.deepEqual([inner.held, inner.mode], [true, 'exclusive']);
        assert.deepEqual([inner.token, inner.fence], [outer.token, outer.fence]);
        assert.equal(inner.signal, outer.signal);
        return a.request('x', AGAIN, (innermost) => (innermost.held ? 3 : 0));
      });
      assert.equal(a.stats().requests, requests);
      assert.equal(outer.held, true);
      assert.equal(await b.tryAcquire('x'), null);
      return depth;
    });
    assert.equal(result, 3);
    assert.equal(await (await b.tryAcquire('x'))?.release(), true);
  },

  'reentrant: without a request around it, it is like any other': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    await a.request('x', AGAIN, async (lock) => {
      assert.equal(lock.held, true);
      assert.equal(await b.tryAcquire('x'), null);
    });
    const theirs = await b.acquire('x', LONG);
    const missed = await a.request('x', { ...AGAIN, ifAvailable: true }, (lock) => lock);
    assert.equal(missed, null);
    await theirs.release();
  },

  'reentrant: other names, other managers and code beside it get no part of the lease': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    let beside: Promise<unknown> = Promise.resolve();
    const go = new Promise<void>((resolve) => {
      beside = sleep(50).then(() => {
        resolve();
        return a.request('x', { ...AGAIN, wait: 50 }, () => assert.fail('it was held'));
      });
      beside.catch(() => {});
    });
    await a.request('x', async () => {
      await go;
      await assert.rejects(beside, { code: 'ERR_LOCK_TIMEOUT' });
      const other = b.request('x', { ...AGAIN, wait: 50 }, () => assert.fail('it was held'));
      await assert.rejects(other, { code: 'ERR_LOCK_TIMEOUT' });
      assert.equal(await a.request('y', AGAIN, ({ name, held }) => held && name), 'y');
    });
  },

  'reentrant: those in a Promise.all share the lease, and so do not exclude each other': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    let inside = 0;
    let most = 0;
    await a.request('x', () =>
      Promise.all(
        [1, 2, 3].map(() =>
          a.request('x', AGAIN, async () => {
            inside += 1;
            most = Math.max(most, inside);
            await new Promise(setImmediate);
            inside -= 1;
          }),
        ),
      ),
    );
    assert.equal(most, 3);
    assert.equal(await (await b.tryAcquire('x'))?.release(), true);
  },

  'reentrant: what runs on after the end of the request gets no lock from it': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    let late: Promise<unknown> = Promise.resolve();
    let ended = () => {};
    const end = new Promise<void>((resolve) => {
      ended = resolve;
    });
    await a.request('x', async () => {
      late = end.then(() => a.request('x', { ...AGAIN, wait: 50 }, () => 'got it'));
      late.catch(() => {});
    });
    const theirs = await b.acquire('x', LONG);
    ended();
    await assert.rejects(late, { code: 'ERR_LOCK_TIMEOUT' });
    await theirs.release();
  },

  'reentrant: the lock is released when the last of those that share it has ended': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    let finish = () => {};
    const gate = new Promise<void>((resolve) => {
      finish = resolve;
    });
    let nested: Promise<boolean> = Promise.resolve(false);
    let late: Promise<unknown> = Promise.resolve();
    await a.request('x', async () => {
      late = sleep(50).then(() => a.request('x', { ...AGAIN, wait: 50 }, () => 'got it'));
      late.catch(() => {});
      nested = a.request('x', AGAIN, async (lock) => {
        await gate;
        return lock.held;
      });
    });
    assert.equal(await b.tryAcquire('x'), null);
    await assert.rejects(late, { code: 'ERR_LOCK_TIMEOUT' }, 'the request around it has ended');
    finish();
    assert.equal(await nested, true);
    assert.equal(await (await b.tryAcquire('x'))?.release(), true);
  },

  'reentrant: a nested release ends that part alone, and extend is for the lease': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    await a.request('x', { ttl: 1_000 }, async (outer) => {
      await a.request('x', AGAIN, async (inner) => {
        await inner.extend(60_000);
        assert.equal(await inner.release(), true);
        assert.deepEqual([inner.held, inner.remaining], [false, 0]);
        assert.equal(await inner.release(), false);
        assert.throws(() => inner.assertHeld(), { reason: 'released' });
        await assert.rejects(inner.extend(), { reason: 'released' });
      });
      assert.ok(outer.remaining > 50_000);
      assert.equal(await b.tryAcquire('x'), null);
      await assert.rejects(
        a.request('x', AGAIN, (inner) => inner.downgrade()),
        { name: 'LockError', code: 'ERR_LOCK_NESTED' },
      );
    });
    assert.equal(await (await b.tryAcquire('x'))?.release(), true);
  },

  'reentrant: a loss is told to all that share the lease': async (place) => {
    const locks = await place.open();
    // The first time takes long where processors are emulated: the hold would end before the inner call.
    await locks.request('x', () => locks.request('x', AGAIN, () => {}));
    let inner: unknown;
    const outer = locks.request('x', { maxHold: 500 }, async () => {
      inner = await locks
        .request('x', AGAIN, async (lock) => {
          await aborted(lock);
          return 'inner';
        })
        .catch((error) => error);
      return 'outer';
    });
    await assert.rejects(outer, { code: 'ERR_LOCK_LOST', reason: 'maxHold', result: 'outer' });
    const { code, result } = inner as { code: string; result: string };
    assert.deepEqual([code, result], ['ERR_LOCK_LOST', 'inner']);
  },

  'reentrant: a lock that was lost is not shared, but acquired anew': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lost = a.request('x', { maxHold: 500 }, async (outer) => {
      await aborted(outer);
      const theirs = await b.acquire('x');
      const nested = a.request('x', { ...AGAIN, wait: 30_000 }, (inner) => {
        assert.equal(inner.held, true);
        assert.ok(inner.fence > theirs.fence);
        return inner.fence;
      });
      await until(() => a.stats().waiting === 1, 'the nested request to wait');
      await theirs.release();
      assert.ok((await nested) > outer.fence);
    });
    await assert.rejects(lost, { code: 'ERR_LOCK_LOST', reason: 'maxHold' });
  },

  'reentrant: one of several names, and several of which one is held': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    await a.request(['x', 'y'], async (set) => {
      await a.request('y', AGAIN, (lock) => assert.equal(lock.fence, set.fences['y']));
      await a.request(['z', 'x'], AGAIN, async (more) => {
        assert.equal(more.fences['x'], set.fences['x']);
        assert.equal(await b.tryAcquire('z'), null);
      });
      assert.equal(await (await b.tryAcquire('z'))?.release(), true);
      assert.equal(set.held, true);
    });
    assert.equal(await (await b.tryAcquire(['x', 'y', 'z']))?.release(), true);
  },

  'nested: a call for which its own request waits times out, and says what to do': async (
    place,
  ) => {
    const locks = await place.open();
    await locks.request(['x', 'y'], async () => {
      await Promise.all([
        timesOut(locks.request('x', BRIEF, NEVER), 'x'),
        timesOut(locks.request(['w', 'y'], BRIEF, NEVER), 'y'),
        timesOut(locks.request('x', { ...BRIEF, reentrant: false }, NEVER), 'x'),
        timesOut(locks.acquire('x', BRIEF), 'x'),
        timesOut(locks.acquire('x', { wait: 0 }), 'x'),
        timesOut(Promise.all([locks.acquire(['v', 'x'], BRIEF)]), 'x'),
        timesOut(
          locks.request('z', () => locks.request('y', BRIEF, NEVER)),
          'y',
        ),
      ]);
    });
    // The callback is no async function, so nothing awaits the call before the request does.
    await timesOut(
      locks.request('x', () => locks.request('x', BRIEF, NEVER)),
      'x',
    );
    await timesOut(
      locks.request('x', () => locks.request('x', BRIEF, NEVER).then(NEVER)),
      'x',
    );
    const { waiting, held } = locks.stats();
    assert.deepEqual({ waiting, held }, { waiting: 0, held: 0 });
  },

  'nested: the timeout has the stack of the call': async (place) => {
    const locks = await place.open();
    const call = locks.request('x', async () => {
      await locks.request('x', BRIEF, NEVER);
    });
    const { message, stack } = await call.catch((error) => error);
    assert.match(stack, /conformance.nested/);
    assert.ok(stack.startsWith(`LockTimeoutError: ${message}\n`), stack);
  },

  'nested: whatever its request does not await gets the lock after it': async (place) => {
    const locks = await place.open();
    const ended: string[] = [];
    const end = (who: string) => () => void ended.push(who);
    const job = (who: string) => async () => {
      await locks.request('x', LONG, end(who));
    };
    const started: Record<string, (who: string) => unknown> = {
      'a promise': (who) => locks.request('x', LONG, end(who)),
      'an acquire': (who) => locks.acquire('x', LONG).then((lock) => lock.release().then(end(who))),
      'a list': (who) => locks.request(['w', 'x'], LONG, end(who)),
      'a handler of then': (who) => locks.request('x', LONG, () => {}).then(end(who)),
      'a handler of finally': (who) => locks.request('x', LONG, () => {}).finally(end(who)),
      'a handler of catch': (who) =>
        locks.request('x', LONG, () => Promise.reject(new Error('its own'))).catch(end(who)),
      'Promise.all': (who) => Promise.all([locks.request('x', LONG, end(who))]),
      'an async function': (who) => job(who)(),
      'a timer': (who) => new Promise((resolve) => setTimeout(() => resolve(job(who)()), 5)),
      'an immediate': (who) => new Promise((resolve) => setImmediate(() => resolve(job(who)()))),
      'a listener': (who) =>
        new Promise((resolve) => {
          const events = new EventEmitter();
          events.on('event', () => resolve(job(who)()));
          events.emit('event');
        }),
    };
    const calls: unknown[] = [];
    await locks.request('x', async () => {
      for (const [who, start] of Object.entries(started)) calls.push(start(who));
      await until(() => locks.stats().waiting >= calls.length, 'the calls to wait');
      end('the request')();
    });
    await Promise.all(calls);
    assert.equal(ended.shift(), 'the request');
    assert.deepEqual(ended.sort(), Object.keys(started).sort());
  },

  'nested: a call that has waited for long is warned of, once for each place in the code': async (
    place,
  ) => {
    const locks = await place.open();
    const warnings = warningsOf(locks);
    const calls: Promise<unknown>[] = [];
    await locks.request(['x', 'y', 'z'], async () => {
      for (const name of ['x', 'y']) calls.push(locks.request(name, LONG, () => name));
      // The timer of this one is the last.
      calls.push(locks.acquire(['w', 'z'], LONG).then((set) => set.release()));
      await until(() => warnings.some(({ lock }) => lock === 'z'), 'the last warning');
    });
    assert.deepEqual(await Promise.all(calls), ['x', 'y', true]);
    assert.deepEqual(
      warnings.map(({ lock }) => lock),
      ['x', 'z'],
    );
    for (const { message, lock } of warnings) {
      assert.match(message, TOLD);
      assert.match(message, new RegExp(`lock "${lock}": [^]*\n +at .*conformance.nested`));
    }
  },

  'nested: while a call waits for the lock of somebody else, nobody is told of its request': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const warnings = warningsOf(a);
    const calls: Promise<unknown>[] = [];
    const theirs = await b.acquire('other', LONG);
    await a.request(['x', 'z'], async () => {
      await timesOut(a.acquire(['other', 'z'], BRIEF), 'other', /^((?!request around).)*$/);
      calls.push(a.request(['other', 'z'], LONG, () => 'both'));
      // The timer of this one is the last.
      calls.push(a.request('x', LONG, () => 'x'));
      await until(() => warnings.length > 0, 'the last warning');
    });
    assert.deepEqual(
      warnings.map(({ lock }) => lock),
      ['x'],
    );
    await theirs.release();
    assert.deepEqual(await Promise.all(calls), ['both', 'x']);
  },

  'nested: code outside may wait for a call that began under the request': async (place) => {
    const locks = await place.open();
    let begun = () => {};
    let end = () => {};
    let nested: Promise<unknown> | undefined;
    const running = new Promise<void>((resolve) => {
      begun = resolve;
    });
    const outer = locks.request('x', async () => {
      nested = locks.request('x', LONG, () => 'after it');
      begun();
      await new Promise<void>((resolve) => {
        end = resolve;
      });
    });
    await running;
    const waited = (async () => nested)();
    await sleep(20);
    end();
    await outer;
    assert.equal(await waited, 'after it');
  },

  'nested: what does not wait is answered at once': async (place) => {
    const locks = await place.open();
    let late: Promise<unknown> = Promise.resolve();
    const gone = AbortSignal.abort(new Error('gone'));
    await locks.request('x', async () => {
      assert.equal(await locks.tryAcquire('x'), null);
      assert.equal(await locks.request('x', { ifAvailable: true }, (lock) => lock), null);
      await (await locks.acquire('y')).release();
      await assert.rejects(locks.request('x', { signal: gone }, NEVER), { message: 'gone' });
      const stop = new AbortController();
      const stopped = locks.request('x', { ...LONG, signal: stop.signal }, NEVER);
      setImmediate(() => stop.abort(new Error('stopped')));
      await assert.rejects(stopped, { message: 'stopped' });
      late = sleep(20).then(() => locks.request('x', LONG, () => 'after it'));
    });
    assert.equal(await late, 'after it');
    await until(() => locks.stats().held === 0, 'the end');
  },

  'nested: the signal of a call that waits for nobody under the request ends it': async (place) => {
    const locks = await place.open();
    const stop = new AbortController();
    let nested: Promise<unknown> = Promise.resolve();
    await locks.request('x', async () => {
      nested = locks
        .request('x', { ...LONG, signal: stop.signal }, NEVER)
        .catch((error) => error.message);
      await sleep(5);
      stop.abort(new Error('stopped'));
      await until(() => locks.stats().waiting === 0, 'the end of the wait');
    });
    assert.equal(await nested, 'stopped');
  },

  'shared, reentrant: shares what is shared or exclusive around it, and no more': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const shared = { ...AGAIN, mode: 'shared' } as const;
    await a.request('x', shared, async (outer) => {
      assert.equal(await a.request('x', shared, ({ token }) => token === outer.token), true);
      const upgrade = a.request('x', { ...AGAIN, ...BRIEF }, NEVER);
      await timesOut(upgrade, 'x', /holds it shared, .* make that request exclusive/);
      const missed = await a.request('x', { ...AGAIN, ifAvailable: true }, (lock) => lock);
      assert.equal(missed, null);
      assert.equal(await (await b.tryAcquire('x', { mode: 'shared' }))?.release(), true);
    });
    await a.request('x', async () => {
      assert.equal(await a.request('x', shared, ({ mode }) => mode), 'exclusive');
      assert.equal(await b.tryAcquire('x', { mode: 'shared' }), null);
    });
  },

  'shared, nested: a call that its own request keeps waiting is told so, in any mode': async (
    place,
  ) => {
    const locks = await place.open();
    const shared = { mode: 'shared' } as const;
    await locks.request('x', shared, () =>
      timesOut(locks.acquire('x', BRIEF), 'x', /holds it shared, .* make that request exclusive/),
    );
    await locks.request('x', { ...shared, limit: 1 }, () =>
      timesOut(locks.acquire('x', { ...shared, limit: 1, ...BRIEF }), 'x'),
    );
    await locks.request('x', () => timesOut(locks.acquire('x', { ...shared, ...BRIEF }), 'x'));
  },
};
