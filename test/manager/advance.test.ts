/** The clock of a store in this process, which tests move. */

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, test } from 'node:test';
import type { LockError } from 'holdfast';
import { expressIdempotency, memoryStore } from 'holdfast/idempotency';
import { connect, type LockManager, openOperations } from '../support/holdfast.js';
import { serverOfFile } from '../support/server-of-file.js';
import { until } from '../support/wait.js';

let here: LockManager;
let there: LockManager;
const server = serverOfFile();

beforeEach(async () => {
  [here, there] = [await connect('memory:moved'), await connect('memory:moved')];
  // From here on no test depends on how long it takes.
  await here.advance(0);
});

afterEach(async () => {
  await Promise.all([here.close(), there.close()]);
  assert.equal(openOperations(), 0);
});

/** Notes what happens, in order. */
class Log {
  readonly lines: string[] = [];

  note(what: string): void {
    this.lines.push(what);
  }

  /** Notes how a promise ends. */
  watch(who: string, promise: Promise<unknown>): void {
    promise.then(
      () => this.note(`${who}: done`),
      ({ code }: LockError) => this.note(`${who}: ${code}`),
    );
  }
}

test('a lease that is not renewed ends at its time, not before', async () => {
  const lock = await here.acquire('a', { ttl: '10s', renew: false });
  // A lease counts 1 % and 2 ms less here than at the store.
  await there.advance(9_897);
  assert.equal(lock.held, true);
  assert.equal(lock.signal.aborted, false);
  await there.advance(1);
  assert.equal(lock.held, false);
  assert.equal(lock.signal.aborted, true);
  assert.notEqual(await there.tryAcquire('a'), null);
});

test('a lease that is renewed lasts a year, and no event loop counts as blocked', async () => {
  const lock = await here.acquire('a', { ttl: '1h', stallTimeout: 1 });
  await here.advance('365d');
  assert.equal(lock.held, true);
  assert.ok(here.stats().renewals >= 365 * 24 * 3);
  assert.equal(here.stats().oldestHold, 365 * 86_400_000);
});

test('while the clock stands nothing ends', async () => {
  const lock = await here.acquire('a', { ttl: 50, maxHold: 60 });
  const waits = there.acquire('a', { wait: 20 });
  const late = new Promise((resolve) => setTimeout(resolve, 150, 'late'));
  assert.equal(await Promise.race([waits, late]), 'late');
  assert.equal(lock.held, true);
  await here.advance(20);
  await assert.rejects(waits, { code: 'ERR_LOCK_TIMEOUT', waited: 20 });
});

test('waits, leases and holds end in the order of their times, and each is heard before the next', async () => {
  const log = new Log();
  const held = await here.acquire('a');
  log.watch('third', here.acquire('a', { wait: '3s' }));
  log.watch('first', there.acquire('a', { wait: '1s' }));
  log.watch('fifth', here.acquire(['b', 'a'], { wait: '5s' }));
  const brief = await there.acquire('c', { maxHold: '2s' });
  brief.signal.addEventListener('abort', () => {
    log.note('second: maxHold');
    // What a listener does on the way is done before the next moment.
    log.watch('after the second', here.acquire('c', { wait: '10s' }));
  });
  const lost = await there.acquire('d', { ttl: '4s', renew: false });
  lost.signal.addEventListener('abort', () => log.note('fourth: expired'));
  await there.advance('1h');
  assert.deepEqual(log.lines, [
    'first: ERR_LOCK_TIMEOUT',
    'second: maxHold',
    'after the second: done',
    'third: ERR_LOCK_TIMEOUT',
    'fourth: expired',
    'fifth: ERR_LOCK_TIMEOUT',
  ]);
  await held.release();
});

test('a waiter in another manager gets the lock when the hold before it ends', async () => {
  await here.acquire('a', { maxHold: '1h' });
  const next = there.acquire('a', { wait: '2h' });
  await there.advance('61m');
  const lock = await next;
  assert.equal(lock.held, true);
  assert.ok(there.stats().oldestHold >= 60_000);
});

test('each slot of runOnce is run once, in a whole day of them', async () => {
  const slots: string[] = [];
  for (let hour = 0; hour < 24; hour++) {
    const both = [here, there].map((locks) =>
      locks.runOnce('job', { every: '1h', wait: '1m' }, (_, slot) => slots.push(slot)),
    );
    const ran = (await Promise.all(both)).filter((result) => result.ran);
    assert.equal(ran.length, 1);
    await here.advance('1h');
  }
  assert.equal(new Set(slots).size, 24);
  const [first, second] = slots.map((slot) => Date.parse(slot)) as [number, number];
  assert.equal(second - first, 3_600_000);
});

test('a named slot is run again once it is not kept any more', async () => {
  const run = (locks: LockManager) => locks.runOnce('job', { slot: 'x', keep: '2h' }, () => 0);
  assert.equal((await run(here)).ran, true);
  await here.advance('119m');
  assert.equal((await run(there)).ran, false);
  await here.advance('2m');
  assert.equal((await run(there)).ran, true);
});

test('a memoryStore of a manager forgets records by its clock', async () => {
  const [kept, forgets] = [memoryStore(), memoryStore(here)];
  for (const store of [kept, forgets]) {
    assert.equal(await store.replace('id', undefined, 'begun', 1_000), true);
    assert.equal(await store.replace('id', undefined, 'again', 1_000), false);
  }
  await there.advance(999);
  assert.equal(await forgets.read('id'), 'begun');
  await there.advance(1);
  assert.equal(await forgets.read('id'), undefined);
  assert.equal(await forgets.replace('id', undefined, 'again', 1_000), true);
  assert.equal(await kept.read('id'), 'begun');
});

test('an idempotency key may be used anew when its answer is not kept any more', async () => {
  const handle = expressIdempotency({ locks: here, store: memoryStore(here), ttl: '1h' });
  let runs = 0;
  const service = createServer((request, response) => {
    handle(request, response, () => {
      runs += 1;
      response.end('paid');
    });
  });
  await new Promise<void>((listening) => service.listen(0, '127.0.0.1', listening));
  const { port } = service.address() as AddressInfo;
  const headers = { 'idempotency-key': '"k"' };
  const post = async () => {
    const answer = await fetch(`http://127.0.0.1:${port}/pay`, { method: 'POST', headers });
    assert.equal(await answer.text(), 'paid');
    await until(() => here.stats().held === 0, 'the end of the request');
  };
  try {
    await post();
    await here.advance('59m');
    await post();
    assert.equal(runs, 1);
    await here.advance('1m');
    await post();
    assert.equal(runs, 2);
  } finally {
    service.close();
    service.closeAllConnections();
  }
});

test('the times of several locks, of a timeout and of metrics are those of the moved clock', async () => {
  await there.acquire('b');
  const both = here.acquire(['a', 'b'], { wait: '1m' });
  both.catch(() => {});
  await here.advance('59s');
  assert.equal(here.stats().waiting, 1);
  await here.advance('1s');
  await assert.rejects(both, { code: 'ERR_LOCK_TIMEOUT', waited: 60_000 });
});

test('a store of its own has a clock of its own', async () => {
  await using other = await connect('memory:');
  const lock = await other.acquire('a', { ttl: '1h', renew: false });
  await here.advance('2h');
  assert.equal(lock.held, true);
  const later = await connect('memory:moved');
  const held = await later.acquire('z', { ttl: '1h', renew: false });
  await here.advance('2h');
  assert.equal(held.held, false, 'a manager that came later follows the clock that it finds');
  await later.close();
});

test('what moves no clock is refused', async () => {
  await using real = await connect(server.url);
  await assert.rejects(real.advance('1s'), {
    name: 'TypeError',
    code: 'ERR_INVALID_ARG_VALUE',
    message: /not that of redis:\/\/127\.0\.0\.1:\d+\/0: connect to memory:/,
  });
  for (const [wrong, code] of [
    [-1, 'ERR_OUT_OF_RANGE'],
    [Number.POSITIVE_INFINITY, 'ERR_OUT_OF_RANGE'],
    [undefined, 'ERR_INVALID_ARG_TYPE'],
    ['10', 'ERR_INVALID_ARG_VALUE'],
  ] as const) {
    await assert.rejects(here.advance(wrong as never), { code });
  }
  await here.close();
  await assert.rejects(here.advance(1), { code: 'ERR_LOCK_CLOSED' });
  await there.advance('1h');
});

test('a manager that a listener closes on the way ends the others no less', async () => {
  const log = new Log();
  const lock = await here.acquire('a', { maxHold: '1s' });
  lock.signal.addEventListener('abort', () => log.watch('close', here.close()));
  await there.acquire('b');
  log.watch('wait', there.acquire('b', { wait: '5s' }));
  await here.advance('10s');
  assert.deepEqual(log.lines, ['close: done', 'wait: ERR_LOCK_TIMEOUT']);
});
