/** Names that are made of others: no two pairs have the same. */

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';

interface Internals {
  joinNames(first: string, last: string, separator: string): string;
  leaderLockOf(name: string): string;
  markOf(job: string, slot: string): string;
  checkJob(key: string): void;
}

const { checkJob, joinNames, leaderLockOf, markOf } =
  require('../../../dist/internals.js') as Internals;

/** Short names of the characters that matter: most pairs of them would meet if they were joined carelessly. */
const tricky = (more: string) =>
  fc.string({ unit: fc.constantFrom(...'ab@:%2403ACé', ...more), maxLength: 5 });

describe('names that are joined', () => {
  test('are of one pair alone', () => {
    for (const separator of ['@', ':']) {
      const pair = fc.tuple(tricky(''), tricky(''));
      fc.assert(
        fc.property(pair, pair, ([a, b], [c, d]) => {
          const meet = joinNames(a, b, separator) === joinNames(c, d, separator);
          assert.equal(meet, a === c && b === d);
        }),
        {
          numRuns: 20_000,
          examples: [
            [
              ['a', 'b@c'],
              ['a@b', 'c'],
            ],
            [
              ['a:', 'b'],
              ['a', ':b'],
            ],
            [
              ['a%40b', 'c'],
              ['a@b', 'c'],
            ],
          ],
        },
      );
    }
  });

  test('tell which two they were', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'binary', maxLength: 20 }),
        fc.string({ unit: 'binary', maxLength: 20 }),
        (a, b) => {
          const joined = joinNames(a, b, '@');
          const at = joined.indexOf('@');
          const read = joined
            .slice(0, at)
            .replace(/%(..)/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
          assert.deepEqual([read, joined.slice(at + 1)], [a, b]);
        },
      ),
    );
  });

  test('stay readable', () => {
    assert.equal(joinNames('report', '2026-01-31', '@'), 'report@2026-01-31');
    assert.equal(joinNames('to:{42}', 'a@b', '@'), 'to:{42}@a@b');
    assert.equal(joinNames('me@example.com', '5%', '@'), 'me%40example.com@5%');
  });
});

test('no two leaders campaign for one lock', () => {
  fc.assert(
    fc.property(tricky('leadr'), tricky('leadr'), (a, b) => {
      assert.equal(leaderLockOf(a) === leaderLockOf(b), a === b);
    }),
    { examples: [['x', 'leader:x']] },
  );
});

test('no two slots have one mark, and no mark is the lock of a job or a leader', () => {
  const [name, slot] = [tricky('once:'), tricky('once:')];
  fc.assert(
    fc.property(name, slot, name, slot, (job, one, other, another) => {
      const mark = markOf(job, one);
      assert.equal(mark === markOf(other, another), job === other && one === another);
      assert.notEqual(mark, leaderLockOf(other));
      assert.throws(() => checkJob(mark), { code: 'ERR_INVALID_ARG_VALUE' });
    }),
    { numRuns: 5_000, examples: [['a', 'b@c', 'a@b', 'c']] },
  );
  for (const job of ['report', 'me@example.com', 'once:a', 'at:once:a@b']) checkJob(job);
});
