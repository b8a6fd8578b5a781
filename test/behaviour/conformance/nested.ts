/** Requests inside requests: with `reentrant` they share a lease, without they must not wait for themselves. */

import assert from 'node:assert/strict';
import type { LockManager } from '../../support/holdfast.js';
import { sleep, until } from '../../support/wait.js';
import { aborted, type Behaviours, LONG, openSeveral } from './behaviour.js';

const AGAIN = { reentrant: true } as const;
/** A callback that must not run. */
const NEVER = () => assert.fail('it was held');
const NESTED = { name: 'LockError', code: 'ERR_LOCK_NESTED' } as const;

/** The warnings of the manager, in order. */
function warningsOf(locks: LockManager): { code: string; message: string }[] {
  const warnings: { code: string; message: string }[] = [];
  // Other tests check the warnings about a store.
  const about = /EVICTION|PERSISTENCE|SCRIPTS|POLLING|SAME_SERVER/;
  locks.on('warning', (warning) => about.test(warning.code) || warnings.push(warning));
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
        NESTED,
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

  'nested: a call that waits for itself is refused, once something under the request waits for it':
    async (place) => {
      const locks = await place.open();
      const refused = (call: Promise<unknown>, lock = 'x') =>
        assert.rejects(call, { ...NESTED, lock, message: /\{ reentrant: true \}/ });
      await locks.request(['x', 'y'], async () => {
        await refused(locks.request('x', NEVER));
        await refused(locks.request('x', LONG, NEVER));
        await refused(locks.request(['w', 'y'], NEVER), 'y');
        await refused(locks.acquire('x', LONG));
        await refused(locks.acquire(['w', 'x'], LONG));
        await refused(Promise.all([locks.request('x', NEVER), sleep(1)]));
        await refused(locks.request('x', NEVER).then(NEVER));
        await refused(locks.request('x', NEVER).finally(() => {}));
        await refused((async () => locks.request('x', NEVER))());
        const later = locks.request('x', NEVER);
        await sleep(20);
        await refused(later);
        const { signal } = new AbortController();
        await refused(locks.request('x', { signal }, NEVER));
      });
      await locks.request('x', () => refused(locks.request('x', NEVER)));
      assert.equal(locks.stats().waiting, 0);
    },

  'nested: the refusal names the line that called': async (place) => {
    const locks = await place.open();
    await locks.request('x', async () => {
      const { stack } = await locks.request('x', NEVER).catch((error) => error);
      assert.match(stack, /conformance.nested/);
    });
  },

  'nested: a call for which nothing under the request waits gets the lock after it, without a warning':
    async (place) => {
      const locks = await place.open();
      const warnings = warningsOf(locks);
      const ended: string[] = [];
      const calls: Promise<unknown>[] = [];
      const end = (who: string) => () => void ended.push(who);
      await locks.request('x', async () => {
        calls.push(locks.request('x', end('a')));
        calls.push(locks.acquire('x').then((lock) => lock.release()));
        calls.push(locks.request('x', end('b')).then(end('after b')));
        const failing = () => Promise.reject(new Error('its own'));
        calls.push(locks.request('x', failing).catch(end('error')));
        calls.push(locks.request('x', end('c')).finally(end('after c')));
        // A listener of an event is one for which nobody waits, though it waits itself.
        const listener = async () => {
          await locks.request('x', { reentrant: false }, end('listener'));
        };
        calls.push(listener());
        await sleep(50);
        end('outer')();
      });
      await Promise.all(calls);
      assert.equal(ended.shift(), 'outer');
      assert.deepEqual(ended.sort(), ['a', 'after b', 'after c', 'b', 'c', 'error', 'listener']);
      assert.deepEqual(warnings, []);
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
      nested = locks.request('x', () => 'after it');
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

  'nested: what does not wait for itself is not refused': async (place) => {
    const locks = await place.open();
    let late: Promise<unknown> = Promise.resolve();
    const gone = AbortSignal.abort(new Error('gone'));
    await locks.request('x', async () => {
      assert.equal(await locks.tryAcquire('x'), null);
      await assert.rejects(locks.acquire('x', { wait: 0 }), { code: 'ERR_LOCK_TIMEOUT' });
      assert.equal(await locks.request('x', { ifAvailable: true }, (lock) => lock), null);
      await (await locks.acquire('y')).release();
      await assert.rejects(locks.request('x', { signal: gone }, NEVER), { message: 'gone' });
      const stop = new AbortController();
      const stopped = locks.request('x', { reentrant: false, signal: stop.signal }, NEVER);
      setImmediate(() => stop.abort(new Error('stopped')));
      await assert.rejects(stopped, { message: 'stopped' });
      late = sleep(20).then(() => locks.request('x', () => 'after it'));
    });
    assert.equal(await late, 'after it');
    await until(() => locks.stats().held === 0, 'the end');
  },

  'nested: the signal of a call that waits for nobody under the request ends it': async (place) => {
    const locks = await place.open();
    const stop = new AbortController();
    let nested: Promise<unknown> = Promise.resolve();
    await locks.request('x', async () => {
      nested = locks.request('x', { signal: stop.signal }, NEVER).catch((error) => error.message);
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
      const began = performance.now();
      const upgrade = a.request('x', AGAIN, () => assert.fail('it is shared'));
      await assert.rejects(upgrade, { ...NESTED, lock: 'x', message: /wait for itself for ever/ });
      assert.ok(performance.now() - began < 1_000, 'at once');
      assert.equal(await (await b.tryAcquire('x', { mode: 'shared' }))?.release(), true);
    });
    await a.request('x', async () => {
      assert.equal(await a.request('x', shared, ({ mode }) => mode), 'exclusive');
      assert.equal(await b.tryAcquire('x', { mode: 'shared' }), null);
    });
  },
};
