/** The names of the locks of jobs: each belongs to one queue and one key, and is one that a lock may have. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { connect, type LockManager } from '../../support/holdfast.js';

const { lockName, RESERVED_SUFFIXES } = require('../../../../dist/internals.js') as {
  lockName(queue: string, key: string): string;
  RESERVED_SUFFIXES: ReadonlySet<string>;
};

let locks: LockManager;

before(async () => {
  locks = await connect('memory:');
});

after(async () => {
  await locks?.close();
});

/** Most pairs of these would meet if they were joined carelessly. */
const part = fc
  .array(fc.constantFrom('a', 'b', ':', '%', '3A', '25', 'queue', 'é', ...RESERVED_SUFFIXES), {
    maxLength: 4,
  })
  .map((parts) => parts.join(''));
const pair = fc.tuple(part, part);

test('no two pairs of a queue and a key have one name', () => {
  fc.assert(
    fc.property(pair, pair, ([queue, key], [other, another]) => {
      const meet = lockName(queue, key) === lockName(other, another);
      assert.equal(meet, queue === other && key === another);
    }),
    {
      numRuns: 20_000,
      examples: [
        [
          ['a', 'b:c'],
          ['a:b', 'c'],
        ],
        [
          ['a', 'queue'],
          ['a', 'queue%'],
        ],
        [
          ['a', 'queue%'],
          ['a', 'queue%%'],
        ],
      ],
    },
  );
});

test('each name is one that a lock may have', async () => {
  await fc.assert(
    fc.asyncProperty(part, part, async (queue, key) => {
      await locks.request(lockName(queue, key), () => {});
    }),
    { examples: [...RESERVED_SUFFIXES].map((end) => ['a', end.slice(1)]) },
  );
});

test('an ordinary name is the queue and the key, with a colon between', () => {
  assert.equal(lockName('invoices', 'ada'), 'invoices:ada');
  assert.equal(lockName('invoices', 'eu:ada'), 'invoices:eu:ada');
  assert.equal(lockName('invoices', '100%'), 'invoices:100%');
});
