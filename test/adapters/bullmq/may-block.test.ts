/** `mayBlock` with real workers of BullMQ whose jobs block their event loops. */

import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { DelayedError, type Job, Queue, WaitingError, Worker, type WorkerOptions } from 'bullmq';
import { connectLazily } from 'holdfast';
import { type JobProcessor, type MayBlockOptions, mayBlock, oneAtATime } from 'holdfast/bullmq';
import { connect, type LockManager } from '../../support/holdfast.js';
import type { Program } from '../../support/program.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { sleep, until } from '../../support/wait.js';
import { type BlockerOptions, journalOf, startBlocker } from './blockers.js';

const LOCK_MS = 1_000;
const STALLS = { lockDuration: LOCK_MS, stalledInterval: 200 };

let queue: Queue;
let locks: LockManager;
let workers: Worker[] = [];
let blockers: Program[] = [];
let errors: string[] = [];
let visits = 0;

const server = serverOfFile({ args: ['--maxmemory-policy', 'noeviction'] }, async () => {
  locks = await connect(server.url);
});

const connection = () => ({ host: '127.0.0.1', port: server.port, maxRetriesPerRequest: null });

// Each test has a queue of its own.
beforeEach(async () => {
  visits += 1;
  queue = new Queue(`blocked-${visits}`, { connection: connection() });
  await server.admin.del('journal');
});

afterEach(async () => {
  await Promise.all(blockers.map((blocker) => blocker.kill()));
  await Promise.all(workers.map((worker) => worker.close()));
  await queue.close();
  [workers, blockers, errors] = [[], [], []];
});

/** Blocks the event loop of this process. */
function block(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

/** Starts a worker in a process of its own. */
async function startProcess(options: Partial<BlockerOptions> = {}): Promise<Program> {
  const given = { name: queue.name, blockMs: 4 * LOCK_MS, ...STALLS, ...options };
  const blocker = await startBlocker(server, given);
  blockers.push(blocker);
  return blocker;
}

/** Starts a worker in this process. */
function start(
  processor: JobProcessor,
  {
    by = locks,
    stallTimeout,
    ...options
  }: Partial<WorkerOptions> & MayBlockOptions & { readonly by?: LockManager } = {},
): Worker {
  const kept = mayBlock(by, processor, { stallTimeout });
  const given = { connection: connection(), ...STALLS, ...options };
  const worker = new Worker(queue.name, kept, given);
  worker.on('error', ({ message }) => errors.push(message));
  workers.push(worker);
  return worker;
}

const isDone = (jobs = 1) =>
  until(async () => (await queue.getCompletedCount()) === jobs, 'jobs to be done');

async function begins(): Promise<string[]> {
  return (await journalOf(server)).filter(({ what }) => what === 'begin').map(({ id }) => id);
}

const OTHER_WAYS: Record<string, Partial<BlockerOptions>> = {
  'of BullMQ 6': {},
  'of BullMQ 5': { version: '5' },
  'of BullMQ 5.10': { version: '5.10' },
  'of BullMQ 5.10 without its own renewal': { version: '5.10', skipLockRenewal: true },
  'without renewal by BullMQ': { skipLockRenewal: true },
  'with a hash tag in the prefix of the queue': { prefix: '{jobs}' },
  'with another prefix of the queue': { prefix: 'app:jobs' },
};
for (const [what, options] of Object.entries(OTHER_WAYS)) {
  test(`a job that blocks for four times its lock runs once, in workers ${what}`, async () => {
    const { prefix = 'bull' } = options;
    await queue.close();
    queue = new Queue(queue.name, { connection: connection(), prefix });
    await Promise.all([startProcess(options), startProcess(options)]);
    await queue.add('job', {});
    await isDone();
    assert.deepEqual(await begins(), ['1']);
    const [job] = await queue.getCompleted();
    assert.equal(job?.stalledCounter, 0);
  });
}

test('without mayBlock the same job is started twice', async () => {
  await Promise.all([startProcess({ isKept: false }), startProcess({ isKept: false })]);
  await queue.add('job', {});
  await until(async () => (await begins()).length > 1, 'the second run');
});

test('a worker that is killed gives its job to another, which runs it to its end', async () => {
  const [one, two] = await Promise.all([startProcess(), startProcess()]);
  await queue.add('job', {});
  await until(async () => (await begins()).length === 1, 'the first run');
  const [first] = await journalOf(server);
  await (one.child.pid === first?.pid ? one : two).kill();
  await isDone();
  const lines = (await journalOf(server)).map(({ what }) => what);
  assert.deepEqual(lines, ['begin', 'begin', 'end']);
});

test('a job that never comes back is found to be stalled after stallTimeout', async () => {
  const [one] = await Promise.all([startProcess({ blockMs: 600_000, stallTimeout: 1_000 })]);
  await queue.add('job', {});
  await until(async () => (await begins()).length === 1, 'the first run');
  const before = performance.now();
  await startProcess({ blockMs: 0 });
  await isDone();
  assert.ok(performance.now() - before > 500, 'the first run was kept for a while');
  assert.equal(one.child.exitCode, null);
});

test('stallTimeout may depend on the job', async () => {
  const seen: string[] = [];
  const stallTimeout = (job: Job) => {
    seen.push(job.data.pages);
    return job.data.pages === 1 ? '2m' : (-1 as number);
  };
  const worker = start(async () => {}, { stallTimeout });
  const failed: string[] = [];
  worker.on('failed', (_, { message }) => failed.push(message));
  await queue.add('job', { pages: 1 });
  await isDone();
  await queue.add('job', { pages: 2 });
  await until(() => failed.length === 1, 'the failure');
  assert.match(failed[0] ?? '', /^stallTimeout must be whole ms, 1 or more, got -1$/);
  assert.deepEqual(seen, [1, 2]);
});

test('jobs that are short cost no request, but for the first of a worker', async () => {
  const own = await connect(server.url);
  start(async () => sleep(1), { by: own, concurrency: 10, lockDuration: 30_000 });
  await queue.add('job', {});
  await isDone();
  const { requests } = own.stats();
  assert.ok(requests > 0);
  await queue.addBulk(Array.from({ length: 200 }, () => ({ name: 'job', data: {} })));
  await isDone(201);
  await until(() => own.stats().held === 0, 'the end of the renewal');
  const { acquired, lost, requests: after } = own.stats();
  assert.deepEqual({ acquired, lost, requests: after }, { acquired: 0, lost: 0, requests });
});

test('a job that ends is kept until BullMQ knows, though another blocks in the same turn', async () => {
  let pass = () => {};
  const gate = new Promise<void>((resolve) => {
    pass = resolve;
  });
  let isOver = () => {};
  const over = new Promise<void>((resolve) => {
    isOver = resolve;
  });
  let waiting = 0;
  const kept = mayBlock(locks, async ({ data }) => {
    waiting += 1;
    await (data.blocks ? over : gate);
    if (data.blocks) block(3 * LOCK_MS);
  });
  const processor: JobProcessor = async (job, token) => {
    await kept(job, token);
    // The other begins to block before BullMQ can tell the server that this one is done.
    if (!job.data.blocks) isOver();
  };
  const options = { concurrency: 2, skipLockRenewal: true, ...STALLS };
  const worker = new Worker(queue.name, processor, { connection: connection(), ...options });
  worker.on('error', ({ message }) => errors.push(message));
  workers.push(worker);
  await queue.addBulk([false, true].map((blocks) => ({ name: 'job', data: { blocks } })));
  await until(() => waiting === 2, 'both jobs to begin');
  await startProcess({ blockMs: 0 });
  pass();
  await isDone(2);
  const runs = waiting + (await begins()).length;
  assert.ok(runs === 2, `${runs} runs of two jobs`);
});

test('a job that another worker has got before it could begin does not run', async () => {
  let runs = 0;
  const late = new Worker(queue.name, null, { connection: connection(), ...STALLS });
  workers.push(late);
  const kept = mayBlock(locks, async () => {
    runs += 1;
  });
  await queue.add('job', {});
  // As if the process was stopped between the hand-out and the start.
  const job = (await late.getNextJob('late')) as Job;
  await startProcess({ blockMs: 0 });
  await isDone();
  await assert.rejects(
    kept(job, 'late', undefined),
    /is not active under this worker's token any more/,
  );
  assert.equal(runs, 0);
});

test('a job that begins late, and is still its worker’s, runs', async () => {
  const manual = new Worker(queue.name, null, { connection: connection(), lockDuration: 60_000 });
  workers.push(manual);
  await queue.add('job', {});
  const job = (await manual.getNextJob('mine')) as Job;
  job.processedOn = Date.now() - 50_000;
  const kept = mayBlock(locks, async () => 'done');
  assert.equal(await kept(job, 'mine', undefined), 'done');
  await job.moveToCompleted('done', 'mine', false);
});

test('a job that begins late does not run elsewhere as well, though the clock was set meanwhile', async () => {
  const worker = new Worker(queue.name, null, { connection: connection(), ...STALLS });
  workers.push(worker);
  const runs: string[] = [];
  const kept = mayBlock(locks, async (job) => {
    runs.push(job.id ?? '');
  });
  const clock = Date.now;
  for (const [ms, id] of [
    [0, '1'],
    [-3_600_000, '2'],
    [3_600_000, '3'],
  ] as const) {
    await queue.add('job', {});
    const job = (await worker.getNextJob(id)) as Job;
    // As if another worker had got it by now.
    if (id !== '1') await server.admin.set(`bull:${queue.name}:${id}:lock`, 'another');
    await sleep(LOCK_MS / 2);
    mock.method(Date, 'now', () => clock() + ms);
    const run = kept(job, id, undefined);
    if (id === '1') await run;
    else
      await assert.rejects(run, /is not active under this worker's token any more/, `by ${ms} ms`);
    mock.restoreAll();
  }
  assert.deepEqual(runs, ['1']);
});

test('a worker that gets no answer runs a job as long as its lock lasts, and no longer', async () => {
  const impatient = await connect(server.url, { commandTimeout: 200 });
  const manual = new Worker(queue.name, null, { connection: connection(), lockDuration: 60_000 });
  workers.push(manual);
  const runs: string[] = [];
  const clock = Date.now;
  for (const [id, stopped] of [
    ['1', 0],
    ['2', 60_000],
  ] as const) {
    await queue.add('job', {});
    const job = (await manual.getNextJob('mine')) as Job;
    const kept = mayBlock(impatient, async () => {
      runs.push(id);
    });
    await server.admin.call('CLIENT', 'PAUSE', '700', 'ALL');
    const run = kept(job, 'mine', undefined);
    // As if the process was stopped while it asked.
    mock.method(Date, 'now', () => clock() + stopped);
    if (stopped === 0) await run;
    else await assert.rejects(run, { name: 'LockConnectionError' });
    mock.restoreAll();
  }
  assert.deepEqual(runs, ['1']);
});

/** What a processor does with its job before it blocks for longer than the lock; then the job comes a second time. */
const MOVES: Record<string, (job: Job, token?: string) => Promise<Error>> = {
  'moved to the delayed ones': async (job, token) => {
    await job.moveToDelayed(Date.now() + 100, token);
    return new DelayedError();
  },
  'moved back to those that wait': async (job, token) => {
    await job.moveToWait(token);
    return new WaitingError();
  },
  'sent back by a limit of its rate': async () => {
    await queue.rateLimit(100);
    return Worker.RateLimitError();
  },
};
for (const [what, move] of Object.entries(MOVES)) {
  test(`the lock of a job that is ${what} is given up without a word`, async () => {
    const own = await connect(server.url);
    const lost: string[] = [];
    own.on('lost', ({ name }) => lost.push(name));
    let runs = 0;
    start(
      async (job, token) => {
        runs += 1;
        if (runs > 1) return;
        const error = await move(job, token);
        block(2 * LOCK_MS);
        throw error;
      },
      { by: own, skipLockRenewal: true },
    );
    await queue.add('job', {});
    await isDone();
    assert.equal(runs, 2);
    await until(() => own.stats().held === 0, 'the end of the renewal');
    assert.deepEqual([lost, errors, own.stats().lost], [[], [], 0]);
    assert.deepEqual(await server.admin.keys(`bull:${queue.name}:*:lock`), []);
  });
}

test('a job that is removed while it runs leaves no lock', async () => {
  start(async () => {
    await server.admin.del(`bull:${queue.name}:1`, `bull:${queue.name}:1:lock`);
    block(2 * LOCK_MS);
  });
  await queue.add('job', {});
  await until(() => errors.length > 0, 'BullMQ to miss the job');
  await until(() => locks.stats().held === 0, 'the end of the renewal');
  assert.deepEqual(await server.admin.keys(`bull:${queue.name}:1*`), []);
});

test('jobs of one key that block run one at a time, each once', async () => {
  const options = { keyed: true, blockMs: 2 * LOCK_MS, concurrency: 2, maxStalledCount: 100 };
  await Promise.all([startProcess(options), startProcess(options)]);
  await queue.addBulk(Array.from({ length: 3 }, () => ({ name: 'job', data: { key: 'ada' } })));
  await isDone(3);
  const lines = (await journalOf(server)).map(({ what, id }) => `${what} ${id}`);
  assert.deepEqual(lines, ['begin 1', 'end 1', 'begin 2', 'end 2', 'begin 3', 'end 3']);
});

test('a worker that is paused or closed waits for its job', async () => {
  const steps = new EventEmitter();
  const worker = start(async () => {
    steps.emit('begun');
    await once(steps, 'ending');
    block(3 * LOCK_MS);
  });
  for (const end of ['pause', 'close'] as const) {
    const begun = once(steps, 'begun');
    await queue.add('job', {});
    await begun;
    const ended = worker[end]();
    steps.emit('ending');
    await ended;
    assert.equal(await queue.getActiveCount(), 0);
    if (end === 'pause') await worker.resume();
  }
  assert.equal(await queue.getCompletedCount(), 2);
  assert.deepEqual(errors, []);
});

test('the processor gets what BullMQ gives it, and is asked for a signal as before', async () => {
  const seen: unknown[] = [];
  start(async (job, token, signal) => {
    seen.push(job.data.item, token === job.token, signal instanceof AbortSignal);
  });
  await queue.add('job', { item: 'tea' });
  await isDone();
  assert.deepEqual(seen, ['tea', true, true]);
  assert.equal(mayBlock(locks, async () => {}).length, 0);
  assert.equal(mayBlock(locks, async (_job, _token) => {}).length, 2);
});

test('the prefix of the manager is none of the locks of jobs', async () => {
  const own = await connect(server.url, { prefix: 'app:' });
  start(async () => block(2 * LOCK_MS), { by: own, skipLockRenewal: true });
  await queue.add('job', {});
  await isDone();
  assert.ok(own.stats().renewals > 0);
});

test('the manager may connect when the first job asks for it', async () => {
  const lazy = connectLazily(server.url);
  start(async () => block(2 * LOCK_MS), { by: lazy });
  await queue.add('job', {});
  await isDone();
  assert.ok(lazy.stats().renewals > 0);
  await lazy.close();
});

test('what is no manager is refused at once, and so is a handler of oneAtATime by its first job', async () => {
  for (const wrong of [null, {}, Promise.resolve(locks)]) {
    assert.throws(() => mayBlock(wrong as never, async () => {}), /^TypeError.*needs a manager/);
  }
  const inner = mayBlock(locks, async () => {}) as never;
  const processor = oneAtATime(locks, () => 'key', inner);
  workers.push(new Worker(queue.name, processor, { connection: connection() }));
  const { id = '' } = await queue.add('job', {});
  await until(async () => (await queue.getFailedCount()) === 1, 'the job to fail');
  assert.match((await queue.getJob(id))?.failedReason ?? '', /write mayBlock\(locks, oneAtATime/);
});

test('a manager of another database or server fails its first job by a clear error', async () => {
  for (const [url, shown] of [
    [`${server.url}/1`, `${server.url}/1`],
    ['memory:', 'memory:'],
  ] as const) {
    const other = await connect(url);
    const worker = start(async () => {}, { by: other });
    const job = await queue.add('job', {});
    await until(async () => (await queue.getFailedCount()) === 1, 'the job to fail');
    const { failedReason = '' } = (await queue.getJob(job.id ?? '')) as Job;
    const key = `bull:${queue.name}:${job.id}:lock`;
    assert.ok(failedReason.startsWith(`mayBlock was given a manager of ${shown}`), failedReason);
    assert.ok(failedReason.includes(`the lock "${key}"`), failedReason);
    assert.ok(failedReason.endsWith(`the queue "${queue.name}"`), failedReason);
    await worker.close();
    await job.remove();
  }
});

test('a server that refuses the renewal fails the job, with its words', async () => {
  await server.admin.call(
    'ACL',
    'SETUSER',
    'narrow',
    'on',
    '>secret',
    '~lock:*',
    '~holdfast:*',
    '&*',
    '+@all',
  );
  const narrow = await connect(`redis://narrow:secret@127.0.0.1:${server.port}`);
  start(async () => {}, { by: narrow });
  await queue.add('job', {});
  await until(async () => (await queue.getFailedCount()) === 1, 'the job to fail');
  const [job] = await queue.getFailed();
  assert.match(job?.failedReason ?? '', /^cannot keep lock "bull:.*:1:lock" on .* NOPERM /);
});

test('a manager that was closed fails the job', async () => {
  const closed = await connect(server.url);
  await closed.close();
  start(async () => {}, { by: closed });
  await queue.add('job', {});
  await until(async () => (await queue.getFailedCount()) === 1, 'the job to fail');
  const [job] = await queue.getFailed();
  assert.match(job?.failedReason ?? '', /its manager was closed$/);
});

test('wrong arguments get an error that tells what to do', async () => {
  const wrong = mayBlock as (...args: unknown[]) => unknown;
  for (const file of ['/app/render.js', new URL('file:///app/render.js')]) {
    assert.throws(
      () => wrong(locks, file),
      /takes a function, and got the file .*render.js.* sandboxed/,
    );
  }
  assert.throws(() => wrong(locks, 1), /processor must be a function, got number 1/);
  assert.throws(
    () => wrong(locks, async () => {}, { stallTimout: 1 }),
    /did you mean "stallTimeout"/,
  );
  assert.throws(() => wrong(locks, async () => {}, { stallTimeout: '5' }), TypeError);
  const kept = mayBlock(locks, async () => {});
  const job = (await queue.add('job', {})) as Job;
  await assert.rejects(
    kept(job, 'token', undefined),
    /needs a job that a Worker of BullMQ has started; job 1/,
  );
});

test('what is no job gets an error that says so, before anything is sent', async () => {
  await until(() => locks.stats().held === 0, 'the end of all renewals');
  const before = locks.stats().requests;
  const none = { name: 'TypeError', code: 'ERR_INVALID_ARG_TYPE' };
  const processors = [
    mayBlock(locks, async () => {}),
    oneAtATime(
      locks,
      () => 'key',
      async () => {},
    ),
  ];
  for (const processor of processors) {
    for (const wrong of [undefined, null, {}, 'job', { queue: {} }]) {
      const run = processor(wrong as never, 'token', undefined);
      await assert.rejects(run, {
        ...none,
        message: /needs a job that a Worker of BullMQ has started/,
      });
    }
  }
  const manual = new Worker(queue.name, null, { connection: connection(), ...STALLS });
  workers.push(manual);
  await queue.add('job', {});
  const job = (await manual.getNextJob('token')) as Job;
  for (const answer of [undefined, null, {}, Promise.resolve(5)]) {
    const kept = mayBlock(locks, async () => {}, { stallTimeout: () => answer as never });
    const message =
      /^the function stallTimeout must answer ms or a text such as '2m', got .* for job 1$/;
    await assert.rejects(kept(job, 'token', undefined), { ...none, message });
  }
  const stallTimeout = null as never;
  assert.throws(() => mayBlock(locks, async () => {}, { stallTimeout }), none);
  assert.throws(
    () =>
      oneAtATime(
        locks,
        () => 'key',
        async () => {},
        { stallTimeout },
      ),
    none,
  );
  assert.equal(locks.stats().requests, before);
});
