/** A command under a lock: the signals of this process, and a lock that is lost before or after the start. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';

interface Job {
  tell(signal: string): void;
}

interface Signals {
  readonly waiting: AbortSignal;
  readonly told: AbortSignal;
  to(job: Job | undefined): void;
}

interface Internals {
  readonly Signals: new () => Signals;
  runUnder(
    lock: object,
    words: readonly string[],
    options: object,
    signals: Signals,
    more?: object,
  ): Promise<{ readonly exit: number; readonly ran: boolean }>;
  exitCodeOf(error: unknown): number;
  withoutLogin(text: string): string;
}

// They are internal: they are reached by path, past the package's exports.
const { Signals, runUnder, exitCodeOf, withoutLogin } =
  require('../../../../dist/internals.js') as Internals;

const NAMES = ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM'] as const;
const OPTIONS = { grace: 60_000 };
const LOST = 76;

let signals: Signals;
let written: string;

beforeEach(() => {
  written = '';
  mock.method(process.stderr, 'write', (text: string) => {
    written += text;
    return true;
  });
  signals = new Signals();
});

afterEach(() => {
  mock.restoreAll();
  for (const name of [...NAMES, 'SIGTSTP'] as const) process.removeAllListeners(name);
});

const holding = (signal: AbortSignal) => ({ name: 'a', fence: 5n, signal });

test('a signal ends the wait for the lock, and later the command gets it', () => {
  for (const name of NAMES) {
    const own = new Signals();
    assert.deepEqual([own.waiting.aborted, own.told.aborted], [false, false]);
    process.emit(name, name);
    assert.deepEqual([own.waiting.reason, own.told.reason], [name, name]);
  }
  const told: string[] = [];
  const later = new Signals();
  later.to({ tell: (signal) => told.push(signal) });
  assert.deepEqual(told, [], 'none has come');
  process.emit('SIGHUP', 'SIGHUP');
  process.emit('SIGTERM', 'SIGTERM');
  assert.deepEqual(told, ['SIGHUP', 'SIGTERM']);
  assert.deepEqual([later.waiting.aborted, later.told.reason], [false, 'SIGHUP']);
  later.to(undefined);
  process.emit('SIGINT', 'SIGINT');
  assert.deepEqual([told.length, later.waiting.reason], [2, 'SIGINT']);
});

test('a signal from between the grant and the start of the command is passed on', () => {
  const told: string[] = [];
  process.emit('SIGINT', 'SIGINT');
  signals.to(undefined);
  signals.to({ tell: (signal) => told.push(signal) });
  assert.deepEqual(told, ['SIGINT']);
});

test('without a terminal SIGTSTP does not stop this process alone', () => {
  assert.equal(process.listenerCount('SIGTSTP') > 0, process.stdin.isTTY !== true);
});

test('the command has the lock in its environment, and its exit code is told', async () => {
  const { signal } = new AbortController();
  const script = 'test "$HOLDFAST_LOCK $HOLDFAST_FENCE $MORE" = "a 5 x" && exit 7';
  const words = ['sh', '-c', script];
  const ran = await runUnder(holding(signal), words, OPTIONS, signals, { MORE: 'x' });
  assert.deepEqual([ran, written], [{ exit: 7, ran: true }, '']);
});

test('the login is not passed on, and with --clean-env no URL of a server', async (t) => {
  const secret = ['USERNAME', 'PASSWORD', 'SENTINEL_USERNAME', 'SENTINEL_PASSWORD'];
  const names = [...secret.map((each) => `HOLDFAST_${each}`), 'HOLDFAST_URL', 'REDIS_URL'];
  const before = { ...process.env };
  for (const name of names) process.env[name] = 's3cret';
  t.after(() => {
    for (const name of names) delete process.env[name];
    Object.assign(process.env, before);
  });
  const { signal } = new AbortController();
  for (const [cleanEnv, count] of [
    [undefined, 2],
    [true, 0],
  ] as const) {
    const words = ['sh', '-c', 'exit $(env | grep -c s3cret)'];
    const { exit } = await runUnder(holding(signal), words, { ...OPTIONS, cleanEnv }, signals);
    assert.equal(exit, count);
  }
});

test('a lock that was lost before the start, or is lost later, stops the command', async () => {
  const early = AbortSignal.abort(new Error('it was stolen'));
  const words = ['sleep', '60'];
  assert.deepEqual(await runUnder(holding(early), words, OPTIONS, signals), {
    exit: LOST,
    ran: true,
  });
  assert.match(written, /it was stolen/);
  const lost = new AbortController();
  const running = runUnder(holding(lost.signal), words, { ...OPTIONS, json: true }, signals);
  written = '';
  lost.abort(Object.assign(new Error('it expired'), { code: 'ERR_X', lock: 'a' }));
  assert.equal((await running).exit, LOST);
  const error = { code: 'ERR_X', message: 'it expired', lock: 'a' };
  assert.deepEqual(JSON.parse(written), { error });
});

test('what ignores SIGTERM is killed after its grace', { timeout: 20_000 }, async () => {
  const early = AbortSignal.abort(new Error('it was stolen'));
  const words = ['sh', '-c', "trap '' TERM; sleep 60 & wait; sleep 60"];
  const { exit } = await runUnder(holding(early), words, { grace: 100 }, signals);
  assert.equal(exit, LOST);
});

test('a command that does not start: the reason, also if the lock is lost at once', async () => {
  const { signal } = new AbortController();
  const told: [string, number, RegExp][] = [
    ['/nothing/there', 127, /cannot run \/nothing\/there: it was not found/],
    [__dirname, 126, /: it is not executable/],
    // Node throws these at once.
    [`${__filename}/x`, 126, /x: spawn ENOTDIR/],
    ['x'.repeat(5_000), 126, /xx: spawn ENAMETOOLONG/],
    ['', 64, /cannot be empty/],
  ];
  for (const [program, code, message] of told) {
    written = '';
    const { exit, ran } = await runUnder(holding(signal), [program], OPTIONS, signals);
    assert.deepEqual([exit, ran], [code, false]);
    assert.match(written, message);
  }
  const early = AbortSignal.abort(new Error('it was stolen'));
  const begun = performance.now();
  const { ran } = await runUnder(holding(early), ['/nothing/there'], OPTIONS, signals);
  assert.equal(ran, false);
  assert.ok(performance.now() - begun < OPTIONS.grace, 'nothing is waited for');
});

test('the listener of the lock ends with the command', async () => {
  const { signal } = new AbortController();
  const removed = mock.method(signal, 'removeEventListener');
  const added = mock.method(signal, 'addEventListener');
  await runUnder(holding(signal), ['true'], OPTIONS, signals);
  const args = (calls: typeof added.mock.calls) => calls.map(({ arguments: [, what] }) => what);
  assert.equal(added.mock.callCount(), 1);
  assert.deepEqual(args(removed.mock.calls), args(added.mock.calls));
});

test('other errors are wrong usage, a defect, or have their own code', () => {
  const argument = (code: string) => Object.assign(new Error('x'), { code });
  const codes: [unknown, number][] = [
    [argument('ERR_INVALID_ARG_TYPE'), 64],
    [argument('ERR_INVALID_ARG_VALUE'), 64],
    [argument('ERR_OUT_OF_RANGE'), 64],
    [argument('ERR_OUT_OF_RANGE_X'), 70],
    [argument('X_ERR_INVALID_ARG_TYPE'), 70],
    [new Error('x'), 70],
  ];
  for (const [error, code] of codes) assert.equal(exitCodeOf(error), code);
});

test('a login is cut out of a text, and what follows it', () => {
  const cut: [string, string][] = [
    ['redis://u:p@host/1', 'redis://***'],
    ['--urll=u:p@host', '--urll=***'],
    ['unix:///s?pass=x', 'unix://***'],
    ['redis://host/1', 'redis://host/1'],
    ['a@b', 'a@b'],
  ];
  for (const [text, shown] of cut) assert.equal(withoutLogin(text), shown);
});
