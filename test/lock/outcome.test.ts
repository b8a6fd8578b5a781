/** Which error each outcome of the core becomes, with each of its fields and without it. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  LockClosedError,
  LockConnectionError,
  LockQuorumError,
  LockServerError,
  LockTimeoutError,
} from 'holdfast';

interface Internals {
  readonly records: { readonly OutcomeCode: Readonly<Record<string, number>> };
  toError(
    outcome: object,
    context: object,
    action: string,
    lock?: string,
    set?: { waited(): number; readonly size: number },
  ): Error & Readonly<Record<string, unknown>>;
  loginError(text: string, of: string): LockConnectionError;
}

// They are internal: they are reached by path, past the package's exports.
const { records, toError, loginError } = require('../../../dist/internals.js') as Internals;
const { OutcomeCode } = records;

const ENDLESS = -1;
const OWN = `${'0'.repeat(12)}7${'0'.repeat(3)}8${'0'.repeat(15)}`;
const CONTEXT = {
  client: OWN,
  server: 'redis://host:6379',
  sharded: false,
  servers: [],
  label: '',
};

function errorOf(code: string, text: object | null, { lock = 'job', a = 0, b = 0, ...more } = {}) {
  const outcome = { code: OutcomeCode[code], a, b, text };
  return toError(outcome, { ...CONTEXT, ...more }, 'acquire', lock === '' ? undefined : lock);
}

test('each code has a class of its own, and its error names the lock and the server', () => {
  const message = 'it broke';
  for (const [code, type] of [
    ['Closed', LockClosedError],
    ['Connection', LockConnectionError],
    ['Quorum', LockQuorumError],
    ['Server', LockServerError],
  ] as const) {
    const error = errorOf(code, { message });
    assert.ok(error instanceof type, code);
    assert.equal(error['lock'], 'job');
    assert.match(error.message, /^cannot acquire lock "job" on redis:\/\/host:6379: /);
    assert.match(errorOf(code, { message }, { lock: '' }).message, /^cannot acquire redis:/);
  }
  assert.match(errorOf('Connection', { message }).message, /: it broke$/);
  assert.match(errorOf('Closed', null).message, /its manager was closed$/);
  for (const code of ['Internal', 'Done']) {
    const { message, ...error } = errorOf(code, null);
    assert.deepEqual([error['code'], error['lock']], ['ERR_INTERNAL', 'job']);
    assert.match(errorOf(code, null).message, /defect of holdfast/);
  }
  const held = errorOf('Held', null);
  assert.ok(held instanceof LockTimeoutError && held.waited === 0 && held.lock === 'job');
  assert.match(held.message, /held by other code; forceRelease with/);
});

test('the words of a server cannot write to a terminal', () => {
  for (const code of ['Connection', 'Quorum', 'Server']) {
    const error = errorOf(code, { message: 'a\u001b[2Jb' }, { servers: ['one'] } as object);
    assert.ok(!error.message.includes('\u001b'), code);
  }
});

test('of a quorum each server has its cause, and only those that failed are told', () => {
  const servers = ['one', 'two', 'three', 'four'];
  const error = errorOf('Quorum', { message: 'away\n\nfull' }, { servers } as object);
  assert.deepEqual(error['servers'], [
    { server: 'one', cause: 'away' },
    { server: 'two', cause: undefined },
    { server: 'three', cause: 'full' },
    { server: 'four', cause: undefined },
  ]);
  assert.match(error.message, /no majority: 2 of 4 servers failed: one: away; three: full$/);
});

test('a refusal of the server has its code, its key, and the advice for both', () => {
  const counter = 'holdfast:fence';
  for (const [text, expected] of [
    [{ message: 'odd.', serverCode: 'ODD' }, /says ODD odd$/],
    [{ message: 'odd. ', serverCode: 'ODD', key: 'k' }, /says ODD odd \(key "k"\)$/],
    [{ message: 'odd' }, /says ERR odd$/],
    [{ serverCode: 'ODD' }, /says ODD $/],
    [{ message: 'full', serverCode: 'OOM' }, /full; the server is at its maxmemory/],
    [{ message: 'no', serverCode: 'WRONGTYPE', key: 'k' }, /"k"\); this key holds other data/],
    [{ message: 'no', serverCode: 'WRONGTYPE' }, /no; this key holds other data/],
    [{ message: 'no', serverCode: 'WRONGTYPE', key: counter }, /; other code wrote this key, from/],
    [{ message: 'no', serverCode: 'OOM', key: counter }, /; the server is at its maxmemory/],
    [{ message: 'no', serverCode: 'NOPERM' }, /; the ACL user may not do this/],
    [{ message: 'no access to the key', serverCode: 'NOPERM' }, /may not use this lock's keys/],
    [{ message: 'no access to a channel', serverCode: 'NOPERM' }, /may not use the channels/],
    [{ message: 'may not access database 3', serverCode: 'NOPERM' }, /may use other databases/],
    [{ message: 'no access to the key', serverCode: 'ODD' }, /says ODD no access to the key$/],
  ] as const) {
    const error = errorOf('Server', text);
    assert.match(error.message, expected);
    const { serverCode = 'ERR', key } = text as { serverCode?: string; key?: string };
    assert.deepEqual([error['serverCode'], error['key']], [serverCode, key]);
  }
  assert.equal(errorOf('Server', null)['serverCode'], 'ERR');
});

test('a login that is refused names its server, or else that of the manager', () => {
  for (const [text, expected] of [
    [
      'redis://b:1\nWRONGPASS invalid  password.',
      /^the connection to redis:\/\/b:1 is not made again: cannot log in to redis:\/\/b:1: the server says WRONGPASS invalid {2}password; check/,
    ],
    ['\nODD no', /^the connection to redis:\/\/a:1 is .*: the server says ODD no$/],
    ['redis://b:1', /^the connection to redis:\/\/b:1 is .*: the server says {2}$/],
  ] as const) {
    const error = loginError(text, 'redis://a:1');
    assert.match(error.message, expected);
    assert.ok(error.cause instanceof LockServerError && error.lock === undefined);
  }
});

/** The error about a lock that `token` has, and the part of its message about the hold. */
function timeout(token: string, numbers: object = {}, more: object = {}) {
  const { holders = 0, position, ...rest } = numbers as { holders?: number; position?: number };
  const text = { message: '', holder: token, holders, position };
  const error = errorOf('TimedOut', text, { a: 1_500, b: 900, ...rest, ...more });
  assert.ok(error instanceof LockTimeoutError);
  const start = 'lock "job" was not free within 1.5s: ';
  assert.ok(error.message.startsWith(start), error.message);
  return { error, told: error.message.slice(start.length) };
}

const OTHER = '0'.repeat(32);
const LEASE = 'and its lease ends in 900ms';
const RENEWED = `${LEASE}, unless it is renewed`;

test('a timeout tells who holds the lock', () => {
  const own = `hf1.${OWN}.7`;
  for (const [token, told, more] of [
    ['', 'it was free a moment ago', {}],
    ['their value', `it is held by other code, ${LEASE}`, {}],
    [`hf1.${OTHER}.7`, `it is held by another holdfast client, ${RENEWED}`, {}],
    [`hf1.${OTHER}.7.web`, `it is held by "web", ${RENEWED}`, {}],
    [`hf1.${OTHER}.7.a%1Bb`, `it is held by "a\\u{1b}b", ${RENEWED}`, {}],
    [own, /by another caller of this manager, /, {}],
    [`${own}.web`, /by another caller of this manager \("web"\), /, {}],
    [`${own}.web`, /by another caller of this manager \("web"\), /, { label: 'api' }],
    [`${own}.web`, /by another caller of this manager, /, { label: 'web' }],
  ] as const) {
    const found = timeout(token, {}, more).told;
    if (typeof told === 'string') assert.equal(found, told);
    else assert.match(found, told);
  }
  assert.deepEqual(
    [`hf1.${OTHER}.7`, `hf1.${OTHER}.7.web`].map((each) => timeout(each).error.holderLabel),
    [undefined, 'web'],
  );
});

test('a timeout tells how many share the lock, the place in the queue, and a lease without end', () => {
  const token = `hf1.${OTHER}.7.web`;
  assert.match(timeout(token, { holders: 1 }).told, /by "web", and/);
  assert.match(timeout(token, { holders: 2 }).told, /by "web", one of 2 holders, and/);
  const queued = timeout(token, { position: 3 });
  assert.match(queued.told, /; the caller was number 3 in the wait queue$/);
  const { waited, remaining, position, heldFor } = queued.error;
  assert.deepEqual([waited, remaining, position, heldFor], [1_500, 900, 3, undefined]);
  const endless = timeout(token, { b: ENDLESS });
  assert.match(endless.told, /, and its lease has no end$/);
  assert.equal(endless.error.remaining, undefined);
});

test('a hold of this manager is dated by its caller, another only from ten seconds on', () => {
  const asked: number[] = [];
  const heldFor = (id: number) => {
    asked.push(id);
    return Number.isNaN(id) ? undefined : 2_000;
  };
  const own = timeout(`hf1.${OWN}.7`, {}, { heldFor });
  assert.match(own.told, /^it has been held for 2\.0s by another caller/);
  assert.equal(own.error.heldFor, 2_000);
  /** The token of a manager that has begun so long ago, and asked at once. */
  const since = (ms: number) => {
    const start = (Date.now() - ms).toString(16).padStart(12, '0');
    return `hf1.${start}7${'0'.repeat(3)}8${'0'.repeat(15)}.0`;
  };
  assert.match(timeout(since(5_000), {}, { heldFor }).told, /^it is held by another/);
  assert.match(
    timeout(since(20_000), {}, { heldFor }).told,
    /^it has been held for up to 2\d\.\ds/,
  );
  assert.deepEqual(asked, [7, Number.NaN, Number.NaN]);
});

test('a call for several locks tells how long it has waited for all of them', () => {
  const text = { message: '', holder: '', holders: 0 };
  const outcome = { code: OutcomeCode['TimedOut'], a: 10, b: 0, text };
  const set = { waited: () => 2_000.9, size: 3 };
  const error = toError(outcome, CONTEXT, 'acquire', 'job', set);
  assert.equal(error['waited'], 2_000);
  assert.match(
    error.message,
    /^lock "job" was not free within 2\.0s for all 3 locks of the call: /,
  );
});
