/**
 * Refusals of the store. Two managers whose prefixes make the lock of one the side key of the other
 * have the effect of foreign data, though callers may not do that.
 */

import assert from 'node:assert/strict';
import { pastTheCheckOfKeys } from '../../support/holdfast.js';
import { type Behaviours, enqueue, hasCounterOfItsOwn, LONG, onTheCounter } from './behaviour.js';

export const REFUSALS: Behaviours = {
  'a key of another type is refused, and named': async (place) => {
    const [locks, waiter, stray] = await Promise.all([
      place.open(),
      place.open(),
      place.open({ prefix: '{lock:x}:' }),
    ]);
    const lock = await locks.acquire('x', LONG);
    const { granted } = await enqueue(waiter, 'x');
    for (const attempt of [() => stray.tryAcquire('queue'), () => stray.acquire('queue', LONG)]) {
      await assert.rejects(pastTheCheckOfKeys(attempt), {
        name: 'LockServerError',
        code: 'ERR_LOCK_SERVER',
        serverCode: 'WRONGTYPE',
        key: '{lock:x}:queue',
        lock: 'queue',
        message:
          `cannot acquire lock "queue" on ${place.label}: the server says WRONGTYPE ` +
          'Operation against a key holding the wrong kind of value (key "{lock:x}:queue"); ' +
          'this key holds other data: give locks a prefix or names of their own',
      });
    }
    await lock.release();
    assert.equal(await (await granted).release(), true);
  },

  'a fence that is no number is refused, and the lock is not taken': async (place) => {
    const locks = await place.open();
    const { stray, name, mode } = await onTheCounter(place);
    if (mode === 'shared') {
      // Plain commands would take the share and count on its key. After a refusal a script takes it.
      await (await locks.acquire('{0}')).release();
      assert.equal(await pastTheCheckOfKeys(() => stray.tryAcquire(name)), null);
      await pastTheCheckOfKeys(() => stray.forceRelease(name, { foreign: true }));
    }
    const inTheWay = await pastTheCheckOfKeys(() => stray.acquire(name, { mode }));
    for (let round = 0; round < 2; round++) {
      await assert.rejects(locks.tryAcquire('{0}'), {
        code: 'ERR_LOCK_SERVER',
        serverCode: 'WRONGTYPE',
        key: place.counter,
        lock: '{0}',
      });
    }
    assert.equal(await inTheWay.release(), true);
    assert.equal(await (await locks.tryAcquire('{0}'))?.release(), true);
  },

  'a value that no manager wrote is respected, and its holder is called other code': async (
    place,
  ) => {
    await (await (await place.open()).acquire('{0}')).release();
    // Of the released lock a counter stays: a text that is no token.
    const { stray, name } = await onTheCounter(place);
    assert.equal(await pastTheCheckOfKeys(() => stray.tryAcquire(name)), null);
    const waiting = pastTheCheckOfKeys(() => stray.acquire(name, { wait: 100 }));
    await assert.rejects(waiting, {
      code: 'ERR_LOCK_TIMEOUT',
      holderLabel: undefined,
      message: hasCounterOfItsOwn(place)
        ? /held by other code, and its lease ends in \d/
        : /held by other code, and its lease has no end/,
    });
  },
};
