/** What the core hears of the logins that functions give: each answer, and when a stream of them ends. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { until } from '../support/wait.js';

type Answer = Readonly<Record<string, unknown>>;

interface AskedLogins {
  readonly any: boolean;
  readonly changes: boolean;
  readonly ask: (number: number) => void;
  end(): void;
  optionsOf(login: object, tls: object | null): { readonly login?: number };
}

interface Internals {
  readonly AskedLogins: new () => AskedLogins;
  readonly operations: {
    readonly bridge: { answerLogin(number: number, answer: Answer): boolean };
  };
}

// They are internal: they are reached by path, past the package's exports.
const { AskedLogins, operations } = require('../../../dist/internals.js') as Internals;

let logins: AskedLogins;
let answers: Answer[];
let isNeeded: boolean;

beforeEach(() => {
  logins = new AskedLogins();
  answers = [];
  isNeeded = true;
  // The core asks only for a connection, at its own times.
  mock.method(operations.bridge, 'answerLogin', (_: number, answer: Answer) => {
    answers.push(answer);
    return isNeeded;
  });
});

afterEach(() => mock.restoreAll());

const NOBODY = { username: null, password: null, credentials: null };

function login(parts: object, tls: object | null = null): number {
  return logins.optionsOf({ ...NOBODY, ...parts }, tls).login ?? 0;
}

/** The next answer. */
async function asked(number: number): Promise<Answer> {
  const before = answers.length;
  logins.ask(number);
  await until(() => answers.length > before, 'the answer');
  return answers[before] as Answer;
}

test('texts are handed over at once, and nothing is asked for', () => {
  assert.deepEqual(logins.optionsOf(NOBODY, null), {});
  assert.deepEqual(logins.optionsOf({ ...NOBODY, username: 'u' }, { ca: 'c' }), { username: 'u' });
  const both = { ...NOBODY, username: '', password: '' };
  assert.deepEqual(logins.optionsOf(both, null), { username: '', password: '' });
  assert.deepEqual([logins.any, logins.changes], [false, false]);
  logins.ask(12_345);
  logins.end();
});

test('functions are asked for: of a login, which may change, or of TLS alone', () => {
  const first = login({}, { ca: () => 'c' });
  assert.deepEqual([first > 0, logins.any, logins.changes], [true, true, false]);
  for (const parts of [
    { username: () => 'u' },
    { password: () => 'p' },
    { credentials: () => ({ password: 'p' }) },
  ]) {
    logins = new AskedLogins();
    const number = login(parts);
    assert.deepEqual([number > first, logins.any, logins.changes], [true, true, true]);
  }
});

test('the user and the password: each as a text or by a function', async () => {
  const password = async () => 'p';
  const offered = false;
  assert.deepEqual(await asked(login({ password })), { password: 'p', offered });
  const both = { username: 'u', password: 'p', offered };
  assert.deepEqual(await asked(login({ username: 'u', password })), both);
  assert.deepEqual(await asked(login({ username: () => 'u', password: 'p' })), both);
  assert.deepEqual(await asked(login({ username: () => 'u' })), { username: 'u', offered });
});

test('credentials: the time that they last is counted from now', async () => {
  const given = (credentials: object) => asked(login({ credentials: async () => credentials }));
  const [password, offered] = ['p', false];
  for (const none of [undefined, null]) {
    const answer = await given({ username: none, password, expiresAt: none });
    assert.deepEqual(answer, { password, offered });
  }
  const lasts = async (expiresAt: unknown) =>
    Number((await given({ password, expiresAt }))['validFor']);
  for (const at of [new Date(Date.now() + 60_000), Date.now() + 60_000]) {
    const left = await lasts(at);
    assert.ok(left > 1_000 && left <= 60_000, `${left}`);
  }
  assert.equal(await lasts(1e300), Number.MAX_SAFE_INTEGER);
});

test('credentials that are none are told by their part, and never shown', async () => {
  const told: [unknown, RegExp][] = [
    [null, /^the function credentials must give \{ username, password \}, got null$/],
    [5, /got a value of type number$/],
    [{}, /^the password that the function credentials gives must give a string, got .* undefined$/],
    [{ username: 5, password: 's3cret' }, /^the username that .* got a value of type number$/],
    [{ password: 's3cret', expiresAt: Number.NaN }, /^the expiresAt .* must be a Date, or ms/],
    [{ password: 's3cret', expiresAt: new Date('x') }, /must be a Date, or ms/],
    [{ password: 's3cret', expiresAt: '5' }, /must be a Date, or ms .* of type string$/],
    [{ password: 's3cret', expiresAt: new Date() }, /is in the past/],
    [{ password: 's3cret', expiresAt: 0 }, /is in the past/],
  ];
  for (const [given, message] of told) {
    const { failure, ...rest } = await asked(login({ credentials: () => given }));
    assert.match(String(failure), message);
    assert.doesNotMatch(String(failure), /s3cret/);
    assert.deepEqual(rest, { offered: false });
  }
});

test('a function that fails is named with the reason', async () => {
  const fails = (error: unknown) => () => {
    throw error;
  };
  const told: [object, string][] = [
    [{ password: fails(new Error('no vault')) }, 'the function password failed: no vault'],
    [{ username: fails('no vault') }, 'the function username failed: it threw what is no Error'],
    [{ username: () => 5 }, 'the function username must give a string, got a value of type number'],
    [{ credentials: fails(new Error('x')) }, 'the function credentials failed: x'],
    [
      {
        credentials: { type: 'async-credentials-provider', credentials: fails(new Error('x')) },
      },
      'the function credentialsProvider failed: x',
    ],
  ];
  for (const [parts, failure] of told) {
    assert.deepEqual(await asked(login(parts)), { failure, offered: false });
  }
});

test('a provider keeps its own this', async () => {
  const credentials = {
    type: 'async-credentials-provider',
    secret: 'p',
    async credentials() {
      return { username: 'u', password: this.secret };
    },
  };
  const answer = { username: 'u', password: 'p', offered: false };
  assert.deepEqual(await asked(login({ credentials })), answer);
});

test('TLS by functions is told when it is new', async () => {
  let ca = 'one';
  const number = login({}, { ca: () => ca, servername: 's' });
  const tls = { servername: 's', rejectUnauthorized: true };
  assert.deepEqual(await asked(number), { tls: { ...tls, ca: 'one' }, offered: false });
  assert.deepEqual(await asked(number), { offered: false });
  ca = 'two';
  assert.deepEqual(await asked(number), { tls: { ...tls, ca: 'two' }, offered: false });
  const wrong = login({}, { cert: () => 5, key: () => 'k' });
  assert.match(String((await asked(wrong))['failure']), /what tls\.cert gives must be PEM/);
  // Texts alone are told with the options.
  assert.deepEqual(await asked(login({ password: () => 'p' }, { ca: 'c' })), {
    password: 'p',
    offered: false,
  });
});

interface Listener {
  onNext(next: unknown): void;
  onError(error: Error): void;
}

/** A provider that tells of changes; it gives the password of its subscription's number. */
class Stream {
  readonly type = 'streaming-credentials-provider';
  readonly listeners: Listener[] = [];
  disposed = 0;
  fails = false;
  ready: Promise<void> = Promise.resolve();

  async subscribe(listener: Listener) {
    this.listeners.push(listener);
    const password = `p${this.listeners.length}`;
    await this.ready;
    if (this.fails) throw new Error('no vault');
    const dispose = () => {
      this.disposed += 1;
    };
    return [{ password }, { dispose }];
  }
}

test('a stream is subscribed to once, and its latest answer is used', async () => {
  const stream = new Stream();
  const number = login({ credentials: stream });
  assert.equal(stream.listeners.length, 0);
  assert.deepEqual(await asked(number), { password: 'p1', offered: false });
  assert.deepEqual(await asked(number), { password: 'p1', offered: false });
  stream.listeners[0]?.onNext({ username: 'u', password: 'next' });
  assert.deepEqual(answers[2], { username: 'u', password: 'next', offered: true });
  const latest = { username: 'u', password: 'next', offered: false };
  assert.deepEqual(await asked(number), latest);
  assert.deepEqual([stream.listeners.length, stream.disposed], [1, 0]);
  logins.end();
  logins.end();
  assert.equal(stream.disposed, 1);
});

test('what a stream offers is checked', async () => {
  const stream = new Stream();
  await asked(login({ credentials: stream }));
  stream.listeners[0]?.onNext({ username: 'u' });
  const { failure, offered } = answers[1] ?? {};
  assert.match(String(failure), /^the password that the function credentialsProvider gives/);
  assert.deepEqual([offered, stream.disposed], [true, 0]);
});

test('a stream that nobody needs is ended: at an answer, and at what it offers', async () => {
  const [first, second] = [new Stream(), new Stream()];
  const number = login({ credentials: first });
  isNeeded = false;
  await asked(number);
  await until(() => first.disposed === 1, 'the end of the stream');
  isNeeded = true;
  await asked(login({ credentials: second }));
  second.listeners[0]?.onNext({ password: 'p' });
  assert.equal(second.disposed, 0);
  isNeeded = false;
  second.listeners[0]?.onNext({ password: 'p' });
  assert.equal(second.disposed, 1);
});

test('a stream that fails is asked for anew, and one that has ended itself is not disposed of', async () => {
  const stream = new Stream();
  const number = login({ credentials: stream });
  stream.fails = true;
  const failure = 'the function credentialsProvider failed: no vault';
  assert.deepEqual(await asked(number), { failure, offered: false });
  stream.fails = false;
  assert.deepEqual(await asked(number), { password: 'p2', offered: false });
  stream.listeners[1]?.onError(new Error('over'));
  assert.deepEqual(await asked(number), { password: 'p3', offered: false });
  assert.equal(stream.disposed, 0);
  logins.end();
  assert.equal(stream.disposed, 1);
});

test('a stream that begins after the end is ended at once', async () => {
  const stream = new Stream();
  let begin = () => {};
  stream.ready = new Promise((resolve) => {
    begin = resolve;
  });
  logins.ask(login({ credentials: stream }));
  await until(() => stream.listeners.length === 1, 'the subscription');
  logins.end();
  assert.equal(stream.disposed, 0);
  begin();
  await until(() => stream.disposed === 1, 'the end of the stream');
});
