/** `runOnce`: one body per slot, whoever asks, and whatever happens to it. */

import assert from 'node:assert/strict';
import { afterEach, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LockManager } from '../support/holdfast.js';
import { closeManagers, connect, holdfast } from '../support/holdfast.js';
import { spawnProgram } from '../support/program.js';
import { FaultProxy } from '../support/proxy.js';
import { serverOfFile } from '../support/server-of-file.js';
import { until } from '../support/wait.js';

const { LockClosedError, LockConnectionError, LockLostError, LockUnmarkedError } = holdfast;
const DONE = { ran: false, slot: 's', reason: 'done' } as const;
const RUNNING = { ran: false, slot: 's', reason: 'running' } as const;

const server = serverOfFile();
let visits = 0;

afterEach(async () => {
  await closeManagers();
  await server.admin.flushall();
});

for (const kind of ['redis', 'memory'] as const) {
  describe(`on ${kind}:`, () => {
    let target: string;
    let [a, b]: LockManager[] = [];
    const both = () => [a, b] as [LockManager, LockManager];

    before(() => {
      visits += 1;
    });

    async function start(): Promise<[LockManager, LockManager]> {
      target = kind === 'redis' ? server.url : `memory:once-${visits++}`;
      [a, b] = [await connect(target), await connect(target)];
      return both();
    }

    test('a slot is run once by many callers of several managers', async () => {
      const managers = [...(await start()), await connect(target)];
      let bodies = 0;
      for (let slot = 0; slot < 20; slot++) {
        const calls = managers.flatMap((locks) => [0, 1].map(() => locks));
        const results = await Promise.all(
          calls.map((locks) =>
            locks.runOnce('job', { slot: `${slot}`, wait: 30_000 }, async (lock, name) => {
              assert.ok(lock.held);
              bodies += 1;
              return name;
            }),
          ),
        );
        const ran = results.filter((result) => result.ran);
        assert.deepEqual(ran, [{ ran: true, slot: `${slot}`, value: `${slot}` }]);
        const others = results.filter((result) => !result.ran);
        assert.ok(others.every((result) => !result.ran && result.reason === 'done'));
      }
      assert.equal(bodies, 20);
    });

    test('who does not wait is told that another runs it', async () => {
      const [one, other] = await start();
      await one.runOnce('job', { slot: 's' }, async () => {
        assert.deepEqual(await other.runOnce('job', { slot: 's' }, () => 1), RUNNING);
        assert.deepEqual(await other.runOnce('job', { slot: 's', wait: 5 }, () => 1), RUNNING);
        const next = { ...RUNNING, slot: 't' };
        assert.deepEqual(await other.runOnce('job', { slot: 't' }, () => 1), next);
      });
      assert.deepEqual(await other.runOnce('job', { slot: 's' }, () => 1), DONE);
    });

    test('a slot whose body threw is done', async () => {
      const [one, other] = await start();
      const failing = one.runOnce('job', { slot: 's' }, () => {
        throw new Error('broken');
      });
      await assert.rejects(failing, /broken/);
      assert.deepEqual(await other.runOnce('job', { slot: 's' }, () => 1), DONE);
    });

    test('with retry a slot whose body threw is run by who waits', async () => {
      const [one, other] = await start();
      let waiting: Promise<unknown> | undefined;
      const failing = one.runOnce('job', { slot: 's', retry: true }, async () => {
        waiting = other.runOnce('job', { slot: 's', retry: true, wait: 30_000 }, () => 2);
        await until(() => other.stats().waiting === 1, 'the other to wait');
        throw new Error('broken');
      });
      await assert.rejects(failing, /broken/);
      assert.deepEqual(await waiting, { ran: true, slot: 's', value: 2 });
      assert.deepEqual(await one.runOnce('job', { slot: 's', retry: true }, () => 3), DONE);
    });

    test('with retry a body that throws leaves nothing behind', async () => {
      const [one, other] = await start();
      for (const options of [{ slot: 's' }, { slot: 's', keepResult: true }]) {
        const failing = one.runOnce('job', { ...options, retry: true }, () => {
          throw new Error('broken');
        });
        await assert.rejects(failing, /broken/);
        const { held, pending } = await other.query();
        assert.deepEqual([held, pending], [[], []]);
        assert.equal(one.stats().held, 0);
      }
    });

    test("a mark's name that others share as a lock is not asked for again and again", async () => {
      const [one, other] = await start();
      for (const options of [{}, { retry: true }, { keepResult: true }]) {
        const shared = await other.acquire('once:job@s', { mode: 'shared' });
        assert.deepEqual(await one.runOnce('job', { slot: 's', ...options }, () => 1), RUNNING);
        await shared.release();
      }
    });

    test('with retry a body that has released its lock marks nothing, and its caller is told', async () => {
      const [one, other] = await start();
      for (const keepResult of [false, true]) {
        const options = { slot: `${keepResult}`, retry: true, keepResult };
        const early = one.runOnce('job', options, async (lock) => {
          assert.ok(await lock.release());
          return 7;
        });
        await assert.rejects(early, (error) => {
          assert.ok(error instanceof LockUnmarkedError);
          assert.ok(error.cause instanceof LockLostError && error.cause.reason === 'released');
          assert.deepEqual([error.lock, error.slot], ['job', `${keepResult}`]);
          assert.match(
            error.message,
            /has ended well for the slot .*, but the slot may not be marked/,
          );
          return error.result === 7;
        });
        const again = await other.runOnce('job', options, () => 8);
        assert.deepEqual(again, { ran: true, slot: options.slot, value: 8 });
      }
    });

    test('with retry a slot is done after its body whatever happened to its key meanwhile', async () => {
      const [one, other] = await start();
      const options = { slot: 's', retry: true, keepResult: true };
      await one.runOnce('job', options, async () => {
        await other.forceRelease('once:job@s');
        return 7;
      });
      assert.deepEqual(await other.runOnce('job', options, () => 8), { ...DONE, value: 7 });
      // A lease ends in the body, since only that of the lock is renewed.
      const { lost } = one.stats();
      await one.runOnce('long', { ...options, ttl: 1_000 }, async (lock) => {
        const asked = performance.now();
        await until(() => performance.now() - asked > 2_500, 'two leases to pass');
        return lock.held;
      });
      const told = await other.runOnce<boolean>('long', options, () => assert.fail());
      assert.deepEqual(told, { ...DONE, value: true });
      assert.equal(one.stats().lost, lost);
    });

    test('with retry a body that lost its lock marks nothing', async () => {
      const [one, other] = await start();
      const robbed = one.runOnce('job', { slot: 's', retry: true }, async (lock) => {
        await other.forceRelease('job');
        await until(() => lock.signal.aborted, 'the loss');
        return 7;
      });
      await assert.rejects(robbed, LockLostError);
      const again = await other.runOnce('job', { slot: 's', retry: true }, () => 8);
      assert.deepEqual(again, { ran: true, slot: 's', value: 8 });
    });

    for (const how of ['maxHold', 'a release by force'] as const) {
      test(`with retry nobody is told that a slot is done whose body has lost its lock by ${how}`, async () => {
        const [one, other] = await start();
        const options = { slot: 's', retry: true };
        const terms = how === 'maxHold' ? { ...options, maxHold: 200 } : options;
        let [isRunning, isEnding] = [false, false];
        const robbed = one.runOnce('job', terms, async () => {
          isRunning = true;
          await until(() => isEnding, 'the end of the body', 40_000);
          throw new Error('broken');
        });
        robbed.catch(() => {});
        await until(() => isRunning, 'the body');
        if (how !== 'maxHold') await other.forceRelease('job');
        // It waits until the first process knows of the loss, and not until its body has ended.
        const next = await other.runOnce('job', { ...options, wait: 30_000 }, () => 8);
        assert.deepEqual(next, { ran: true, slot: 's', value: 8 });
        isEnding = true;
        await assert.rejects(robbed, /broken/);
        assert.deepEqual(await one.runOnce('job', options, () => 9), DONE);
      });
    }

    test('what a run has left that crashed before its mark is no mark', async () => {
      const [one, other] = await start();
      const left = { leaveToExpire: true, renew: false } as const;
      for (const options of [{}, { retry: true }, { keepResult: true }, { wait: 300 }]) {
        const slot = JSON.stringify(options);
        await (await one.acquire(`once:job@${slot}`, left)).stopRenewing();
        const ran = await other.runOnce('job', { slot, ...options }, () => 1);
        assert.deepEqual(ran, { ran: true, slot, value: 1 });
        const again = await one.runOnce('job', { slot, ...options }, () => assert.fail());
        assert.ok(!again.ran && again.reason === 'done');
      }
    });

    test('the key of a slot that other code has is left to it', async () => {
      const [one] = await start();
      if (kind === 'memory') return;
      for (const value of ['of other code', '']) {
        await server.admin.set('lock:once:job@s', value);
        assert.deepEqual(await one.runOnce('job', { slot: 's' }, () => assert.fail()), RUNNING);
        assert.equal(await server.admin.get('lock:once:job@s'), value);
        assert.equal(await server.admin.exists('lock:job'), 0);
      }
    });

    test('no two pairs of key and slot have one mark, and no lock of a job is one', async () => {
      const [one] = await start();
      const pairs = [
        ['a', 'b@c'],
        ['a@b', 'c'],
        ['a%40b', 'c'],
        ['a', 'b'],
        ['a@b', 'x'],
        ['a@', 'b'],
        ['once:a', 'b'],
      ] as const;
      for (const [key, slot] of pairs) {
        const ran = await one.runOnce(key, { slot }, () => 1);
        assert.deepEqual(ran, { ran: true, slot, value: 1 }, `${key} ${slot}`);
      }
      const refused = one.runOnce('once:a@b', { slot: 's' }, () => assert.fail());
      await assert.rejects(refused, {
        code: 'ERR_INVALID_ARG_VALUE',
        message: /must not begin with "once:"/,
      });
    });

    test('when the mark fails, neither it nor the lock is held, and the job can run again', async () => {
      const [one, other] = await start();
      if (kind === 'memory') return;
      await server.admin.lpush('lock:once:job@s', 'no lock');
      const options = { slot: 's', wait: 30_000 };
      await assert.rejects(
        one.runOnce('job', options, () => assert.fail()),
        { code: 'ERR_LOCK_SERVER' },
      );
      assert.equal(await server.admin.exists('lock:job'), 0);
      await server.admin.del('lock:once:job@s');
      assert.ok((await other.runOnce('job', options, () => 1)).ran);
    });

    test('the slot is that of the call, however long it waits', async () => {
      const [one, other] = await start();
      const every = 500;
      const slots = new Set<string>();
      const held = await other.acquire('job');
      const first = one.runOnce('job', { every, wait: 30_000 }, (_, slot) => slots.add(slot));
      const second = one.runOnce('job', { every, wait: 30_000 }, (_, slot) => slots.add(slot));
      const [called, asked] = [Date.now(), performance.now()];
      await until(() => performance.now() - asked > 3 * every, 'three slots to pass');
      await held.release();
      for (const { slot } of await Promise.all([first, second])) {
        // By the clock of this machine, which is the server's.
        assert.ok(Math.abs(Date.parse(slot) - called) <= every, `${slot}, called at ${called}`);
      }
    });

    test('a done slot outlives its manager, burdens none, and ends', async () => {
      const [one, other] = await start();
      for (const retry of [false, true]) {
        await one.runOnce('job', { slot: `${retry}`, retry, keep: 60_000 }, () => 1);
      }
      assert.equal(one.stats().held, 0);
      assert.equal(one.stats().lost, 0);
      await one.close();
      for (const slot of ['false', 'true']) {
        const late = await other.runOnce('job', { slot }, () => 1);
        assert.deepEqual(late, { ...DONE, slot });
      }
      const { held } = await other.query({ startsWith: 'once:job@' });
      assert.ok(held.every(({ ttl }) => ttl !== null && ttl > 50_000 && ttl <= 60_000));
      await other.runOnce('job', { slot: 's', keep: 100 }, () => 1);
      await until(
        async () => (await other.runOnce('job', { slot: 's', keep: 100 }, () => 2)).ran,
        'the slot to be forgotten',
      );
    });

    test('with keepResult every later caller gets what the body returned', async () => {
      const [one, other] = await start();
      const report = { total: 5, title: 'Größe "+"', items: [1, null, { deep: true }], end: '+' };
      for (const retry of [false, true]) {
        const options = { slot: `${retry}`, retry, keepResult: true, keep: 60_000, wait: 30_000 };
        const [first, second] = await Promise.all(
          [one, other].map((locks) => locks.runOnce('job', options, async () => report)),
        );
        const ran = first?.ran ? first : second;
        const told = first?.ran ? second : first;
        assert.deepEqual(ran, { ran: true, slot: `${retry}`, value: report });
        const kept = { ran: false, slot: `${retry}`, reason: 'done', value: report };
        assert.deepEqual(told, kept);
        const third = await connect(target);
        for (const locks of [one, other, third]) {
          assert.deepEqual(await locks.runOnce('job', options, () => assert.fail()), kept);
        }
        const blind = await other.runOnce('job', { slot: `${retry}` }, () => assert.fail());
        assert.deepEqual(blind, { ran: false, slot: `${retry}`, reason: 'done' });
      }
      assert.equal(one.stats().held + other.stats().held, 0);
      const { held } = await other.query({ startsWith: 'once:job' });
      assert.deepEqual(
        held.map(({ name, clientId, label }) => [name, clientId !== '', / /.test(label ?? '')]),
        ['once:job@false', 'once:job@true'].map((name) => [name, true, false]),
      );
      assert.ok(held.every(({ ttl }) => ttl !== null && ttl > 50_000 && ttl <= 60_000));
      assert.ok(await other.forceRelease('once:job@true'));
      const again = { slot: 'true', keepResult: true };
      assert.ok((await other.runOnce('job', again, () => 1)).ran);
    });

    test('keepResult outlives its manager, and keeps nothing of a body without a result', async () => {
      const [one, other] = await start();
      const keeping = { keepResult: true, keep: 60_000 };
      await one.runOnce('job', { slot: 's', ...keeping }, () => 'kept');
      await one.runOnce('job', { slot: 'none', ...keeping }, () => undefined);
      const failing = one.runOnce('job', { slot: 'failed', ...keeping }, () => {
        throw new Error('broken');
      });
      await assert.rejects(failing, /broken/);
      await one.close();
      assert.deepEqual(await other.runOnce('job', { slot: 's', ...keeping }, () => 1), {
        ...DONE,
        value: 'kept',
      });
      for (const slot of ['none', 'failed']) {
        const none = await other.runOnce('job', { slot, ...keeping }, () => 1);
        assert.deepEqual(none, { ...DONE, slot });
      }
    });

    test('a result that cannot be kept is an error, and with retry the slot is free', async () => {
      const [one, other] = await start();
      const cycle: unknown[] = [];
      cycle.push(cycle);
      for (const [code, value] of [
        ['ERR_OUT_OF_RANGE', 'x'.repeat(65_535)],
        ['ERR_INVALID_ARG_TYPE', cycle],
        ['ERR_INVALID_ARG_TYPE', () => 1],
      ] as const) {
        const options = { slot: 's', retry: true, keepResult: true };
        const refused = one.runOnce('job', options, () => value as unknown);
        await assert.rejects(refused, { code });
      }
      const longest = 'x'.repeat(65_534);
      const options = { slot: 's', retry: true, keepResult: true };
      assert.ok((await other.runOnce('job', options, () => longest)).ran);
      const kept = await one.runOnce<unknown>('job', options, () => assert.fail());
      assert.deepEqual(kept, { ...DONE, value: longest });
    });

    test('a slot that is released during its body runs again, and keeps no result of the first', async () => {
      const [one, other] = await start();
      const options = { slot: 's', keepResult: true };
      const first = one.runOnce('job', options, async () => {
        await other.forceRelease('once:job@s');
        return 7;
      });
      await assert.rejects(first, (error) => {
        assert.ok(error instanceof LockUnmarkedError);
        assert.ok(error.cause instanceof LockLostError);
        assert.match(error.message, /and the slot is done, but its result may not be kept/);
        return error.result === 7;
      });
      assert.ok((await other.runOnce('job', options, () => 8)).ran);
      assert.deepEqual(await one.runOnce('job', options, () => 9), { ...DONE, value: 8 });
    });

    test('every names slots by the clock of the server', async (t) => {
      const [one, other] = await start();
      const now = Date.now();
      // The clock of this process is a day behind.
      t.mock.timers.enable({ apis: ['Date'], now: now - 86_400_000 });
      const result = await one.runOnce('job', { every: '10m' }, (_, slot) => slot);
      t.mock.timers.reset();
      assert.ok(result.ran);
      assert.equal(Date.parse(result.slot) % 600_000, 0);
      assert.ok(Math.abs(Date.parse(result.slot) - now) <= 310_000, result.slot);
      const again = await other.runOnce('job', { every: 600_000 }, () => 1);
      if (again.slot === result.slot) assert.ok(!again.ran);
      const slots = new Set<string>();
      // However late a call is: a slot of the same length as an earlier one is run once, and new ones follow.
      while (slots.size < 3) {
        const { ran, slot } = await other.runOnce('tick', { every: 200, keep: 60_000 }, () => 1);
        assert.equal(ran, !slots.has(slot), slot);
        assert.equal(Date.parse(slot) % 200, 0);
        slots.add(slot);
        await sleep(20);
      }
    });

    test('wrong arguments are refused, and nothing is sent', async () => {
      const [one] = await start();
      const { requests } = one.stats();
      const body = () => assert.fail('it was refused');
      for (const [code, key, options] of [
        ['ERR_INVALID_ARG_VALUE', '', { slot: 's' }],
        ['ERR_INVALID_ARG_VALUE', 'job', undefined],
        ['ERR_INVALID_ARG_VALUE', 'job', {}],
        ['ERR_INVALID_ARG_VALUE', 'job', { slot: 's', every: 500 }],
        ['ERR_INVALID_ARG_VALUE', 'job', { slot: '' }],
        ['ERR_INVALID_ARG_VALUE', 'job', { slot: 'a:queue' }],
        ['ERR_OUT_OF_RANGE', 'job', { slot: 'x'.repeat(1_024) }],
        ['ERR_INVALID_ARG_TYPE', 'job', { slot: 5 }],
        ['ERR_INVALID_ARG_VALUE', 'job', { every: '5 minutes' }],
        ['ERR_OUT_OF_RANGE', 'job', { every: 49 }],
        ['ERR_OUT_OF_RANGE', 'job', { every: '400d' }],
        ['ERR_OUT_OF_RANGE', 'job', { every: '1h', keep: 60_000 }],
        ['ERR_OUT_OF_RANGE', 'job', { slot: 's', ttl: 49 }],
        ['ERR_INVALID_ARG_TYPE', 'job', { slot: 's', retry: 1 }],
        ['ERR_INVALID_ARG_TYPE', 'job', { slot: 's', keepResult: 1 }],
        ['ERR_INVALID_ARG_TYPE', 'job', { slot: 's', mode: 'shared' }],
        ['ERR_OUT_OF_RANGE', 'job', { slot: 's', wait: -1 }],
      ] as const) {
        const refused = one.runOnce(key, options as never, body);
        await assert.rejects(refused, { code }, `${key} ${JSON.stringify(options)}`);
      }
      const noBody = one.runOnce('job', { slot: 's' }, undefined as never);
      await assert.rejects(noBody, { code: 'ERR_INVALID_ARG_TYPE' });
      assert.equal(one.stats().requests, requests);
    });
  });
}

for (const [what, take] of Object.entries({
  'a value of other code': () => server.admin.set('lock:once:job@s', 'theirs'),
  'an empty value of other code': () => server.admin.set('lock:once:job@s', ''),
  'a lock that others share': async () => {
    const locks = await connect(server.url);
    await locks.acquire('once:job@s', { mode: 'shared' });
  },
})) {
  test(`with retry ${what} in place of the mark is told to the caller at once`, async () => {
    const locks = await connect(server.url);
    const marking = locks.runOnce('job', { slot: 's', retry: true }, async () => {
      await server.admin.del('lock:once:job@s');
      await take();
      return 7;
    });
    await assert.rejects(marking, (error) => {
      assert.ok(error instanceof LockUnmarkedError, `${error}`);
      assert.match(error.message, /other code has the lock "once:job@s"/);
      assert.equal(error.result, 7);
      return true;
    });
    await until(() => locks.stats().held === 0, 'the loss of the name');
  });
}

for (const keepResult of [false, true]) {
  test(`a mark that is there after the body is completed, and only if it lacks the result; keepResult: ${keepResult}`, async () => {
    const locks = await connect(server.url);
    await locks.runOnce('other', { slot: 's' }, () => 1);
    const written = `${await server.admin.get('lock:once:other@s')}`;
    const options = { slot: 's', retry: true, keepResult };
    const run = await locks.runOnce('job', options, async () => {
      await server.admin.set('lock:once:job@s', written, 'PX', 60_000);
      return 7;
    });
    assert.ok(run.ran);
    const left = `${await server.admin.get('lock:once:job@s')}`;
    if (keepResult) assert.match(left, / done 7$/);
    else assert.equal(left, written);
    const told = await locks.runOnce('job', options, () => assert.fail());
    assert.deepEqual(told, { ...DONE, ...(keepResult ? { value: 7 } : {}) });
  });
}

test('while a body with retry runs, its slot is held as long as the lock would be, and not as a slot that is done', async () => {
  const locks = await connect(server.url, { linger: 3_000 });
  for (const { ttl, keep, most } of [
    { ttl: 20_000, keep: 60_000, most: 20_000 },
    { ttl: 20_000, keep: 5_000, most: 5_000 },
  ]) {
    const options = { slot: `${keep}`, retry: true, ttl, keep, label: 'invoices' };
    const { held } = locks.stats();
    await locks.runOnce('job', options, async () => {
      const [slot] = (await locks.query({ name: `once:job@${keep}` })).held;
      assert.ok(slot !== undefined);
      assert.deepEqual([slot.state, slot.label, slot.mode], ['held', 'invoices', 'exclusive']);
      const left = slot.ttl ?? 0;
      assert.ok(left > most / 2 && left <= most, `${left}`);
    });
    const [done] = (await locks.query({ name: `once:job@${keep}` })).held;
    assert.equal(done?.state, 'done');
    assert.ok((done?.ttl ?? 0) > keep / 2 && (done?.ttl ?? 0) <= keep, `${done?.ttl}`);
    assert.equal(locks.stats().held, held);
  }
});

describe('a mark that is lost on its way', () => {
  for (const options of [
    { keepResult: true },
    { retry: true, keepResult: true },
    { retry: true },
  ]) {
    test(`keeps the slot done if the server has it: ${JSON.stringify(options)}`, async (t) => {
      const proxy = await FaultProxy.start(server.port);
      t.after(() => proxy.stop());
      const one = await connect(proxy.url, { commandTimeout: 500 });
      const other = await connect(server.url);
      await one.runOnce('warm', { slot: 's', ...options }, () => 1);
      const run = one.runOnce('job', { slot: 's', ttl: 1_500, ...options }, () => {
        proxy.loseReplies = true;
        return 'paid';
      });
      await assert.rejects(run, (error) => {
        assert.ok(error instanceof LockUnmarkedError);
        assert.ok(error.cause instanceof LockConnectionError);
        return error.result === 'paid';
      });
      proxy.loseReplies = false;
      proxy.cut();
      // What it would release, it releases before it closes.
      await one.close();
      const told = await other.runOnce('job', { slot: 's', ...options }, () => assert.fail());
      assert.deepEqual(told, { ...DONE, ...(options.keepResult ? { value: 'paid' } : {}) });
    });
  }

  test('a close that overtakes it gives nothing back', async (t) => {
    const proxy = await FaultProxy.start(server.port);
    t.after(() => proxy.stop());
    const one = await connect(proxy.url);
    const other = await connect(server.url);
    const options = { slot: 's', keepResult: true };
    await one.runOnce('warm', options, () => 1);
    const run = one.runOnce('job', options, () => {
      proxy.loseReplies = true;
      return 'paid';
    });
    const refused = assert.rejects(run, (error) => {
      assert.ok(error instanceof LockUnmarkedError);
      return error.cause instanceof LockClosedError;
    });
    await until(
      async () => / "paid"$/.test(`${await server.admin.get('lock:once:job@s')}`),
      'the mark',
    );
    const closed = one.close();
    await refused;
    proxy.loseReplies = false;
    proxy.cut();
    await closed;
    const told = await other.runOnce('job', options, () => assert.fail());
    assert.deepEqual(told, { ...DONE, value: 'paid' });
  });

  test('before the body, it is given back: the job has not run', async (t) => {
    const proxy = await FaultProxy.start(server.port);
    t.after(() => proxy.stop());
    const one = await connect(proxy.url, { commandTimeout: 500 });
    const other = await connect(server.url);
    await one.runOnce('warm', { slot: 's' }, () => 1);
    proxy.onRequest = (chunk) => {
      proxy.loseReplies ||= chunk.includes(' done');
    };
    await assert.rejects(
      one.runOnce('job', { slot: 's' }, () => assert.fail()),
      LockConnectionError,
    );
    assert.match(`${await server.admin.get('lock:once:job@s')}`, / done$/);
    proxy.onRequest = undefined;
    proxy.loseReplies = false;
    proxy.cut();
    await one.close();
    assert.ok((await other.runOnce('job', { slot: 's' }, () => 1)).ran);
  });
});

describe('a process that crashes in the body', () => {
  for (const retry of [false, true]) {
    test(`with retry: ${retry}`, async () => {
      const program = spawnProgram(
        `import { connect } from 'holdfast'
        const locks = await connect(process.argv[1])
        await locks.runOnce('job', { slot: 's', retry: ${retry}, ttl: 1_000 }, async () => {
          console.log('running')
          await new Promise(() => setInterval(() => {}, 1_000))
        })`,
        server.url,
      );
      await program.said('running');
      const locks = await connect(server.url);
      const waiting = locks.runOnce('job', { slot: 's', retry, wait: 60_000 }, () => 2);
      await until(() => locks.stats().waiting === 1, 'this process to wait');
      await program.kill();
      assert.deepEqual(await waiting, retry ? { ran: true, slot: 's', value: 2 } : DONE);
    });
  }
});
