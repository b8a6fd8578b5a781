/** `lead`: one leader among all callers, and what happens when its term ends. */

import assert from 'node:assert/strict';
import { afterEach, describe, test } from 'node:test';
import type { LeadOptions, Lock, Term, TermEnd } from 'holdfast';
import {
  type ConnectTarget,
  closeManagers,
  connect,
  holdfast,
  type LockManager,
} from '../support/holdfast.js';
import { spawnProgram } from '../support/program.js';
import { serverOfFile } from '../support/server-of-file.js';
import { until } from '../support/wait.js';

const { LockClosedError, LockLostError, StaleFenceError } = holdfast;

const server = serverOfFile();
let visits = 0;

afterEach(async () => {
  await closeManagers();
  await server.admin.flushall();
});

/** What happened to the terms of a manager, in order. */
type Told = ['elected' | TermEnd, fence: number][];

async function open(
  target: ConnectTarget,
  label: string,
): Promise<LockManager & { readonly told: Told }> {
  const manager = await connect(target, { label });
  const told: Told = [];
  manager.on('elected', ({ fence }) => told.push(['elected', fence]));
  manager.on('stepDown', ({ fence }, end) => told.push([end, fence]));
  return Object.assign(manager, { told });
}

/** Leads until its signal is aborted, or `end` is called. */
class Candidate {
  readonly stop = new AbortController();
  readonly terms: Term[] = [];
  /** What the end of the campaign was: `ended`, or an error. */
  readonly ended: Promise<unknown>;
  isOver = false;
  end: (error?: unknown) => void = () => {};

  constructor(
    locks: LockManager,
    { signal = this.stop.signal, ...options }: LeadOptions = {},
    heeds = true,
  ) {
    const leading = locks.lead('job', { signal, ...options }, (term) => {
      this.terms.push(term);
      return new Promise<void>((resolve, reject) => {
        this.end = (error) => (error === undefined ? resolve() : reject(error));
        if (heeds) term.signal.addEventListener('abort', () => resolve(), { once: true });
      });
    });
    this.ended = leading.then(
      () => 'ended',
      (error: unknown) => error,
    );
    void this.ended.then(() => {
      this.isOver = true;
    });
  }

  /** Waits for its next term. */
  async leads(count = 1): Promise<Term> {
    await until(() => this.terms.length >= count, `term ${count}`);
    return this.terms[count - 1] as Term;
  }
}

/** Whether a manager waits for the lead. No number of callers who wait for locks has it. */
function isWaiting(locks: LockManager): boolean {
  assert.equal(locks.stats().waiting, 0);
  return locks.stats().leads.some(({ waiting }) => waiting);
}

for (const kind of ['redis', 'memory'] as const) {
  describe(`on ${kind}:`, () => {
    async function start() {
      const target = kind === 'redis' ? server.url : `memory:lead-${visits++}`;
      return [await open(target, 'm0'), await open(target, 'm1')] as const;
    }

    test('one leads, the other waits, and each tells who it is', async () => {
      const [a, b] = await start();
      assert.equal(await a.leader('job'), null);
      assert.deepEqual(a.stats().leads, []);
      const [first, second] = [new Candidate(a), new Candidate(b)];
      await until(() => first.terms.length + second.terms.length === 1, 'a leader');
      const [leads, waits] = first.terms.length === 1 ? [a, b] : [b, a];
      await until(() => isWaiting(waits), 'the other to wait');
      const { ttl, ...leader } = (await waits.leader('job')) ?? assert.fail();
      const label = leads === a ? 'm0' : 'm1';
      assert.deepEqual(leader, { name: 'job', clientId: leads.clientId, label });
      assert.equal(await waits.leader('jo'), null);
      assert.ok(ttl !== null && ttl > 0 && ttl <= 10_000);
      assert.deepEqual(leads.stats().leads, [{ name: 'job', leading: true, waiting: false }]);
      const waiting = { name: 'job', leading: false, waiting: true };
      assert.deepEqual(waits.stats().leads, [waiting]);
      // A leader's hold is to last.
      assert.deepEqual([leads.stats().held, leads.stats().oldestHold], [1, 0]);
      const [term] = [...first.terms, ...second.terms];
      assert.ok(term !== undefined && term.since.getTime() <= Date.now());
      assert.deepEqual([term.name, term.lock.name, term.lock.held], ['job', 'leader:job', true]);
      assert.equal(term.fence, term.lock.fence);
    });

    test('who is told to stop resigns when its callback has ended, and the next leads', async () => {
      const [a, b] = await start();
      const first = new Candidate(a, {}, false);
      const { signal, fence, lock } = await first.leads();
      const second = new Candidate(b);
      await until(() => isWaiting(b), 'the second to wait');
      first.stop.abort(new Error('enough'));
      assert.match(String(signal.reason), /enough/);
      // It may do a leader's work until it has ended.
      assert.ok(lock.held);
      assert.equal((await b.leader('job'))?.clientId, a.clientId);
      assert.equal(second.terms.length, 0);
      first.end();
      assert.equal(await first.ended, 'ended');
      assert.ok((await second.leads()).fence > fence);
      assert.deepEqual(a.told, [
        ['elected', fence],
        ['resigned', fence],
      ]);
      assert.deepEqual(a.stats().leads, []);
    });

    test('a candidate that ends leaves another of its process in the statistics', async () => {
      const [a] = await start();
      await new Candidate(a).leads();
      const second = new Candidate(a);
      await until(() => isWaiting(a), 'the second to wait');
      second.stop.abort();
      await second.ended;
      assert.deepEqual(a.stats().leads, [{ name: 'job', leading: true, waiting: false }]);
    });

    test('who is told to stop while it waits does not wait any more', async () => {
      const [a, b] = await start();
      const first = new Candidate(a);
      await first.leads();
      const second = new Candidate(b);
      await until(() => isWaiting(b), 'the second to wait');
      second.stop.abort();
      assert.equal(await second.ended, 'ended');
      assert.deepEqual(b.told, []);
      const aborted = AbortSignal.abort();
      await a.lead('other', { signal: aborted }, () => assert.fail());
      assert.equal(await a.leader('other'), null);
    });

    test('a manager that is closed ends its campaigns, and the next leads', async () => {
      const [a, b] = await start();
      const first = new Candidate(a);
      const { fence, signal } = await first.leads();
      const second = new Candidate(b);
      const third = new Candidate(a);
      await until(() => isWaiting(a) && isWaiting(b), 'both to wait');
      await a.close();
      assert.ok(signal.reason instanceof LockLostError && signal.reason.reason === 'closed');
      assert.deepEqual(await Promise.all([first.ended, third.ended]), ['ended', 'ended']);
      assert.deepEqual(a.told, [
        ['elected', fence],
        ['resigned', fence],
      ]);
      await second.leads();
      for (const options of [{}, { onError: () => assert.fail() }]) {
        await assert.rejects(
          a.lead('job', options, () => assert.fail()),
          LockClosedError,
        );
      }
    });

    test('a close ends the pause after a term', async () => {
      const [a] = await start();
      let terms = 0;
      const leading = a.lead('job', () => {
        terms += 1;
      });
      // The pause after the fifth takes 1600 ms.
      await until(() => terms === 5, 'five terms');
      let isLate = false;
      const late = setTimeout(() => {
        isLate = true;
      }, 1_500);
      await a.close();
      await leading;
      clearTimeout(late);
      assert.ok(!isLate, 'it waited for the end of the pause');
    });

    test('after a loss it campaigns again, once its callback has ended', async () => {
      const [a, b] = await start();
      const first = new Candidate(a, {}, false);
      const { signal, fence } = await first.leads();
      assert.ok(await b.forceRelease('leader:job'));
      await until(() => signal.aborted, 'the loss');
      assert.ok(signal.reason instanceof LockLostError && signal.reason.reason === 'stolen');
      assert.deepEqual(a.told.at(-1), ['lost', fence]);
      assert.deepEqual(a.stats().leads, [{ name: 'job', leading: false, waiting: false }]);
      // Another leads meanwhile, and this process runs no second callback.
      const second = new Candidate(b);
      await second.leads();
      second.stop.abort();
      await second.ended;
      assert.equal(await b.leader('job'), null);
      assert.equal(first.terms.length, 1);
      first.end();
      assert.ok((await first.leads(2)).fence > fence);
    });

    test('when its callback has ended it campaigns again, at the end of the queue', async () => {
      const [a, b] = await start();
      const first = new Candidate(a);
      await first.leads();
      const second = new Candidate(b);
      await until(() => isWaiting(b), 'the second to wait');
      first.end();
      await second.leads();
      await until(() => isWaiting(a), 'the first to wait');
      second.end();
      await first.leads(2);
      assert.deepEqual([...a.told, ...b.told].map(([what]) => what).sort(), [
        'elected',
        'elected',
        'elected',
        'returned',
        'returned',
      ]);
    });

    test('a callback that ends at once is run less and less often, until a term is long', async () => {
      const [a] = await start();
      const begun: number[] = [];
      const stop = new AbortController();
      const ttl = 300;
      const leading = a.lead('job', { ttl, signal: stop.signal }, async () => {
        begun.push(performance.now());
        if (begun.length !== 5) return;
        const end = performance.now() + ttl;
        await until(() => performance.now() > end, 'a long term');
      });
      await until(() => begun.length === 7, 'seven terms');
      stop.abort();
      await leading;
      const pauses = begun.slice(1).map((at, i) => at - (begun[i] as number));
      // Timers may be early by a ms.
      for (const [i, least] of [100, 200, 400, 800].entries()) {
        assert.ok((pauses[i] as number) > least - 2, `${pauses}`);
      }
      assert.ok((pauses[5] as number) < (pauses[3] as number), `${pauses}`);
    });

    test('an error of its callback ends the campaign, and nobody has to wait for that', async () => {
      const [a, b] = await start();
      const first = new Candidate(a);
      const { fence } = await first.leads();
      const second = new Candidate(b);
      await until(() => isWaiting(b), 'the second to wait');
      first.end(new Error('the disk is full'));
      assert.match(String(await first.ended), /the disk is full/);
      await second.leads();
      assert.deepEqual(a.told.at(-1), ['threw', fence]);
    });

    test('a callback that breaks off when it is told to end resigns, and has thrown nothing', async () => {
      const [a] = await start();
      const first = new Candidate(a, {}, false);
      const { signal, fence } = await first.leads();
      first.stop.abort();
      first.end(signal.reason as Error);
      assert.equal(await first.ended, 'ended');
      assert.deepEqual(a.told.at(-1), ['resigned', fence]);
    });

    test('with onError it is told of each error, and campaigns again', async () => {
      const [a] = await start();
      const errors: unknown[] = [];
      const first = new Candidate(a, { onError: (error) => errors.push(error) });
      for (const count of [1, 2, 3]) {
        await first.leads(count);
        first.end(new Error(`error ${count}`));
        await until(() => errors.length === count, 'the error');
        assert.match(String(errors.at(-1)), new RegExp(`error ${count}`));
      }
      first.stop.abort();
      assert.equal(await first.ended, 'ended');
    });

    test('an error that only the end of the term explains is none; any other is told', async () => {
      const [a, b] = await start();
      const fenced = { fence: 1, seen: 2 };
      for (const how of ['stop', 'loss'] as const) {
        for (const [explained, errorOf] of [
          [true, (signal: AbortSignal) => signal.reason],
          [true, (signal: AbortSignal) => new Error('broke off', { cause: signal.reason })],
          [true, () => new DOMException('aborted', 'AbortError')],
          [true, () => new StaleFenceError('stale', 'leader:job', fenced)],
          [false, () => new Error('the disk is full')],
        ] as const) {
          const candidate = new Candidate(a, {}, false);
          const { signal } = await candidate.leads();
          if (how === 'stop') candidate.stop.abort();
          else await b.forceRelease('leader:job');
          await until(() => signal.aborted, 'the abort');
          candidate.end(errorOf(signal));
          if (how === 'loss' && explained) {
            await candidate.leads(2);
            candidate.stop.abort();
            candidate.end();
          }
          const ended = await candidate.ended;
          if (explained) assert.equal(ended, 'ended');
          else assert.match(String(ended), /the disk is full/);
        }
      }
      // A release by the callback itself explains no error.
      for (const [own, expected] of [
        [() => {}, /the disk is full/],
        [(lock: Lock) => lock.assertHeld(), /was released/],
      ] as const) {
        const leading = a.lead('job', async ({ lock }) => {
          await lock.release();
          own(lock);
          throw new Error('the disk is full');
        });
        await assert.rejects(leading, expected);
      }
      // Before its end nothing explains an error.
      const candidate = new Candidate(a);
      await candidate.leads();
      candidate.end(new DOMException('a request was aborted', 'AbortError'));
      assert.match(String(await candidate.ended), /a request was aborted/);
    });

    test('a callback that throws before its first await is no exception', async () => {
      const [a] = await start();
      const thrown = a.lead('job', () => {
        throw new Error('at once');
      });
      await assert.rejects(thrown, /at once/);
      assert.equal(await a.leader('job'), null);
    });

    test('the defaults of other locks do not shorten a term', async () => {
      const target = kind === 'redis' ? server.url : `memory:lead-${visits++}`;
      const a = await connect(target, { maxHold: 200, renew: false, ttl: 150, wait: 0 });
      const first = new Candidate(a);
      const { lock } = await first.leads();
      const end = performance.now() + 600;
      await until(() => performance.now() > end, 'four leases');
      assert.ok(lock.held);
    });

    test('wrong arguments are refused, and nothing is sent', async () => {
      const [a] = await start();
      const { requests } = a.stats();
      const callback = () => assert.fail('it was refused');
      for (const [code, name, options] of [
        ['ERR_INVALID_ARG_VALUE', '', {}],
        ['ERR_INVALID_ARG_TYPE', 5, {}],
        ['ERR_OUT_OF_RANGE', 'x'.repeat(1_018), {}],
        ['ERR_INVALID_ARG_TYPE', 'job', { wait: 5 }],
        ['ERR_INVALID_ARG_TYPE', 'job', { renew: false }],
        ['ERR_OUT_OF_RANGE', 'job', { ttl: 1 }],
        ['ERR_INVALID_ARG_TYPE', 'job', { onError: 'log' }],
        ['ERR_INVALID_ARG_TYPE', 'job', { signal: {} }],
      ] as const) {
        const refused = a.lead(name as never, options as never, callback);
        await assert.rejects(refused, { code }, `${name} ${JSON.stringify(options)}`);
      }
      await assert.rejects(a.lead('job', undefined as never), { code: 'ERR_INVALID_ARG_TYPE' });
      await assert.rejects(a.leader(''), { code: 'ERR_INVALID_ARG_VALUE' });
      assert.equal(a.stats().requests, requests);
      assert.deepEqual(a.stats().leads, []);
    });
  });
}

test('a leader that only waits for its signal does not end its process', async () => {
  const program = spawnProgram(
    `import { connect } from 'holdfast'
    const stop = new AbortController()
    process.once('SIGTERM', () => stop.abort())
    const locks = await connect(process.argv[1])
    await locks.lead('job', { signal: stop.signal }, async ({ signal }) => {
      console.log('leads')
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
    })
    await locks.close()
    console.log('ended')`,
    server.url,
  );
  await program.said('leads');
  const other = await open(server.url, 'm0');
  const next = new Candidate(other);
  await until(() => isWaiting(other), 'the next to wait');
  program.child.kill('SIGTERM');
  await program.said('ended');
  await next.leads();
});

test('a refusal of the server ends the campaign, or is told', async () => {
  const a = await open(server.url, 'm0');
  await server.admin.lpush('lock:leader:job', 'no lock');
  assert.equal(((await new Candidate(a).ended) as { code?: string }).code, 'ERR_LOCK_SERVER');
  const errors: unknown[] = [];
  const patient = new Candidate(a, { onError: (error) => errors.push(error) });
  await until(() => errors.length === 2, 'two refusals');
  await server.admin.del('lock:leader:job');
  await patient.leads();
});
