/** Abandoned locks: they stay held, and a warning names them. */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { run } from '../../support/child.js';
import { connect, type Lock, type LockManager } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { sleep, until } from '../../support/wait.js';

const server = serverOfFile();
let locks: LockManager;
let warnings: (Error & { code?: string })[] = [];

afterEach(() => locks.close());

async function open(): Promise<void> {
  locks = await connect(server.url);
  warnings = [];
  locks.on('warning', (warning) => warnings.push(warning));
}

async function collect(): Promise<void> {
  assert.ok(globalThis.gc !== undefined, 'run with --expose-gc');
  await new Promise(setImmediate);
  globalThis.gc();
  await sleep(5);
}

/** Waits until `count` locks were found abandoned. */
function found(count: number): Promise<void> {
  return until(async () => {
    await collect();
    return locks.stats().abandoned >= count;
  }, `${count} abandoned locks`);
}

test('a lock that nobody has is held on, warned of once per name, and counted', async () => {
  await open();
  const forget = async (name: string) => void (await locks.acquire(name, { mode: 'shared' }));
  await forget('x');
  await forget('x');
  await forget('y');
  await found(3);
  await until(() => warnings.length === 2, 'the warning after the first');
  assert.deepEqual(
    warnings.map(({ code, message }) => [code, /^lock "(.)" is held/.exec(message)?.[1]]),
    [
      ['WARN_LOCK_ABANDONED', 'x'],
      ['WARN_LOCK_ABANDONED', 'y'],
    ],
  );
  assert.match(String(warnings[0]?.message), /HOLDFAST_TRACE=1/);
  const { held, lost, abandoned, oldestHold } = locks.stats();
  assert.deepEqual({ held, lost, abandoned }, { held: 3, lost: 0, abandoned: 3 });
  assert.ok(oldestHold >= 1_000 && oldestHold < 60_000, String(oldestHold));
  for (const name of ['x', 'y']) assert.equal(await locks.tryAcquire(name), null);
});

test('of many locks at once one is named, and the others are counted a second later', async () => {
  await open();
  const times: number[] = [];
  locks.on('warning', () => times.push(performance.now()));
  await Promise.all(Array.from({ length: 50 }, (_, i) => locks.acquire(`many:${i}`)));
  await found(50);
  const counted = () =>
    warnings.map(({ message }) => Number(/as for (\d+) others?/.exec(message)?.[1] ?? 0) + 1);
  await until(() => counted().reduce((sum, each) => sum + each, 0) === 50, 'all are counted');
  assert.ok(warnings.length <= 10, `${warnings.length} warnings`);
  for (const { message } of warnings) assert.doesNotMatch(message, /\n/);
  const pauses = times.slice(1).map((time, i) => time - (times[i] ?? 0));
  assert.ok(
    pauses.every((pause) => pause > 900),
    String(pauses),
  );
});

test('what somebody can still use is not warned of', async () => {
  await open();
  const kept: unknown[] = [];
  const take = async () => {
    kept.push(await locks.acquire('lock'));
    kept.push((await locks.acquire('signal')).signal);
    const both = await locks.acquire(['set:1', 'set:2']);
    kept.push(() => both.held);
    kept.push((await locks.acquire(['set:3', 'set:4'])).signal);
    (await locks.acquire('listened')).signal.addEventListener('abort', () => {});
    await locks.acquire('left', { ttl: 60_000, renew: false, leaveToExpire: true });
    const closure = await locks.acquire('closure');
    kept.push(() => closure.release());
    void locks.request('asked', () => new Promise(() => {}));
    void locks.request('around', () =>
      locks.request('around', { reentrant: true }, () => new Promise(() => {})),
    );
    await locks.request('inner', async () => {
      await locks.request('inner', { reentrant: true }, (lock) => void kept.push(lock));
    });
    await (await locks.acquire('gone')).release();
  };
  await take();
  // The search that finds this one would have found those above it too.
  await locks.acquire('abandoned');
  await found(1);
  const unexpected = warnings.filter(({ message }) => !message.includes('"abandoned"'));
  assert.deepEqual(unexpected, []);
  assert.equal(kept.length, 6);
});

test('the loss of a lock that nobody has is told', async () => {
  await open();
  const lost: unknown[] = [];
  locks.on('lost', ({ name, mode, token, held, fence }, { reason }) => {
    lost.push([name, mode, token.endsWith('.me'), held, fence > 0, reason]);
  });
  const forget = async () => {
    await locks.acquire('x', { label: 'me' });
    await (await locks.acquire('y', { label: 'me' })).downgrade();
  };
  await forget();
  await found(2);
  await locks.forceRelease('x');
  await locks.forceRelease('y');
  await until(() => lost.length === 2, 'the losses');
  assert.deepEqual(lost.sort(), [
    ['x', 'exclusive', true, false, true, 'stolen'],
    ['y', 'shared', true, false, true, 'stolen'],
  ]);
});

test('a lock whose renewal its caller has stopped may be forgotten', async () => {
  await open();
  let stopped: Lock | undefined = await locks.acquire('stopped', { ttl: 60_000 });
  const forget = async (name: string) => void (await locks.acquire(name));
  await forget('before');
  // The search that finds this one has put a stand-in in the place of the other.
  await found(1);
  await stopped.stopRenewing();
  stopped = undefined;
  await forget('after');
  await until(async () => {
    await collect();
    return warnings.length === 2;
  }, 'the second abandoned lock');
  for (let times = 0; times < 3; times += 1) await collect();
  const named = warnings.map(({ message }) => /^lock "(.*?)" is held/.exec(message)?.[1]);
  assert.deepEqual(named, ['before', 'after']);
});

test('who listens to the signal of an old lock is told, also if the rest is forgotten', async () => {
  await open();
  const told: string[] = [];
  const old = await locks.acquire('old');
  let handle: typeof old | undefined = await locks.acquire('x');
  // By now the search has run.
  await until(async () => {
    await collect();
    return locks.stats().oldestHold > 2_500;
  }, 'the lock to be old');
  const listen = () => handle?.signal.addEventListener('abort', () => told.push('x'));
  listen();
  handle = undefined;
  // It is younger, so it is found after the other would have been.
  await locks.acquire('abandoned');
  await found(1);
  await locks.forceRelease('x');
  await until(() => told.length === 1, 'the listener to be told');
  assert.equal(old.held, true);
});

test('the age of the oldest hold follows what is held', async () => {
  await open();
  assert.equal(locks.stats().oldestHold, 0);
  const first = await locks.acquire('first');
  await sleep(300);
  const second = await locks.acquire('second');
  const both = locks.stats().oldestHold;
  assert.ok(both >= 295, String(both));
  await first.release();
  assert.ok(locks.stats().oldestHold < both);
  await second.release();
  assert.equal(locks.stats().oldestHold, 0);
});

for (const [how, begin] of Object.entries({
  acquire: `locks.acquire('x').then(() => {})`,
  tryAcquire: `locks.tryAcquire('x').then(() => {})`,
  'acquire of several': `locks.acquire(['x', 'y']).then(() => {})`,
  adopt: `others.acquire('x').then((lock) => locks.adopt(lock.toJSON())).then(() => {})`,
})) {
  test(`HOLDFAST_TRACE=1 tells where ${how} was called`, async () => {
    await open();
    process.env['HOLDFAST_TRACE'] = '1';
    const ended = await run(
      `import { connect } from 'holdfast';
      const [locks, others] = [await connect('memory:x'), await connect('memory:x')];
      await ${begin};
      const warned = new Promise((resolve) => process.once('warning', resolve));
      const timer = setInterval(() => {
        const waste = Array.from({ length: 400_000 }, (_, i) => ({ i }));
        globalThis.waste = waste;
      }, 10);
      console.log((await warned).message);
      process.exit();`,
    ).finally(() => delete process.env['HOLDFAST_TRACE']);
    assert.match(ended.stdout, /lock "x" is held.*; it was acquired\n/, ended.stderr);
    assert.match(ended.stdout, /\[eval1\]:3:/);
    assert.doesNotMatch(ended.stdout, /manager\.js/, 'only what is not ours');
  });
}
