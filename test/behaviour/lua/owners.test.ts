/**
 * The scripts themselves, against a model: whatever several owners do in whatever order, a lock is
 * never deleted or extended by anyone but its owner, and every answer has a larger fence.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { Redis } from 'ioredis';
import { serverOfFile } from '../../support/server-of-file.js';
import { FENCE, LOCK, type Scripts, scripts } from './scripts.js';

let redis: Redis;
let script: Scripts;

const server = serverOfFile({}, () => {
  redis = server.admin;
  script = scripts(redis);
});

type Step =
  | {
      readonly kind: 'acquire' | 'delete' | 'extend' | 'release';
      readonly owner: string;
      readonly ttl: number;
    }
  | { readonly kind: 'expire' | 'foreign' | 'lose the counter' };

const owner = fc.constantFrom('hf1.a.1', 'hf1.a.2', 'hf1.b.1');
/** Far apart, so that the time that passes during a test cannot blur them. */
const ttl = fc.constantFrom(100_000, 200_000, 300_000);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('acquire' as const), owner, ttl }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('extend' as const), owner, ttl }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom('delete' as const, 'release' as const),
      owner,
      ttl,
    }),
  },
  fc.record({ kind: fc.constantFrom('expire', 'foreign', 'lose the counter') }),
);

/** The expected state of the lock. */
interface Model {
  holder: string | undefined;
  ttl: number;
  highest: number;
}

async function take(model: Model, token: string, lease: number): Promise<void> {
  const reply = await script.ask(token, { ttl: lease });
  if (model.holder === undefined) {
    assert.ok(Number(reply) > model.highest, 'a new owner has a larger fence');
    Object.assign(model, { holder: token, ttl: lease, highest: reply });
  } else if (model.holder === token) {
    model.ttl = Math.max(model.ttl, lease);
    assert.ok(Number(reply) > model.highest, 'the answer to a repeat has a larger fence');
    model.highest = Number(reply);
  } else {
    const [remaining, holder] = reply as [number, string];
    assert.equal(holder, model.holder);
    assert.ok(near(remaining, model.ttl));
  }
}

async function perform(model: Model, action: Step): Promise<void> {
  switch (action.kind) {
    case 'acquire':
      return take(model, action.owner, action.ttl);
    case 'extend': {
      const reply = await script.extend(action.owner, action.ttl);
      assert.equal(reply, model.holder === action.owner ? 1 : 0);
      if (reply === 1) model.ttl = Math.max(model.ttl, action.ttl);
      return;
    }
    case 'delete':
    case 'release': {
      const reply = await script[action.kind](action.owner);
      assert.equal(reply, model.holder === action.owner ? 1 : 0);
      if (reply === 1) model.holder = undefined;
      return;
    }
    case 'expire':
      // To a script an expired key does not exist.
      await redis.del(LOCK);
      model.holder = undefined;
      return;
    case 'foreign':
      await redis.set(LOCK, 'other code', 'PX', 100_000);
      Object.assign(model, { holder: 'other code', ttl: 100_000 });
      return;
    case 'lose the counter':
      await redis.del(FENCE);
  }
}

/** At most ten seconds have passed. */
function near(remaining: number, lease: number): boolean {
  return remaining <= lease && remaining > lease - 10_000;
}

async function check(model: Model): Promise<void> {
  const [value, lease] = await Promise.all([redis.get(LOCK), redis.pttl(LOCK)]);
  assert.equal(value, model.holder ?? null);
  if (model.holder !== undefined) assert.ok(near(lease, model.ttl), `${lease} of ${model.ttl}`);
  const end = await redis.pttl(FENCE);
  assert.ok(end === -2 || end === -1, 'the counter never ends');
  // Nobody waits or shares.
  const others = (await redis.keys('*')).filter((key) => key !== LOCK && key !== FENCE);
  assert.deepEqual(others, []);
}

test('only the owner releases and extends, and no lease is ever shortened', async () => {
  const property = fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
    await redis.flushall();
    const model: Model = { holder: undefined, ttl: 0, highest: 0 };
    for (const action of steps) {
      await perform(model, action);
      await check(model);
    }
  });
  await fc.assert(property, { numRuns: 400 });
});

test('a counter at or below the epoch is lifted above it', async () => {
  await redis.flushall();
  const fenceFor = async (token: string, epoch: number) => {
    const reply = await script.ask(token, { epoch });
    await redis.del(LOCK);
    return Number(reply);
  };
  const first = await fenceFor('hf1.a.1', 0);
  assert.equal(await fenceFor('hf1.a.2', first - 5), first + 1, 'an old epoch changes nothing');
  const epoch = first + 1_000_000;
  assert.equal(await fenceFor('hf1.a.3', epoch), epoch);
  assert.equal(await fenceFor('hf1.a.4', epoch), epoch + 1);
  assert.equal(await redis.pttl(FENCE), -1, 'the lift gives the counter no end');
});

test('a counter that INCRBY has begun goes on at the clock', async () => {
  for (const begun of ['0', '1', '999999999999999']) {
    await redis.flushall();
    await redis.set(FENCE, begun);
    const fence = Number(await script.ask('hf1.a.1'));
    assert.ok(Math.abs(fence - Date.now() * 1_000) < 60_000_000, `${fence} after ${begun}`);
    assert.equal(await redis.get(FENCE), String(fence));
    assert.equal(Number(await script.ask('hf1.a.1')), fence + 1);
  }
});

test('the counter serves all locks', async () => {
  await redis.flushall();
  const last = Number(await script.ask('hf1.a.1'));
  await redis.incrby(FENCE, 5);
  await script.release('hf1.a.1');
  assert.equal(await script.ask('hf1.b.1'), last + 6, 'past the fences of others');
});

/** A counter that is ahead of the clock by this many days. */
const ahead = (days: number) => String((Date.now() + days * 86_400_000) * 1_000);

test('a counter that is ahead of the clock by more than a year is refused, and nothing is changed', async () => {
  const bad = [
    ahead(366),
    '8900000000000000',
    '9007199254740992',
    '9223372036854775807',
    '9'.repeat(40),
  ];
  for (const counter of bad) {
    for (const [seq, limit] of [
      ['try', '-'],
      ['0', '-'],
      ['0', '0'],
      ['try', '2'],
    ] as const) {
      await redis.flushall();
      await redis.set(FENCE, counter, 'PX', 60_000);
      const code = counter.length === 40 ? /WRONGTYPE|FENCE/ : /FENCE/;
      const refused = script.ask('hf1.a.1', { seq, limit });
      await assert.rejects(refused, (error: Error) => {
        assert.match(error.message, code);
        return error.message.includes(`${FENCE} is not `);
      });
      assert.deepEqual(await redis.keys('*'), [FENCE]);
      assert.equal(await redis.get(FENCE), counter);
      assert.ok((await redis.pttl(FENCE)) > 50_000);
    }
  }
});

test('a fence is exact to its end and is never written in scientific notation', async () => {
  await redis.flushall();
  // The manager of the second one has been connected for more than a year.
  for (const [token, epoch] of [
    ['hf1.a.1', String(Date.now() * 1_000)],
    ['hf1.b.1', '1500000000000000'],
  ] as const) {
    const counter = ahead(364);
    await redis.set(FENCE, counter, 'PX', 60_000);
    assert.equal(await script.ask(token, { epoch }), Number(counter) + 1);
    assert.equal(await redis.get(FENCE), String(Number(counter) + 1));
    assert.ok((await redis.pttl(FENCE)) > 50_000);
    await script.release(token);
  }
  await redis.flushall();
  await script.ask('hf1.a.1', { epoch: '8000000000000001' });
  assert.equal(await redis.get(FENCE), '8000000000000001');
});
