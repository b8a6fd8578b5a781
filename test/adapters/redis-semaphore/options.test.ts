/** What the options of a lock mean, and the value in Redis that stands for its identifier. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

interface Internals {
  checkOptions(options?: object): Readonly<Record<string, unknown>>;
  tokenFor(identifier: string, share: { limit?: number; permits?: number }): string;
}

// They are internal: they are reached by path, past the package's exports.
const { checkOptions, tokenFor } = require('../../../../dist/internals.js') as Internals;

const DEFAULTS = {
  lockTimeout: 10_000,
  wait: 10_000,
  tries: true,
  renew: true,
  identifier: undefined,
  identifierSuffix: '',
  acquiredExternally: false,
  retries: { interval: 10, wait: 10_000, limit: Number.POSITIVE_INFINITY },
  besideOldCode: false,
  refreshInterval: 8_000,
};
const { retries } = DEFAULTS;

for (const [given, expected] of [
  [undefined, {}],
  [{}, {}],
  [{ lockTimeout: 1_000 }, { lockTimeout: 1_000, refreshInterval: 800 }],
  [{ lockTimeout: '1001' }, { lockTimeout: 1_001, refreshInterval: 801 }],
  [{ refreshInterval: 0 }, { refreshInterval: 0, renew: false }],
  [{ refreshInterval: 1 }, { refreshInterval: 1 }],
  [{ refreshInterval: -1 }, { refreshInterval: -1, renew: false }],
  // The first attempt waits for nothing, and each further one for an interval.
  [{ acquireAttemptsLimit: 1 }, { wait: null, retries: { ...retries, limit: 1 } }],
  [{ acquireAttemptsLimit: 2 }, { wait: 10, retries: { ...retries, limit: 2 } }],
  [{ acquireAttemptsLimit: 4 }, { wait: 30, retries: { ...retries, limit: 4 } }],
  [{ acquireAttemptsLimit: 0 }, { wait: null, tries: false, retries: { ...retries, limit: 0 } }],
  [
    { acquireAttemptsLimit: 3, retryInterval: 7.2 },
    { wait: 15, retries: { ...retries, limit: 3, interval: 7.2 } },
  ],
  [
    { acquireAttemptsLimit: 3, acquireTimeout: 5 },
    { wait: 5, retries: { ...retries, limit: 3, wait: 5 } },
  ],
  [{ acquireTimeout: 0 }, { wait: null, tries: false, retries: { ...retries, wait: 0 } }],
  [{ acquireTimeout: 0.5 }, { wait: 1, retries: { ...retries, wait: 0.5 } }],
  [
    { acquireAttemptsLimit: 2, retryInterval: 0 },
    { wait: null, retries: { ...retries, limit: 2, interval: 0 } },
  ],
  [{ identifier: 'job' }, { identifier: 'job' }],
  [
    { identifier: 'job', acquiredExternally: true },
    { identifier: 'job', acquiredExternally: true },
  ],
  [{ externallyAcquiredIdentifier: 'job' }, { identifier: 'job', acquiredExternally: true }],
  [{ identifierSuffix: 'host' }, { identifierSuffix: 'host' }],
  [{ besideOldCode: true }, { besideOldCode: true }],
  [{ besideOldCode: 1 }, {}],
] as const) {
  test(`options ${JSON.stringify(given)}`, () => {
    assert.deepEqual(checkOptions(given), { ...DEFAULTS, ...expected });
  });
}

const NUMBERS = [
  'acquireAttemptsLimit',
  'acquireTimeout',
  'lockTimeout',
  'retryInterval',
  'refreshInterval',
];

for (const name of NUMBERS) {
  test(`${name} must be a number`, () => {
    for (const value of [Number.NaN, 'long', null, {}]) {
      const message = new RegExp(`^"${name}" must be a number, got `);
      assert.throws(() => checkOptions({ [name]: value }), {
        code: 'ERR_INVALID_ARG_TYPE',
        message,
      });
    }
  });
}

test('an identifier must be a text, and a lock that is to be taken over needs one', () => {
  for (const options of [
    { identifier: '' },
    { identifier: 7 },
    { acquiredExternally: true },
    { externallyAcquiredIdentifier: 'job', identifier: 'job' },
    { externallyAcquiredIdentifier: 'job', acquiredExternally: true },
  ]) {
    assert.throws(() => checkOptions(options), { name: 'Error' });
  }
});

test('a mutex has its identifier in Redis, and a permit a token of its own', () => {
  const mutex = {};
  assert.equal(tokenFor('job 7', mutex), 'job 7');
  const token = tokenFor('job 7', { limit: 3 });
  assert.match(token, /^hf1\./);
  assert.equal(tokenFor('job 7', { limit: 3, permits: 1 }), token);
  assert.notEqual(tokenFor('job 8', { limit: 3 }), token);
  const several = tokenFor('job 7', { limit: 3, permits: 2 });
  assert.notEqual(several, token);
  assert.notEqual(tokenFor('job 7', { limit: 4, permits: 2 }), several, 'it tells the limit');
  // A token of a manager stands for itself, but for one with more behind it.
  assert.equal(tokenFor(token, { limit: 3 }), token);
  assert.equal(tokenFor(token, mutex), token);
  assert.equal(tokenFor(several, { limit: 3 }), several);
  assert.match(tokenFor(`${token} done`, mutex), /^hf1\.[\w-]+\.\d+$/);
  assert.match(tokenFor('hf1.', mutex), /^hf1\../, 'what only looks like one does not');
  assert.notEqual(tokenFor('hf1.', mutex), 'hf1.');
});
