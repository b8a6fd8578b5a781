/** The bounds of arguments: what is just allowed, what is just refused, and what an error shows. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { connect, type LockManager } from '../support/holdfast.js';

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
