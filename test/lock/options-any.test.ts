/** Any name and any options: either a typed error before anything is sent, or a lock that works. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { connect, type LockManager, openOperations } from '../support/holdfast.js';

/** A run that fails is repeated with the seed that it prints: `HOLDFAST_SEED=… npm test`. */
const SEED = Number(process.env['HOLDFAST_SEED'] ?? Date.now() % 2 ** 31);
const RUNS = 300;

let locks: LockManager;

before(async () => {
  locks = await connect('memory:');
});

after(async () => {
  await locks.close();
  assert.equal(openOperations(), 0);
});

/** Calls that an attacker or a mistake could make: `any` has every type there is. */
type Loose = Record<
  'acquire' | 'adopt' | 'forceRelease' | 'query' | 'request' | 'tryAcquire',
  (...args: unknown[]) => Promise<unknown>
>;

interface Releasable {
  readonly signal: AbortSignal;
  readonly fence: number;
  readonly held: boolean;
  release(): Promise<boolean>;
}

const GIVE_LOCKS = new Set<keyof Loose>(['acquire', 'tryAcquire', 'request']);
const CODES = /^ERR_(INVALID_ARG_TYPE|INVALID_ARG_VALUE|OUT_OF_RANGE)$/;

/** Values that checks get wrong: edges of numbers, objects that are no plain ones, what throws. */
const odd: fc.Arbitrary<unknown> = fc.oneof(
  fc.anything({ withBigInt: true, withDate: true, withMap: true, withNullPrototype: true }),
  fc.constantFrom(0, -0, -1, 49, 50, 86_400_001, 2 ** 31, 2 ** 32, 9e15, 9e15 + 1, 2 ** 53, 1e308),
  fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0.5),
  fc.constantFrom<unknown>(Symbol('odd'), () => 'odd', new Proxy({}, {}), new Uint8Array(3)),
);

/** Mostly right, so that more than the first check is reached. */
function mostly(right: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
  return fc.oneof({ weight: 6, arbitrary: right }, { weight: 1, arbitrary: odd });
}

const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.string({ unit: fc.constantFrom('{', '}', ':', '\0', '\ud800', '🔒', 'a'), maxLength: 12 }),
  fc.integer({ min: 1020, max: 1030 }).map((length) => 'x'.repeat(length)),
);
const oneName = mostly(text);
const name = fc.oneof({ weight: 4, arbitrary: oneName }, fc.array(oneName, { maxLength: 4 }));
const ms = mostly(fc.integer({ min: 50, max: 100_000 }));

const held = {
  ttl: ms,
  renew: mostly(fc.boolean()),
  maxHold: mostly(fc.constantFrom(50, 1_000, Number.MAX_SAFE_INTEGER, Number.POSITIVE_INFINITY)),
  stallTimeout: mostly(fc.constantFrom(1, 1_000, Number.MAX_SAFE_INTEGER)),
};
const taken = {
  ...held,
  label: mostly(fc.string({ unit: fc.constantFrom('a', '.', '~', ' '), maxLength: 5 })),
  limit: mostly(fc.constantFrom(1, 2 ** 31, 2 ** 32, 2 ** 53 - 1)),
  mode: mostly(fc.constantFrom('exclusive', 'shared')),
};

function record(fields: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<unknown> {
  const options = fc.record(fields, { requiredKeys: [] });
  return fc.oneof({ weight: 9, arbitrary: options }, { weight: 1, arbitrary: odd });
}

const tryOptions = record(taken);
const acquireOptions = record({
  ...taken,
  steal: mostly(fc.boolean()),
  // Nobody holds any of these locks, so no wait is long.
  wait: mostly(fc.constantFrom(0, 50, Number.MAX_SAFE_INTEGER, Number.POSITIVE_INFINITY)),
});

const requested = {
  ...taken,
  ifAvailable: mostly(fc.boolean()),
  reentrant: mostly(fc.boolean()),
  steal: mostly(fc.boolean()),
  wait: ms,
};

async function work(lock: unknown): Promise<void> {
  assert.ok(isLock(lock) && (lock.held || lock.signal.aborted));
  counts.locks += 1;
}

function isLock(value: unknown): value is Releasable {
  return typeof (value as Partial<Releasable> | null)?.release === 'function';
}

/** The numbers of refused calls and of granted locks: neither may be all calls. */
const counts = { refused: 0, locks: 0 };

/** A call is refused with a typed error and sends nothing, or it works; none hangs or crashes. */
async function check(what: () => Promise<unknown>): Promise<void> {
  const { requests } = locks.stats();
  let result: unknown;
  try {
    result = await what();
  } catch (error) {
    const { name: kind, code, message } = error as Error & { code?: unknown };
    // A lease of 50 ms may end while the other locks of its set are taken, as on a busy machine.
    if (kind === 'LockLostError') return;
    assert.match(String(kind), /^(TypeError|RangeError|NotSupportedError)$/, String(error));
    if (kind !== 'NotSupportedError') assert.match(String(code), CODES);
    assert.ok(message.length < 2_000, `a message of ${message.length} characters`);
    assert.equal(locks.stats().requests, requests, 'something was sent');
    counts.refused += 1;
    return;
  }
  if (!isLock(result)) return;
  counts.locks += 1;
  // It may be a share, or several locks; each is held until it is given back, or until a lease or maxHold of 50 ms is
  // over, as on a busy machine.
  assert.ok(result.held || result.signal.aborted);
  assert.ok((await result.release()) || result.signal.aborted);
  assert.equal(result.held, false);
}

function property(title: string, args: fc.Arbitrary<unknown[]>, method: keyof Loose): void {
  test(`${title} (seed ${SEED})`, async () => {
    Object.assign(counts, { refused: 0, locks: 0 });
    const loose = locks as unknown as Loose;
    const whatever = fc.asyncProperty(args, (given) => check(() => loose[method](...given)));
    await fc.assert(whatever, { seed: SEED, numRuns: RUNS });
    assert.ok(counts.refused > 0, 'no call was refused');
    if (GIVE_LOCKS.has(method)) assert.ok(counts.locks > 0, 'no call gave a lock');
    assert.equal(locks.stats().held, 0);
    assert.equal(openOperations(), 0);
  });
}

property('acquire: any name and any options', fc.tuple(name, acquireOptions), 'acquire');
property('tryAcquire: any name and any options', fc.tuple(name, tryOptions), 'tryAcquire');
property(
  'request: any name and any options',
  // The callback's lock is released only once the callback has ended, so the callback itself checks it.
  fc.tuple(name, record(requested), mostly(fc.constant(work))),
  'request',
);
property(
  'forceRelease: any name and any options',
  fc.tuple(
    oneName,
    record({ foreign: mostly(fc.boolean()), token: mostly(fc.oneof(text, fc.array(text))) }),
  ),
  'forceRelease',
);
property(
  'query: any options',
  fc.tuple(record({ count: mostly(fc.constantFrom(1, 100_000)), startsWith: mostly(text) })),
  'query',
);

test(`adopt: any lock and any options (seed ${SEED})`, async () => {
  const loose = locks as unknown as Loose;
  const lock = record({
    name: oneName,
    token: mostly(fc.constantFrom('hf1.a.1', 'hf1.a.1.label', 'hf1..', 'hf1.shared')),
    fence: mostly(fc.constantFrom(1, 2 ** 53 - 1)),
    mode: mostly(fc.constantFrom('exclusive', 'shared')),
  });
  const whatever = fc.asyncProperty(lock, record(held), async (given, options) => {
    const lost = (error: { code?: unknown }) => {
      // Nobody holds it: that is asked of the server.
      if (error.code !== 'ERR_LOCK_LOST') throw error;
    };
    await check(() => loose.adopt(given, options).catch(lost));
  });
  await fc.assert(whatever, { seed: SEED, numRuns: RUNS });
});

test(`connect: any options (seed ${SEED})`, async () => {
  const options = record({
    ...held,
    prefix: mostly(text),
    wait: ms,
    commandTimeout: ms,
    connectTimeout: ms,
    waitForServer: ms,
    clientName: mostly(fc.constantFrom('a', 'holdfast')),
    besideOldCode: mostly(record({ retryDelay: ms, retryJitter: ms })),
    username: odd,
    password: odd,
  });
  const open = connect as unknown as (...args: unknown[]) => Promise<LockManager>;
  const whatever = fc.asyncProperty(options, async (given) => {
    let manager: LockManager;
    try {
      manager = await open('memory:', given);
    } catch (error) {
      const { code } = error as { code?: unknown };
      assert.match(String(code), CODES, String(error));
      return;
    }
    const lock = await manager.acquire('a');
    assert.equal(await lock.release(), true);
    await manager.close();
  });
  await fc.assert(whatever, { seed: SEED, numRuns: RUNS / 3 });
});
