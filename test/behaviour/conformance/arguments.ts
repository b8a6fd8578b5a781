/** Wrong arguments: refused before anything is sent, on every target. */

import assert from 'node:assert/strict';
import type { LockManager } from '../../support/holdfast.js';
import { type Behaviours, openSeveral } from './behaviour.js';

const TYPE = 'ERR_INVALID_ARG_TYPE';
const VALUE = 'ERR_INVALID_ARG_VALUE';
const RANGE = 'ERR_OUT_OF_RANGE';

type Refused = readonly [code: string, args: readonly unknown[]];

const NAMES: readonly Refused[] = [
  [TYPE, []],
  [TYPE, [42]],
  [VALUE, ['']],
  [VALUE, ['a\ud800']],
  [VALUE, ['a:fence']],
  [VALUE, ['a:queue']],
  [VALUE, ['a:shared']],
  [VALUE, ['a:waiters']],
  [RANGE, ['x'.repeat(1_025)]],
];

const OPTIONS: readonly Refused[] = [
  [TYPE, ['a', null]],
  [TYPE, ['a', { tttl: 5 }]],
  [VALUE, ['a', { ttl: '5' }]],
  [RANGE, ['a', { ttl: 49 }]],
  [RANGE, ['a', { ttl: 9_000_000_000_000_001 }]],
  [RANGE, ['a', { ttl: 50.5 }]],
  [TYPE, ['a', { renew: 1 }]],
  [RANGE, ['a', { maxHold: 49 }]],
  [RANGE, ['a', { stallTimeout: 0 }]],
  [TYPE, ['a', { label: 5 }]],
  [VALUE, ['a', { label: 'a\ud800' }]],
  [VALUE, ['a', { mode: 'read' }]],
  [VALUE, ['a', { mode: null }]],
  [VALUE, ['a', { limit: 2 }]],
  [RANGE, ['a', { mode: 'shared', limit: 0 }]],
  [RANGE, ['a', { mode: 'shared', limit: 1.5 }]],
  [TYPE, ['a', { mode: 'shared', limit: '2' }]],
  [VALUE, ['a', { mode: 'shared', permits: 2 }]],
  [VALUE, ['a', { permits: 1 }]],
  [RANGE, ['a', { mode: 'shared', limit: 2, permits: 3 }]],
  [RANGE, ['a', { mode: 'shared', limit: 2, permits: 0 }]],
  [RANGE, ['a', { mode: 'shared', limit: 2, permits: 1.5 }]],
  [TYPE, ['a', { mode: 'shared', limit: 2, permits: '1' }]],
];

const WAITS: readonly Refused[] = [
  [RANGE, ['a', { wait: -1 }]],
  [TYPE, ['a', { wait: null }]],
  [TYPE, ['a', { signal: 'stop' }]],
  [TYPE, ['a', { steal: 1 }]],
];

const NEVER_ABORTED = new AbortController().signal;

/** Options of `acquire` that exclude each other. */
const CONTRADICTIONS: readonly Refused[] = [
  [VALUE, ['a', { steal: true, mode: 'shared' }]],
  [VALUE, ['a', { steal: true, signal: NEVER_ABORTED }]],
  [VALUE, ['a', { steal: true, wait: 5 }]],
];

const REQUESTS: readonly Refused[] = [
  [TYPE, ['a', { ifAvailable: 1 }]],
  [TYPE, ['a', { reentrant: 'yes' }]],
];

/** Options that Web Locks do not support either, or would not. */
const NOT_SUPPORTED: readonly (readonly [name: string, options: object])[] = [
  ['-a', {}],
  ['a', { steal: true, ifAvailable: true }],
  ['a', { steal: true, mode: 'shared' }],
  ['a', { steal: true, signal: NEVER_ABORTED }],
  ['a', { ifAvailable: true, signal: NEVER_ABORTED }],
  ['a', { ifAvailable: true, wait: 5 }],
  ['a', { steal: true, wait: 5 }],
];

const CALLBACKS: readonly Refused[] = [
  [TYPE, ['a']],
  [TYPE, ['a', {}, 5]],
];

async function refuses(
  locks: LockManager,
  method: 'acquire' | 'tryAcquire' | 'request',
  cases: readonly Refused[],
): Promise<void> {
  const call = locks[method].bind(locks) as unknown as (...args: unknown[]) => Promise<unknown>;
  const callback = method === 'request' ? [() => assert.fail('it was refused')] : [];
  for (const [code, args] of cases) {
    const padded = cases === CALLBACKS ? args : [args[0], args[1] ?? undefined, ...callback];
    const given = args[1] === null ? [args[0], null, ...callback] : padded;
    await assert.rejects(call(...given), { code }, `${method} ${JSON.stringify(args)}`);
  }
}

export const ARGUMENTS: Behaviours = {
  'arguments: acquire, tryAcquire and request refuse wrong ones, and send nothing': async (
    place,
  ) => {
    const locks = await place.open();
    const { requests } = locks.stats();
    await refuses(locks, 'acquire', [...NAMES, ...OPTIONS, ...WAITS, ...CONTRADICTIONS]);
    await refuses(locks, 'tryAcquire', [...NAMES, ...OPTIONS]);
    await refuses(locks, 'request', [...NAMES, ...OPTIONS, ...WAITS, ...REQUESTS]);
    await refuses(locks, 'request', CALLBACKS);
    for (const [name, options] of NOT_SUPPORTED) {
      const refused = locks.request(name, options, () => assert.fail('it was refused'));
      await assert.rejects(refused, { name: 'NotSupportedError' });
    }
    for (const options of [{ wait: 5 }, { steal: true }, { ifAvailable: true }]) {
      await assert.rejects(locks.tryAcquire('a', options as never), { code: TYPE });
    }
    assert.equal(locks.stats().requests, requests);
  },

  'arguments: adopt, forceRelease and query refuse wrong ones, and send nothing': async (place) => {
    const locks = await place.open();
    const { requests } = locks.stats();
    const token = `hf1.${locks.clientId}.1`;
    for (const [code, lock, options] of [
      [TYPE, undefined],
      [TYPE, 'x'],
      [TYPE, { token }],
      [TYPE, { name: 'x' }],
      [VALUE, { name: 'x', token: 'somebody' }],
      [TYPE, { name: 'x', token, fence: '1' }],
      [RANGE, { name: 'x', token, fence: 0 }],
      [VALUE, { name: 'x', token, mode: 'read' }],
      [TYPE, [{ name: 'x', token }]],
      [TYPE, { name: 'x', token }, { wait: 5 }],
      [RANGE, { name: 'x', token }, { ttl: 49 }],
    ] as const) {
      await assert.rejects(locks.adopt(lock as never, options as never), { code });
    }
    for (const [code, name, options] of [
      [TYPE, ['a']],
      [VALUE, ''],
      [TYPE, 'x', { foreign: 'yes' }],
      [TYPE, 'x', { force: true }],
      [TYPE, 'x', { token: 7 }],
      [TYPE, 'x', { token: ['a', null] }],
      [RANGE, 'x', { token: [] }],
      // An owner's lock has a call of its own, which the message names.
      [VALUE, 'x', { owner: 'checkout-7' }],
    ] as const) {
      await assert.rejects(locks.forceRelease(name as never, options as never), { code });
    }
    for (const [code, options] of [
      [TYPE, { prefix: 'x' }],
      [TYPE, { startsWith: 5 }],
      [RANGE, { count: 0 }],
      [RANGE, { count: 100_001 }],
    ] as const) {
      await assert.rejects(locks.query(options as never), { code });
    }
    assert.equal(locks.stats().requests, requests);
  },

  'arguments: extend refuses wrong ones, and the lock stays as it is': async (place) => {
    const [a, b] = await openSeveral(place, 'a', 'b');
    const lock = await a.acquire('x', { ttl: 60_000, renew: false });
    for (const [code, ttl] of [
      [RANGE, 49],
      [RANGE, 9_000_000_000_000_001],
      [RANGE, Number.NaN],
      [VALUE, '5'],
    ] as const) {
      await assert.rejects(lock.extend(ttl as never), { code });
    }
    assert.equal(lock.held, true);
    assert.equal(await b.tryAcquire('x'), null);
  },

  'arguments: connect refuses wrong options': async (place) => {
    for (const [code, options] of [
      [TYPE, { tttl: 5 }],
      [TYPE, { prefix: 5 }],
      [RANGE, { ttl: 49 }],
      [RANGE, { wait: -1 }],
      [RANGE, { commandTimeout: 0 }],
      [VALUE, { clientName: 'a b' }],
    ] as const) {
      await assert.rejects(place.open(options as never), { code }, JSON.stringify(options));
    }
  },
};
