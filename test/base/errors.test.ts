import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { holdfast } from '../support/holdfast.js';

const CODES = {
  LockClosedError: 'ERR_LOCK_CLOSED',
  LockConnectionError: 'ERR_LOCK_CONNECTION',
  LockLoadError: 'ERR_LOCK_NATIVE_LOAD',
  LockLostError: 'ERR_LOCK_LOST',
  LockServerError: 'ERR_LOCK_SERVER',
  LockTimeoutError: 'ERR_LOCK_TIMEOUT',
  LockUnmarkedError: 'ERR_LOCK_UNMARKED',
} as const;

type Name = keyof typeof CODES;
type AnyError = new (...args: unknown[]) => Error & { code: string };

const classes = holdfast as unknown as Record<Name | 'LockError', AnyError>;

function make(name: Name): Error & { code: string } {
  const details = { waited: 1, holder: undefined, remaining: undefined };
  return new classes[name]('message', name === 'LockLoadError' ? new Error('x') : 'lock', details);
}

for (const [name, code] of Object.entries(CODES) as [Name, string][]) {
  test(`${name}: has its name, its code and its base`, () => {
    const error = make(name);
    assert.equal(error.code, code);
    assert.equal(error.name, name);
    assert.equal(String(error), `${name}: message`);
    assert.ok(error instanceof Error);
    assert.ok(error instanceof classes.LockError);
    for (const other of Object.keys(CODES) as Name[]) {
      assert.equal(error instanceof classes[other], other === name);
    }
  });
}

test("a service's own tests can make them, and the compiler knows of what", () => {
  const error = new holdfast.LockTimeoutError('busy', 'item:42', {
    waited: 5_000,
    holderLabel: 'shop-3',
  });
  assert.deepEqual([error.lock, error.waited, error.holderLabel], ['item:42', 5_000, 'shop-3']);
  assert.equal(error.remaining, undefined);
  // @ts-expect-error: it says of which lock.
  assert.throws(() => new holdfast.LockTimeoutError('busy'), TypeError);
});

test('instanceof: a plain error, an object and null are none of ours', () => {
  for (const value of [new Error('x'), {}, null, undefined, 'text', { code: 'ERR_LOCK_LOST' }]) {
    assert.equal((value as unknown) instanceof (classes.LockError as never), false);
    assert.equal((value as unknown) instanceof (classes.LockLostError as never), false);
  }
});

test('instanceof: survives two copies of the package', () => {
  const require = createRequire(__filename);
  const path = require.resolve('holdfast');
  const cached = Object.keys(require.cache).filter((file) => file.includes('/dist/'));
  const kept = cached.map((file) => [file, require.cache[file]] as const);
  for (const file of cached) delete require.cache[file];
  const copy = require(path) as typeof classes;
  for (const [file, module] of kept) require.cache[file] = module;

  assert.notEqual(copy.LockLostError, classes.LockLostError);
  const error = new copy.LockLostError('message', 'lock', 'expired');
  assert.ok(error instanceof classes.LockLostError);
  assert.ok(error instanceof classes.LockError);
  assert.ok(!(error instanceof classes.LockTimeoutError));
});

test("instanceof: a user's subclass does not claim our errors", () => {
  class Mine extends classes.LockTimeoutError {}
  assert.ok(!(make('LockTimeoutError') instanceof Mine));
  const details = { waited: 1, holder: undefined, remaining: undefined };
  const mine = new Mine('message', 'lock', details);
  assert.ok(mine instanceof Mine);
  assert.ok(mine instanceof classes.LockTimeoutError);
  assert.ok(mine instanceof classes.LockError);
});

test('an error made in the core has the frames of the caller', async () => {
  async function placeOrder(): Promise<void> {
    await holdfast.connect('redis://127.0.0.1:1');
  }
  await assert.rejects(placeOrder(), (error: Error) => {
    assert.match(String(error.stack), /placeOrder/);
    assert.match(error.message, /cannot connect to redis:\/\/127\.0\.0\.1:1\/0: .*refused/);
    return true;
  });
});

test('an error that comes of another one keeps it as its cause', () => {
  const cause = new Error('the first');
  const { LockUnmarkedError, LockLoadError } = holdfast as unknown as Record<string, AnyError>;
  assert.ok(LockUnmarkedError !== undefined && LockLoadError !== undefined);
  const unmarked = new LockUnmarkedError('message', 'job', { slot: 's', result: 5, cause });
  assert.equal(unmarked.cause, cause);
  assert.equal(new LockLoadError('message', cause).cause, cause);
});
