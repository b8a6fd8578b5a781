/** The bounds of arguments: what is just allowed, what is just refused, and what an error shows. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { connect, type LockManager } from '../support/holdfast.js';

interface Internals {
  checkObject(
    options: unknown,
    known: readonly string[],
    caller: string,
    times?: ReadonlySet<string>,
  ): Record<string, unknown>;
  checkWholeNumber(value: unknown, what: string, least: number, most: number, kind?: string): void;
  show(value: unknown): string;
}

// They are internal: they are reached by path, past the package's exports.
const { checkObject, checkWholeNumber, show } = require('../../../dist/internals.js') as Internals;

let locks: LockManager;

before(async () => {
  locks = await connect('memory:checks');
});

after(() => locks.close());

const TOO_FAR = { name: 'RangeError', code: 'ERR_OUT_OF_RANGE' };

async function takes(name: string, options = {}): Promise<void> {
  assert.equal(await (await locks.acquire(name, options)).release(), true);
}

test('the least and the most of a number are allowed, and no more', async () => {
  // On a busy machine so short a lease may be over before its release.
  await (await locks.acquire('x', { ttl: 50 })).release();
  await takes('x', { ttl: 9e15 });
  await takes('x', { wait: 0 });
  for (const ttl of [49, 9e15 + 2, 50.5, Number.NaN, Number.POSITIVE_INFINITY]) {
    await assert.rejects(locks.acquire('x', { ttl }), TOO_FAR, `${ttl}`);
  }
  await assert.rejects(locks.acquire('x', { wait: -1 }), TOO_FAR);
});

test('a limit may be the largest whole number, and the error for a larger one names it', async () => {
  const most = Number.MAX_SAFE_INTEGER;
  await takes('x', { mode: 'shared', limit: most, permits: most });
  await assert.rejects(locks.acquire('x', { mode: 'shared', limit: most + 1 }), {
    ...TOO_FAR,
    message: `limit must be a whole number, 1 to ${most}, got ${most + 1}`,
  });
  await assert.rejects(locks.acquire('x', { mode: 'shared', limit: 0 }), /1 or more, got 0/);
});

test('the longest name is allowed, by its bytes, and none that is longer', async () => {
  for (const name of ['n'.repeat(1024), '€'.repeat(341), 'é'.repeat(512)]) await takes(name);
  for (const name of ['n'.repeat(1025), '€'.repeat(342), 'é'.repeat(513)]) {
    await assert.rejects(locks.acquire(name), TOO_FAR);
  }
});

test('a thousand names are allowed, and none more', async () => {
  const names = Array.from({ length: 1_000 }, (_, i) => `n:${i}`);
  assert.equal(await (await locks.acquire(names)).release(), true);
  await assert.rejects(locks.acquire([...names, 'one more']), TOO_FAR);
});

test('an option that is undefined counts as not given', async () => {
  const given = { ttl: undefined, wait: undefined, mode: undefined, signal: undefined };
  await takes('x', given);
  const { ttl } = await locks.request('x', given, async () => {
    const [holder] = (await locks.query({ name: 'x' })).held;
    return { ttl: holder?.ttl ?? 0 };
  });
  assert.ok(ttl > 5_000, 'the default');
  const unset = { ttl: undefined, prefix: undefined, wait: undefined, clientName: undefined };
  await using manager = await connect('memory:', unset);
  assert.equal(await (await manager.acquire('x')).release(), true);
});

test('an error about a secret does not show it', async () => {
  const refused = connect('redis://127.0.0.1:1', { password: ['s3cret'] as never });
  await assert.rejects(refused, (error: Error) => {
    assert.doesNotMatch(error.message, /s3cret|array/);
    return error.name === 'TypeError';
  });
  await assert.rejects(connect('redis://127.0.0.1:1', { password: 421234 as never }), (error) => {
    assert.doesNotMatch((error as Error).message, /421234/);
    return true;
  });
});

const message = (check: () => unknown): string => {
  try {
    check();
  } catch (error) {
    return (error as Error).message;
  }
  return '';
};

test('options that are no object are shown, and where a time is meant, how to write it', () => {
  const known = ['wait', 'ttl', 'mode'];
  const told: [unknown, readonly string[], string][] = [
    [5, known, 'number 5: write { ttl: 5 } or { wait: 5 }'],
    ['5s', known, '"5s": write { ttl: "5s" } or { wait: "5s" }'],
    [5, ['wait'], 'number 5: write { wait: 5 }'],
    [5, ['mode'], 'number 5'],
    [null, known, 'null'],
    [[5], known, 'an array'],
    [true, known, 'boolean true'],
    [() => {}, known, 'a function'],
  ];
  for (const [given, names, shown] of told) {
    const text = `the options of f must be an object, got ${shown}`;
    assert.equal(
      message(() => checkObject(given, names, 'f')),
      text,
    );
  }
  assert.deepEqual(Object.keys(checkObject(undefined, known, 'f')), []);
});

test('an unknown option: the one that is meant, or else all in order', () => {
  const told: [string, readonly string[], string][] = [
    ['TTL', ['mode', 'ttl'], 'did you mean "ttl"?'],
    ['tl', ['mode', 'ttl'], 'did you mean "ttl"?'],
    ['wiat', ['mode', 'wait'], 'did you mean "wait"?'],
    ['mudd', ['mode', 'wait'], 'did you mean "mode"?'],
    ['mud', ['wait', 'mode'], 'it has mode, wait'],
    ['prefixabc', ['prefix'], 'did you mean "prefix"?'],
    ['xrefixab', ['prefix'], 'it has prefix'],
    ['fix', ['prefix'], 'it has prefix'],
    ['pref', ['prefix'], 'did you mean "prefix"?'],
    ['ad', ['ab', 'ac'], 'did you mean "ab"?'],
    ['wait', ['wai', 'ai', 'w'], 'did you mean "wai"?'],
    ['nothing', ['b', 'c', 'a'], 'it has a, b, c'],
  ];
  for (const [word, known, advice] of told) {
    const order = [...known];
    const text = message(() => checkObject({ [word]: 1 }, known, 'f'));
    assert.equal(text, `f has no option "${word}"; ${advice}`);
    assert.deepEqual(known, order);
  }
});

test('options are copied where they are given: own, inherited, by getters, but not those of all objects', () => {
  const known = ['ttl', 'wait'];
  const copy = (options: object) => ({ ...checkObject(options, known, 'f') });
  class Options {
    get ttl() {
      return 5;
    }
  }
  assert.deepEqual(copy(new Options()), { ttl: 5 });
  assert.deepEqual(copy(Object.create({ ttl: 6 })), { ttl: 6 });
  assert.deepEqual(copy(Object.assign(Object.create(null), { wait: 7 })), { wait: 7 });
  assert.deepEqual(copy({ ttl: undefined, wait: 0 }), { wait: 0 });
  assert.match(
    message(() => checkObject(Object.create({ tll: 1 }), known, 'f')),
    /option "tll"/,
  );
  const all = Object.prototype as Record<string, unknown>;
  Object.assign(all, { ttl: 8, other: 9 });
  try {
    assert.deepEqual(Object.keys(checkObject({}, known, 'f')), []);
    assert.deepEqual(Object.keys(checkObject(Object.create({}), known, 'f')), []);
    assert.equal(checkObject({ wait: 1 }, known, 'f')['ttl'], undefined);
    assert.equal(checkObject({ ttl: 1 }, known, 'f')['ttl'], 1);
  } finally {
    delete all['ttl'];
    delete all['other'];
  }
});

test('texts become ms for options that are lengths of time alone', () => {
  const given = { ttl: '5s', wait: 7, mode: '5s' };
  const copied = checkObject(given, ['ttl', 'wait', 'mode'], 'f', new Set(['ttl', 'wait']));
  assert.deepEqual({ ...copied }, { ttl: 5_000, wait: 7, mode: '5s' });
  assert.deepEqual({ ...checkObject({ ttl: '5s' }, ['ttl'], 'f') }, { ttl: '5s' });
});

test('a number out of its range is told with the range, in words if it has no end', () => {
  const most = Number.MAX_SAFE_INTEGER;
  const told: [unknown, number, number, string][] = [
    [6, 1, 5, 'a whole number, 1 to 5, got 6'],
    [0, 1, 5, 'a whole number, 1 to 5, got 0'],
    [1.5, 1, most, 'a whole number, 1 or more, got 1.5'],
    [2 ** 53, 1, most, `a whole number, 1 to ${most}, got ${2 ** 53}`],
    ['5', 1, 5, 'a number, got "5"'],
    [5n, 1, 5, 'a number, got bigint 5'],
    [1, 1, 5, ''],
    [5, 1, 5, ''],
  ];
  for (const [given, least, end, text] of told) {
    const said = message(() => checkWholeNumber(given, 'n', least, end));
    assert.equal(said, text === '' ? '' : `n must be ${text}`);
  }
  assert.match(
    message(() => checkWholeNumber(0, 'n', 1, 5, 'whole ms')),
    /^n must be whole ms, 1/,
  );
});

test('a value in an error is short, and shows of what type it is', () => {
  const long = `${'a'.repeat(59)}b`;
  const shown: [unknown, string][] = [
    [long, `"${long}"`],
    [`${long}c`, `"${long}…"`],
    ['say "no"', '"say \\"no\\""'],
    [null, 'null'],
    [undefined, 'undefined'],
    [[], 'an array'],
    [{}, 'an object'],
    [() => {}, 'a function'],
    [5, 'number 5'],
    [Symbol('s'), 'symbol Symbol(s)'],
  ];
  for (const [value, text] of shown) assert.equal(show(value), text);
});
