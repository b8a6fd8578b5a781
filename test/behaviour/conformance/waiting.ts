/** Waiting for a lock, and the end of a wait. */

import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import type { LockManager } from '../../support/holdfast.js';
import { sleep, until } from '../../support/wait.js';
import { type Behaviours, enqueue, LONG, openSeveral } from './behaviour.js';

type Details = Readonly<Record<string, unknown>>;

export const WAITING: Behaviours = {
  'acquire: waits until the holder releases, and is handed the lock': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const first = await a.acquire('x', LONG);
    const { granted } = await enqueue(b, 'x', { wait: Number.POSITIVE_INFINITY });
    await sleep(100);
    assert.equal(b.stats().waiting, 1, 'not while the lock is held');
    assert.equal(await first.release(), true);
    const second = await granted;
    assert.equal(first.held, false);
    assert.ok(second.fence > first.fence);
    assert.equal(await second.release(), true);
  },

  'acquire: gets a lock whose holder let its lease run out': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const first = await a.acquire('x', { ttl: 300, renew: false });
    const second = await b.acquire('x', LONG);
    assert.equal(first.held, false);
    assert.ok(second.fence > first.fence);
  },

  'acquire: a wait of 0 tries once': async (place) => {
    const locks = await place.open();
    const holder = await locks.acquire('x');
    await assert.rejects(locks.acquire('x', { wait: 0 }), { code: 'ERR_LOCK_TIMEOUT' });
    await holder.release();
    assert.equal(await (await locks.acquire('x', { wait: 0 })).release(), true);
  },

  'timeout: says how long was waited, for whom, for how long it is held, and the place': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    await a.acquire('x', { label: 'nightly-report', ttl: 60_000 });
    let error: Details = {};
    await until(async () => {
      error = (await b.acquire('x', { wait: 150 }).catch((reason) => reason)) as Details;
      // Known as soon as the store has answered once.
      return error['position'] !== undefined;
    }, 'the position in the wait queue');
    const { name, code, lock, waited, holderLabel, remaining, position } = error;
    assert.deepEqual(
      { name, code, lock, holderLabel, position },
      {
        name: 'LockTimeoutError',
        code: 'ERR_LOCK_TIMEOUT',
        lock: 'x',
        holderLabel: 'nightly-report',
        position: 1,
      },
    );
    assert.ok(Number(waited) >= 150, String(waited));
    assert.ok(Number(remaining) > 30_000 && Number(remaining) <= 60_000, String(remaining));
    assert.equal(
      String(error['message']).replaceAll(/\b\d[\d.ms]*s\b/g, '_'),
      'lock "x" was not free within _: it is held by "nightly-report", and its lease ends in _, ' +
        'unless it is renewed; the caller was number 1 in the wait queue',
    );
  },

  'timeout: what remains of the lease falls as time passes': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    await a.acquire('x', { ttl: 60_000, renew: false });
    const remaining: number[] = [];
    for (let i = 0; i < 2; i++) {
      const error = (await b.acquire('x', { wait: 0 }).catch((reason) => reason)) as Details;
      remaining.push(Number(error['remaining']));
      await sleep(200);
    }
    const [first = 0, second = 0] = remaining;
    assert.ok(second > 0 && second <= first - 150, String(remaining));
  },

  'timeout: without a label a holder is told by its host and process, or by its manager': async (
    place,
  ) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const nameless = await place.open({ label: '' });
    await Promise.all([a.acquire('x'), nameless.acquire('y')]);
    const failure = async (manager: LockManager, name: string) =>
      (await manager.acquire(name, { wait: 0 }).catch((reason) => reason)) as Details;
    const theirs = await failure(b, 'x');
    const own = `${hostname().slice(0, 63)}.${process.pid}`;
    assert.equal(theirs['holderLabel'], own);
    assert.match(String(theirs['message']), new RegExp(`held by "${own}",`));
    assert.equal(theirs['heldFor'], undefined);
    const hidden = await failure(b, 'y');
    assert.match(String(hidden['message']), /held by another holdfast client,/);
    assert.equal(hidden['holderLabel'], undefined);
  },

  'timeout: for how long another caller of the manager has held it': async (place) => {
    const a = await place.open();
    const held = await a.acquire('x', { label: 'export' });
    await sleep(20);
    const failure = async () =>
      (await a.acquire('x', { wait: 0 }).catch((reason) => reason)) as Details;
    const error = await failure();
    assert.ok(Number(error['heldFor']) >= 19, String(error['heldFor']));
    const told = /it has been held for \d.*s by another caller of this manager \("export"\),/;
    assert.match(String(error['message']), told);
    const next = a.acquire('x', LONG);
    await held.release();
    await next;
    assert.match(String((await failure())['message']), /it has been held for \d/);
  },

  'label: that of connect is that of every lock; any text is made fit': async (place) => {
    const text = `${'pod-7d9f8b6c5-x2x4z'.padEnd(63, 'x')}/é 🔒 ${'y'.repeat(80)}`;
    const fit = `${'pod-7d9f8b6c5-x2x4z'.padEnd(63, 'x')}%2F%C3%A9%20%F0%9F%94%92%20${'y'.repeat(12)}`;
    const a = await place.open({ label: text });
    const held = await a.acquire('x', LONG);
    // On a quorum the attempt follows the label.
    assert.match(held.token, new RegExp(`\\.${fit}(\\.\\d+)?$`));
    const own = await a.acquire('y', { ...LONG, label: 'an own one' });
    assert.match(own.token, /\.an%20own%20one(\.\d+)?$/);
    const none = await a.acquire('z', { ...LONG, label: '' });
    assert.match(none.token, /^hf1\.[0-9a-f]{32}\.\d+(\.\d+)?$/);
  },

  'timeout: who stops waiting leaves the line, and the others move up': async (place) => {
    const [holder, first, second] = await openSeveral(place, 'holder', 'first', 'second');
    const lock = await holder.acquire('x', LONG);
    const gone = await enqueue(first, 'x', { wait: 300 });
    const stays = await enqueue(second, 'x');
    await assert.rejects(gone.granted, { code: 'ERR_LOCK_TIMEOUT' });
    await lock.release();
    assert.equal(await (await stays.granted).release(), true);
    assert.equal(first.stats().timedOut, 1);
  },

  'signal: one that is aborted already sends nothing': async (place) => {
    const locks = await place.open();
    const { requests } = locks.stats();
    const reason = new Error('not today');
    const refused = locks.acquire('x', { signal: AbortSignal.abort(reason) });
    await assert.rejects(refused, (error) => error === reason);
    assert.equal(locks.stats().requests, requests);
  },

  'signal: ends the wait with its own reason, and leaves nothing behind': async (place) => {
    const [holder, waiter, next] = await openSeveral(place, 'holder', 'waiter', 'next');
    const lock = await holder.acquire('x', LONG);
    const controller = new AbortController();
    const { signal } = controller;
    const cancelled = await enqueue(waiter, 'x', { ...LONG, signal });
    const stays = await enqueue(next, 'x');
    controller.abort();
    await assert.rejects(cancelled.granted, (error) => error === signal.reason);
    assert.equal(waiter.stats().waiting, 0);
    await lock.release();
    assert.equal(await (await stays.granted).release(), true);
    assert.equal(await (await waiter.tryAcquire('x'))?.release(), true);
  },

  'signal: ends a request that waits, whose callback then never runs': async (place) => {
    const [holder, waiter] = await openSeveral(place, 'holder', 'waiter');
    await holder.acquire('x', LONG);
    const signal = AbortSignal.timeout(100);
    const waiting = waiter.request('x', { signal }, () => assert.fail('it was cancelled'));
    await assert.rejects(waiting, { name: 'TimeoutError' });
  },

  'signal: an abort in the very moment of the grant never leaves the lock held': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    let aborts = 0;
    for (let round = 0; round < 60; round++) {
      const controller = new AbortController();
      const pending = a.acquire('x', { signal: controller.signal, ttl: 60_000 });
      const moment = round % 3;
      if (moment === 0) controller.abort();
      if (moment === 1) queueMicrotask(() => controller.abort());
      if (moment === 2) setImmediate(() => controller.abort());
      await pending.then(
        (lock) => lock.release(),
        () => {
          aborts += 1;
        },
      );
    }
    assert.ok(aborts > 0);
    assert.equal(await (await b.acquire('x', LONG)).release(), true);
  },

  'signal: an abort after the grant has no effect': async (place) => {
    const locks = await place.open();
    const controller = new AbortController();
    const lock = await locks.acquire('x', { signal: controller.signal });
    controller.abort();
    assert.equal(lock.held, true);
    assert.equal(lock.signal.aborted, false);
    assert.equal(await lock.release(), true);
  },
};
