/** What `lockHealth` leaves behind, and how long it takes. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { LockManager } from 'holdfast';
import { lockHealth } from 'holdfast/nest';
import { connect } from '../../support/holdfast.js';

const timers = () => process.getActiveResourcesInfo().filter((each) => each === 'Timeout').length;

test('a check leaves neither a lock nor a timer', async () => {
  const locks = await connect('memory:');
  const before = timers();
  for (let i = 0; i < 3; i++) {
    const { shop } = await lockHealth('shop', locks, { timeout: 60_000 });
    assert.deepEqual(shop, { status: 'up', held: 0, waiting: 0 });
  }
  assert.deepEqual([timers() - before, (await locks.query()).held], [0, []]);
  await locks.close();
});

test('by default a check takes a second at most, and a lock that comes later is released', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let grant = (_lock: object): void => {};
  let released = 0;
  const slow = {
    clientId: 'a',
    stats: () => ({ held: 0, waiting: 1 }),
    tryAcquire: () =>
      new Promise((resolve) => {
        grant = resolve;
      }),
  };
  const checked = lockHealth('shop', slow as unknown as LockManager);
  t.mock.timers.tick(1_000);
  const { shop } = await checked;
  assert.deepEqual(shop, {
    status: 'down',
    message: 'no answer within 1000 ms',
    held: 0,
    waiting: 1,
  });
  grant({
    release: async () => {
      released += 1;
    },
  });
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(released, 1);
});
