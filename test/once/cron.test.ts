/** `runOnce` by planned times: which they are, also where clocks change, and that each has one body. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { afterEach, describe, type TestContext, test } from 'node:test';
import { ROOT } from '../support/child.js';
import { closeManagers, connect, holdfast } from '../support/holdfast.js';
import { enrol, leastRights } from '../support/least-rights.js';
import { spawnProgram } from '../support/program.js';
import { FaultProxy } from '../support/proxy.js';
import { serverOfFile } from '../support/server-of-file.js';
import { until } from '../support/wait.js';

const { LockLostError, LockConnectionError } = holdfast;
const { CronPlan } = require('../../../dist/internals.js') as { CronPlan: Plans };
const [SECOND, MINUTE, HOUR] = [1_000, 60_000, 3_600_000];

interface Planned {
  readonly time: number;
  readonly gap: number;
}

interface Plans {
  of(
    cron: string,
    timeZone: string,
  ): { at(now: number): Planned; before(time: number, since: number): Iterable<number> };
}

const server = serverOfFile();

afterEach(async () => {
  await closeManagers();
  await server.admin.flushall();
});

/** The slots of calls that are made every `step` ms, each once. */
function slotsOf(cron: string, zone: string, from: string, to: string, step: number): string[] {
  const plan = CronPlan.of(cron, zone);
  const slots = new Set<number>();
  for (let now = Date.parse(from); now < Date.parse(to); now += step) slots.add(plan.at(now).time);
  return [...slots].map((time) => new Date(time).toISOString().replace(':00.000Z', 'Z'));
}

describe('the planned time of a call', () => {
  const at = (cron: string, now: string, zone = 'UTC') =>
    new Date(CronPlan.of(cron, zone).at(Date.parse(now)).time).toISOString();

  test('is the last one, however late the call is, and the next one shortly before it', () => {
    const nine = '0 9 * * 1-5';
    // A Thursday and a Friday; then a weekend.
    assert.equal(at(nine, '2026-11-26T09:00:00.000Z'), '2026-11-26T09:00:00.000Z');
    assert.equal(at(nine, '2026-11-26T08:59:00.000Z'), '2026-11-26T09:00:00.000Z');
    assert.equal(at(nine, '2026-11-26T08:58:59.999Z'), '2026-11-25T09:00:00.000Z');
    assert.equal(at(nine, '2026-11-26T23:00:00.000Z'), '2026-11-26T09:00:00.000Z');
    assert.equal(at(nine, '2026-11-30T08:00:00.000Z'), '2026-11-27T09:00:00.000Z');
    // A quarter of a second, and of a minute.
    assert.equal(at('* * * * * *', '2026-11-26T09:00:00.749Z'), '2026-11-26T09:00:00.000Z');
    assert.equal(at('* * * * * *', '2026-11-26T09:00:00.750Z'), '2026-11-26T09:00:01.000Z');
    assert.equal(at('* * * * *', '2026-11-26T09:00:44.999Z'), '2026-11-26T09:00:00.000Z');
    assert.equal(at('* * * * *', '2026-11-26T09:00:45.000Z'), '2026-11-26T09:01:00.000Z');
    assert.equal(at('@daily', '2026-11-26T09:00:00.000Z'), '2026-11-26T00:00:00.000Z');
  });

  test('is in the time zone', () => {
    const nine = (now: string) => at('0 9 * * *', now, 'Europe/Berlin');
    assert.equal(nine('2026-07-01T12:00:00Z'), '2026-07-01T07:00:00.000Z');
    assert.equal(nine('2026-12-01T12:00:00Z'), '2026-12-01T08:00:00.000Z');
    assert.equal(
      at('0 9 * * *', '2026-12-01T12:00:00Z', 'Asia/Kolkata'),
      '2026-12-01T03:30:00.000Z',
    );
  });

  test('that the clocks skip is the end of the gap, once', () => {
    const slots = slotsOf(
      '30 2 * * *',
      'Europe/Berlin',
      '2027-03-27T02:00Z',
      '2027-03-29T12:00Z',
      MINUTE,
    );
    assert.deepEqual(slots, ['2027-03-27T01:30Z', '2027-03-28T01:00Z', '2027-03-29T00:30Z']);
  });

  test('that the clocks show twice is the first, once', () => {
    const slots = slotsOf(
      '30 2 * * *',
      'Europe/Berlin',
      '2027-10-30T02:00Z',
      '2027-11-01T12:00Z',
      MINUTE,
    );
    assert.deepEqual(slots, ['2027-10-30T00:30Z', '2027-10-31T00:30Z', '2027-11-01T01:30Z']);
  });

  test('of each half hour is every one that there is', () => {
    for (const [from, count] of [
      ['2027-03-28T00:00Z', 8],
      ['2027-10-31T00:00Z', 8],
    ] as const) {
      const to = new Date(Date.parse(from) + count * 30 * MINUTE).toISOString();
      const slots = slotsOf('*/30 * * * *', 'Europe/Berlin', from, to, 5 * MINUTE);
      const times = slots.map((slot) => Date.parse(slot));
      assert.deepEqual(
        times,
        Array.from({ length: count }, (_, i) => Date.parse(from) + i * 30 * MINUTE),
      );
    }
  });

  for (const zone of [
    'UTC',
    'Europe/Berlin',
    'America/New_York',
    'Australia/Lord_Howe',
    'Asia/Kathmandu',
  ]) {
    test(`comes in the order of the calls, and none is left out: ${zone}`, () => {
      for (const cron of [
        '* * * * *',
        '15,45 * * * *',
        '0 1-3 * * *',
        '0 0 * * *',
        '30 2 * * *',
        '0 */6 * * *',
      ]) {
        const plan = CronPlan.of(cron, zone);
        // Both changes of the clocks, north and south.
        for (const day of [
          '2027-03-13',
          '2027-03-27',
          '2027-04-03',
          '2027-10-02',
          '2027-10-30',
          '2027-11-06',
        ]) {
          let last: Planned | undefined;
          const from = Date.parse(day);
          for (let now = from; now < from + 52 * HOUR; now += 7 * MINUTE) {
            const planned = plan.at(now);
            assert.ok(
              planned.time <= now + MINUTE && now < planned.time + planned.gap,
              `${cron} ${now}`,
            );
            // Every time that another call was planned for follows the one before it.
            if (last !== undefined && last.time !== planned.time) {
              const [before] = plan.before(planned.time, 0);
              assert.ok(before !== undefined && before >= last.time, `${cron} ${zone} ${now}`);
              if (cron !== '* * * * *')
                assert.equal(planned.time, last.time + last.gap, `${cron} ${now}`);
            }
            last = planned;
          }
        }
      }
    });
  }
});

for (const kind of ['redis', 'memory'] as const) {
  describe(`on ${kind}:`, () => {
    const target = () => (kind === 'redis' ? server.url : 'memory:planned');

    test('a planned time has one body, and its slot is kept until after the next', async () => {
      const [one, other] = [await connect(target()), await connect(target())];
      const options = { cron: '0 9 * * 1-5', timeZone: 'Europe/Berlin', wait: 30_000 };
      const results = await Promise.all(
        [one, other, one].map((locks) => locks.runOnce('report', options, (_, slot) => slot)),
      );
      assert.equal(results.filter(({ ran }) => ran).length, 1);
      const [{ slot } = { slot: '' }] = results;
      assert.ok(results.every((result) => result.slot === slot));
      assert.equal(
        slot,
        new Date(CronPlan.of(options.cron, options.timeZone).at(Date.now()).time).toISOString(),
      );
      const [marker] = (await one.query({ name: 'once:report@' })).held;
      assert.ok(marker?.ttl !== null && (marker?.ttl ?? 0) > 15 * 24 * HOUR, `${marker?.ttl}`);
    });

    test('the body is told what was missed since the last that is done', async () => {
      const locks = await connect(target());
      const told = async (keep?: number) => {
        let missed: readonly string[] = [];
        const given = { cron: '* * * * * *', ...(keep === undefined ? {} : { keep }) };
        const { ran, slot } = await locks.runOnce('tick', given, (_lock, _slot, names) => {
          missed = names;
        });
        return { ran, slot, missed };
      };
      const first = await told();
      assert.deepEqual(
        first,
        { ran: true, slot: first.slot, missed: [] },
        'a new job has missed nothing',
      );
      await until(() => Date.now() > Date.parse(first.slot) + 3 * SECOND, 'three seconds to pass');
      const later = await told();
      const between: string[] = [];
      for (let at = Date.parse(first.slot) + SECOND; at < Date.parse(later.slot); at += SECOND) {
        between.push(new Date(at).toISOString());
      }
      assert.ok(between.length >= 2);
      assert.deepEqual(later, { ran: true, slot: later.slot, missed: between });
      await until(() => Date.now() > Date.parse(later.slot) + SECOND, 'the next second');
      assert.ok(!(await told()).missed.includes(later.slot));
    });

    test('a slot whose body threw is missed with retry alone', async () => {
      const locks = await connect(target());
      for (const retry of [false, true]) {
        const options = { cron: '* * * * * *', retry, keep: 60_000 };
        const { slot } = await locks.runOnce(`${retry}`, options, () => 1);
        await until(() => Date.now() > Date.parse(slot) + SECOND, 'the second');
        let failed = '';
        const failing = locks.runOnce(`${retry}`, options, (_, name) => {
          failed = name;
          throw new Error('broken');
        });
        await assert.rejects(failing, /broken/);
        await until(() => Date.now() > Date.parse(failed) + SECOND, 'the next second');
        let missed: readonly string[] = [];
        await locks.runOnce(`${retry}`, options, (_lock, _slot, names) => {
          missed = names;
        });
        assert.equal(missed.includes(failed), retry);
      }
    });

    test('a result is kept for the last planned time', async () => {
      const locks = await connect(target());
      const options = { cron: '0 0 1 1 *', keepResult: true };
      assert.ok((await locks.runOnce('yearly', options, () => [1])).ran);
      const { ran, value } = await locks.runOnce('yearly', options, () => assert.fail());
      assert.deepEqual([ran, value], [false, [1]]);
      const { held } = await locks.query({ name: 'once:yearly@' });
      assert.deepEqual(
        held.map(({ state, result }) => [state, result]),
        [['done', true]],
      );
    });

    test('a Date names its slot', async () => {
      const locks = await connect(target());
      const planned = new Date('2026-11-26T09:00:00Z');
      const named = await locks.runOnce('nightly', { slot: planned }, (_lock, slot) => slot);
      assert.deepEqual(named, {
        ran: true,
        slot: planned.toISOString(),
        value: planned.toISOString(),
      });
      const again = await locks.runOnce('nightly', { slot: planned.toISOString() }, () => 1);
      assert.equal(again.ran, false);
    });

    test('wrong options are refused, and nothing is sent', async () => {
      const locks = await connect(target());
      const { requests } = locks.stats();
      for (const [code, message, options] of [
        ['ERR_INVALID_ARG_TYPE', /cron must be a string/, { cron: 5 }],
        ['ERR_INVALID_ARG_VALUE', /got "9": it has no five or six fields/, { cron: '9' }],
        ['ERR_INVALID_ARG_VALUE', /such as '0 9 \* \* 1-5'/, { cron: '61 * * * *' }],
        ['ERR_INVALID_ARG_VALUE', /five or six fields/, { cron: '2026-11-26T09:00:00Z' }],
        ['ERR_INVALID_ARG_VALUE', /cron/, { cron: '0 0 0 1 1 * 2027' }],
        ['ERR_INVALID_ARG_VALUE', /no month has such a day/, { cron: '0 0 31 2 *' }],
        ['ERR_INVALID_ARG_VALUE', /got "Mars\/One"/, { cron: '@daily', timeZone: 'Mars/One' }],
        ['ERR_INVALID_ARG_TYPE', /timeZone must be a string/, { cron: '@daily', timeZone: 1 }],
        [
          'ERR_INVALID_ARG_VALUE',
          /timeZone is an option for cron/,
          { every: '1h', timeZone: 'UTC' },
        ],
        ['ERR_INVALID_ARG_VALUE', /one of every/, { cron: '@daily', every: '1d' }],
        ['ERR_INVALID_ARG_VALUE', /one of every/, { cron: '@daily', slot: 's' }],
        ['ERR_OUT_OF_RANGE', /keep/, { cron: '@daily', keep: 1 }],
        ['ERR_INVALID_ARG_VALUE', /valid Date/, { slot: new Date(Number.NaN) }],
      ] as const) {
        const refused = locks.runOnce('job', options as never, () => assert.fail('it was refused'));
        await assert.rejects(refused, { code, message }, JSON.stringify(options));
      }
      assert.equal(locks.stats().requests, requests);
    });
  });
}

describe('far ahead', () => {
  let visits = 0;
  /** Planned times at which a body ran, and what each was told; the clock of the store moves between them. */
  const visit = async (cron: string, steps: readonly number[], options: object = {}) => {
    const locks = await connect(`memory:far-${visits++}`);
    const runs: { slot: string; missed: readonly string[] }[] = [];
    for (const step of steps) {
      await locks.advance(step);
      await locks.runOnce('job', { cron, ...options }, (_lock, slot, missed) => {
        runs.push({ slot, missed });
      });
    }
    return runs;
  };
  const secondsBefore = (slot: string, count: number) =>
    Array.from({ length: count }, (_, i) =>
      new Date(Date.parse(slot) - (count - i) * SECOND).toISOString(),
    );

  for (const retry of [false, true]) {
    test(`the last 99 are told of those that were missed, with retry: ${retry}`, async () => {
      for (const [step, count] of [
        [99 * SECOND, 98],
        [100 * SECOND, 99],
        [101 * SECOND, 99],
        [HOUR, 99],
      ] as const) {
        const runs = await visit('* * * * * *', [0, step], { keep: '2h', retry });
        const last = runs.at(-1) ?? { slot: '', missed: [] };
        assert.deepEqual(last.missed, secondsBefore(last.slot, count), `${step}`);
      }
    });
  }

  test('a day of four years is done until the next', async () => {
    const cron = '0 0 29 2 *';
    const plan = CronPlan.of(cron, 'UTC');
    const now = Date.now();
    const { time, gap } = plan.at(now);
    const next = time + gap;
    const nearlyTwo = plan.at(next).gap - 2 * HOUR;
    const runs = await visit(cron, [next + HOUR - now, nearlyTwo, 2 * HOUR]);
    assert.deepEqual(
      runs.map(({ missed }) => missed),
      [[], []],
    );
  });

  test('a short time between two shortens nothing that is known', async () => {
    // The first of two that are a minute apart would be kept for 16 minutes.
    const locks = await connect('memory:far-uneven');
    const plan = { cron: '0,1 0 * * *', timeZone: 'UTC' };
    const now = Date.now();
    const midnight = Math.ceil(now / (24 * HOUR)) * 24 * HOUR + 24 * HOUR;
    const told: (readonly string[])[] = [];
    const run = () =>
      locks.runOnce('job', plan, (_lock, _slot, missed) => {
        told.push(missed);
      });
    await locks.advance(midnight - now - HOUR);
    await run();
    await locks.advance(HOUR + 10 * SECOND);
    await run();
    await locks.advance(HOUR);
    await run();
    const minute = new Date(midnight + MINUTE).toISOString();
    assert.deepEqual(told.slice(1), [[], []], minute);
  });
});

test('a time that was told as missed runs no more, when its caller waited', async (t) => {
  await Promise.all([false, true].map((retry) => overtake(t, { key: `job-${retry}`, retry })));
});

/** A caller that waits for the lock of a job is overtaken by one with a later slot. */
async function overtake(t: TestContext, { key, retry }: { key: string; retry: boolean }) {
  const proxy = await FaultProxy.start(server.port);
  t.after(() => proxy.stop());
  const [late, other] = [await connect(proxy.url), await connect(server.url)];
  const options = { cron: '* * * * * *', keep: 600_000, wait: 60_000, retry };
  const first = await other.runOnce(key, options, () => 1);
  const held = await other.acquire(key);
  await until(() => Date.now() > Date.parse(first.slot) + 2 * SECOND, 'two seconds to pass');
  const waiting = late.runOnce(key, options, () => assert.fail());
  await until(async () => (await other.query({ name: key })).pending.length === 1, 'it to wait');
  const asked = Date.now();
  await until(() => Date.now() > asked + 2 * SECOND, 'two more');
  // It does not learn of its grant, so its turn passes.
  proxy.loseReplies = true;
  await held.release();
  let told: readonly string[] = [];
  const { ran } = await other.runOnce(key, options, (_lock, _slot, missed) => {
    told = missed;
  });
  proxy.loseReplies = false;
  proxy.cut();
  const refused = await waiting;
  assert.ok(ran && told.includes(refused.slot), `${refused.slot} of ${told}`);
  assert.deepEqual(refused, { ran: false, slot: refused.slot, reason: 'done' });
}

/** A mark as another manager would have left it. */
const markAt = (time: number) =>
  `hf1.01a21a59bea27abc8abc123456789abc.5.web-1 done@${new Date(time).toISOString()}`;

test('a mark from before the clock was set back keeps no slot', async () => {
  const locks = await connect(server.url);
  const options = { cron: '* * * * * *', keepResult: true };
  await server.admin.set('lock:once:job@', markAt(Date.now() + HOUR), 'PX', 600_000);
  const { ran, slot } = await locks.runOnce('job', options, (_lock, _slot, missed) => missed);
  assert.ok(ran);
  assert.match(`${await server.admin.get('lock:once:job@')}`, new RegExp(`done@${slot} \\[\\]$`));
  // One that is a little ahead may be that of a server whose clock was.
  await server.admin.set('lock:once:near@', markAt(Date.now() + 20 * SECOND), 'PX', 600_000);
  assert.equal((await locks.runOnce('near', options, () => assert.fail())).ran, false);
});

test('a mark that the server does not confirm before the body gives way to that of the time before', async (t) => {
  const proxy = await FaultProxy.start(server.port);
  t.after(() => proxy.stop());
  const locks = await connect(proxy.url, { commandTimeout: 1_000 });
  const before = markAt(0);
  await server.admin.set('lock:once:job@', before, 'PX', 600_000);
  // The server knows all scripts from now on.
  const options = { cron: '0 0 1 * *', keep: 600_000 };
  await locks.runOnce('warm', options, () => 1);
  const mark = () => server.admin.get('lock:once:job@');
  proxy.onRequest = (chunk) => {
    proxy.loseReplies ||= chunk.includes('done@2');
  };
  const { accepted } = proxy;
  const refused = locks.runOnce('job', options, () => assert.fail());
  refused.catch(() => {});
  await until(async () => (await mark()) !== before, 'the new mark');
  await until(() => proxy.accepted > accepted, 'another connection');
  proxy.onRequest = undefined;
  proxy.loseReplies = false;
  proxy.cut();
  await assert.rejects(refused, LockConnectionError);
  assert.equal(await mark(), before);
  assert.equal(locks.stats().held, 0);
  const { ran } = await locks.runOnce('job', options, () => 1);
  assert.ok(ran);
});

test('a mark of a later time that is written meanwhile is left, and keeps no result of this one', async () => {
  const locks = await connect(server.url);
  const options = { cron: '* * * * * *', keepResult: true, retry: true };
  const later = markAt(Date.now() + 20 * SECOND);
  const run = await locks.runOnce('job', options, async () => {
    await server.admin.set('lock:once:job@', later, 'PX', 600_000);
    return 7;
  });
  assert.ok(run.ran && run.value === 7);
  assert.equal(await server.admin.get('lock:once:job@'), later);
});

for (const retry of [false, true]) {
  test(`no body begins whose lock was lost while the mark was read; retry: ${retry}`, async (t) => {
    const proxy = await FaultProxy.start(server.port);
    t.after(() => proxy.stop());
    const [one, other] = [await connect(proxy.url), await connect(server.url)];
    const options = { cron: '0 0 1 * *', retry, wait: 60_000 };
    for (const earlier of [false, true]) {
      const key = `${earlier}`;
      await (await one.acquire('warm')).release();
      if (earlier) await server.admin.set(`lock:once:${key}@`, markAt(0), 'PX', 600_000);
      let lost = '';
      one.once('lost', ({ name }) => {
        lost = name;
      });
      proxy.onRequest = (chunk) => {
        proxy.loseReplies ||= chunk.includes(`once:${key}@`);
      };
      const robbed = one.runOnce(key, { ...options, ttl: 400 }, () => assert.fail());
      robbed.catch(() => {});
      await until(() => lost === key, 'the loss');
      proxy.onRequest = undefined;
      proxy.loseReplies = false;
      proxy.cut();
      await assert.rejects(robbed, LockLostError);
      const next = await other.runOnce(key, options, (_lock, _slot, missed) => missed);
      assert.ok(next.ran);
      // What was known before is not forgotten.
      assert.equal(next.value.length, earlier ? 99 : 0);
    }
  });
}

test('a user with the least rights is told what was missed', async () => {
  const locks = await connect(await enrol(server, leastRights()));
  const options = { cron: '* * * * * *' };
  const { slot } = await locks.runOnce('job', options, () => 1);
  await until(() => Date.now() > Date.parse(slot) + 2 * SECOND, 'two seconds to pass');
  let missed: readonly string[] = [];
  await locks.runOnce('job', options, (_lock, _slot, names) => {
    missed = names;
  });
  assert.equal(Date.parse(missed[0] ?? ''), Date.parse(slot) + SECOND);
});

test('a job of each second runs once in each, by the timers of two processes', async () => {
  const program = join(ROOT, 'build', 'test', 'once', 'ticking.js');
  const programs = [0, 1].map(() => spawnProgram(program, server.url));
  try {
    await until(async () => (await server.admin.llen('journal')) >= 6, 'six runs', 40_000);
  } finally {
    await Promise.all(programs.map(({ kill }) => kill()));
  }
  const lines = (await server.admin.lrange('journal', 0, -1)).map((line) => JSON.parse(line));
  const slots = lines.map(({ slot }) => Date.parse(slot));
  assert.equal(new Set(slots).size, slots.length, 'each once');
  // What a machine that was busy for a second has left out is told.
  const told = lines
    .flatMap(({ slot, missed }) => [...missed, slot])
    .map((slot) => Date.parse(slot));
  assert.deepEqual(
    told,
    Array.from(told, (_, i) => (told[0] ?? 0) + i * SECOND),
    'all, in order',
  );
});
