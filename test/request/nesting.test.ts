/** The end of a request, and calls inside of it: what is released, what is told, and what is shared. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import {
  closeManagers,
  isFree,
  type Lock,
  type LockManager,
  openPair,
} from '../support/holdfast.js';
import { sleep, until } from '../support/wait.js';

const BOUND = { timeout: 15_000 };
const AGAIN = { reentrant: true } as const;
const NEVER = () => assert.fail('it was held');

let a: LockManager;
let b: LockManager;

beforeEach(async () => {
  [a, b] = await openPair();
});

afterEach(closeManagers);

test('a callback that throws: its error, and a free lock', BOUND, async () => {
  const mine = new Error('mine');
  const failing = a.request('x', () => Promise.reject(mine));
  await assert.rejects(failing, (error) => error === mine);
  assert.ok(await isFree(b, 'x'));
  const several = a.request(['x', 'y'], () => {
    throw mine;
  });
  await assert.rejects(several, (error) => error === mine);
  assert.ok((await isFree(b, 'x')) && (await isFree(b, 'y')));
});

test(
  'a loss is told with the result, and one that the callback released is none',
  BOUND,
  async () => {
    const lost = a.request('x', async (lock) => {
      await b.forceRelease('x');
      await until(() => !lock.held, 'the loss');
      return 42;
    });
    const expected = { code: 'ERR_LOCK_LOST', reason: 'stolen', lock: 'x', result: 42 };
    await assert.rejects(lost, expected);
    assert.equal(await a.request('x', async (lock) => (await lock.release()) && 'done'), 'done');
  },
);

test('a lock that was lost is not shared, but acquired anew', BOUND, async () => {
  const outer = a.request('x', async (lock) => {
    await b.forceRelease('x');
    await until(() => !lock.held, 'the loss');
    await a.request('x', AGAIN, (inner) => {
      assert.equal(inner.held, true);
      assert.ok(inner.fence > lock.fence);
    });
  });
  await assert.rejects(outer, { code: 'ERR_LOCK_LOST', reason: 'stolen' });
});

test(
  'a lock is shared with calls of the same manager, and in a mode that it has',
  BOUND,
  async () => {
    await a.request('x', async () => {
      await assert.rejects(b.request('x', { ...AGAIN, wait: 20 }, NEVER), {
        code: 'ERR_LOCK_TIMEOUT',
      });
      await a.request('x', AGAIN, ({ held }) => assert.ok(held));
    });
    await a.request('x', { mode: 'shared' }, async () => {
      await assert.rejects(a.request('x', { ...AGAIN, wait: 20 }, NEVER), {
        code: 'ERR_LOCK_TIMEOUT',
        message: /holds it shared/,
      });
    });
  },
);

for (const how of ['ends', 'throws']) {
  test(
    `a request that ${how} shares its lock no more, though a part of it goes on`,
    BOUND,
    async () => {
      let go = () => {};
      const gate = new Promise<void>((resolve) => {
        go = resolve;
      });
      let inner: Promise<unknown> | undefined;
      let late: Promise<unknown> | undefined;
      const outer = a.request('x', async () => {
        inner = a.request('x', AGAIN, () => gate);
        const after = sleep(20).then(() => a.request('x', { ...AGAIN, wait: 20 }, NEVER));
        late = assert.rejects(after, { code: 'ERR_LOCK_TIMEOUT' });
        if (how === 'throws') throw new Error('mine');
      });
      await outer.catch(() => {});
      await late;
      go();
      await inner;
      assert.ok(await isFree(b, 'x'));
    },
  );
}

test(
  'a call that has ended is warned of no more; one that waits is, in a second or two',
  BOUND,
  async () => {
    const warned: unknown[] = [];
    a.on('warning', ({ lock }) => warned.push(lock));
    await a.request(['x', 'y'], async () => {
      const short = a.acquire('x', { wait: 20 });
      await assert.rejects(short, { code: 'ERR_LOCK_TIMEOUT', message: /request around the call/ });
      const call = a.acquire('y', { wait: 8_000 });
      call.then((lock) => lock.release()).catch(() => {});
      await until(() => warned.length > 0, 'the warning', 6_000);
    });
    assert.deepEqual(warned, ['y']);
  },
);

test('a nested lock that its callback has left has nothing more to change', BOUND, async () => {
  await a.request('x', { mode: 'shared' }, async () => {
    await a.request('x', { ...AGAIN, mode: 'shared' }, async (inner) => {
      assert.equal(await inner.downgrade(), true, 'it is shared');
      assert.equal(await inner.release(), true);
      assert.deepEqual([await inner.downgrade(), await inner.stopRenewing()], [false, false]);
    });
  });
});

test('the end of a block ends a nested lock, and not the lock of the request', BOUND, async () => {
  await a.request('x', async (outer) => {
    let left: Lock | undefined;
    await a.request('x', AGAIN, async (inner) => {
      left = inner;
      await inner[Symbol.asyncDispose]();
      assert.deepEqual([inner.held, inner.remaining, outer.held], [false, 0, true]);
      await assert.rejects(inner.extend(), { code: 'ERR_LOCK_LOST', reason: 'released' });
      assert.throws(() => inner.assertHeld(), { code: 'ERR_LOCK_LOST', reason: 'released' });
    });
    assert.equal(await left?.release(), false);
    assert.equal(outer.held, true);
  });
  assert.ok(await isFree(b, 'x'));
});

test(
  'a nested lock tells what the lock of the request does, and leaves its end to that',
  BOUND,
  async () => {
    for (const options of [{}, { mode: 'shared', limit: 3, permits: 2 }] as const) {
      await a.request('x', options, async (outer) => {
        await a.request('x', { ...AGAIN, ...options }, async (inner) => {
          const { name, fence, mode, permits, token, signal, held } = inner;
          assert.deepEqual(
            { name, fence, mode, permits, token, held },
            {
              name: 'x',
              fence: outer.fence,
              mode: outer.mode,
              permits: outer.permits,
              token: outer.token,
              held: true,
            },
          );
          assert.equal(signal, outer.signal);
          assert.deepEqual(inner.toJSON(), outer.toJSON());
          assert.ok(inner.remaining > 0 && inner.remaining <= outer.remaining);
          inner.assertHeld();
          const nested = { code: 'ERR_LOCK_NESTED', lock: 'x' };
          await assert.rejects(inner.stopRenewing(), { ...nested, message: /left to expire/ });
          if (mode === 'shared') assert.equal(await inner.downgrade(), true);
          else await assert.rejects(inner.downgrade(), { ...nested, message: /downgraded/ });
          assert.deepEqual([outer.mode, outer.held], [mode, true]);
          assert.equal(await inner.release(), true);
          assert.equal(await inner.release(), false);
          assert.deepEqual([inner.remaining, inner.held, outer.held], [0, false, true]);
          assert.deepEqual([await inner.stopRenewing(), await inner.downgrade()], [false, false]);
        });
      });
    }
  },
);
