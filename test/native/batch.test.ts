/** Batches of operations, and outcomes, as far as JavaScript alone decides about them. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

interface Outcome {
  readonly code: number;
  readonly a: number;
  readonly b: number;
  readonly text: object | null;
}

interface Batch {
  readonly numbers: Float64Array;
  readonly text: Buffer;
  readonly count: number;
  readonly isFull: boolean;
  addCancel(entry: number): void;
  flush(submit: (count: number, length: number, long?: Buffer) => boolean): readonly number[];
}

interface Records {
  readonly native: { readonly LEASE_ENDLESS: number };
  readonly OutcomeCode: Readonly<Record<string, number>>;
  readonly AcquireOperation: new (
    name: string,
    request: object,
  ) => { addTo(batch: Batch, entry: number): void };
  readonly OperationBatch: new () => Batch;
  hasText(code: number): boolean;
  isGrant(outcome: Outcome): boolean;
  leasesOf(tokenId: number): number[];
  readGrants(outcome: Outcome, count: number): { leases: number[]; fences: number[] | undefined };
  readTimeout(outcome: Outcome): Readonly<Record<string, unknown>>;
  readTtl(ttl: number): number | null;
  tokenIdOf(lease: number): number;
  withoutText(code: number, a: number, b: number): Outcome;
}

// They are internal: they are reached by path, past the package's exports.
const { records, native } = require('../../../dist/internals.js') as {
  records: Records;
  native: Records['native'];
};
const { AcquireOperation, OperationBatch, OutcomeCode } = records;
const codeOf = (name: string) => OutcomeCode[name] as number;

const HOLD = { ttl: 10_000, renew: true, maxHold: 1e9, stallTimeout: 30_000, linger: 0 };
const REQUEST = { ...HOLD, leaveToExpire: false, wait: 0, share: 0, label: 'label' };

/** What a batch would send; its text is copied. */
function sent(batch: Batch): { count: number; numbers: number[]; text: string } {
  let result = { count: 0, numbers: [] as number[], text: '' };
  batch.flush((count, length, long) => {
    const text = (long ?? batch.text).toString('utf8', 0, length);
    result = { count, numbers: [...batch.numbers], text };
    return true;
  });
  return result;
}

test('a batch writes a label anew that only the batch before had', () => {
  const batch = new OperationBatch();
  const add = (name: string) => new AcquireOperation(name, REQUEST).addTo(batch, 0);
  add('a');
  add('b');
  assert.equal(sent(batch).text, '1:a5:label1:b=');
  add('c');
  assert.equal(sent(batch).text, '1:c5:label');
});

test('a batch is empty after it was sent, and full with 256 operations', () => {
  const batch = new OperationBatch();
  for (let entry = 0; entry < 256; entry++) {
    assert.equal(batch.isFull, false);
    new AcquireOperation('x', REQUEST).addTo(batch, entry);
  }
  assert.equal(batch.isFull, true);
  assert.equal(sent(batch).count, 256);
  assert.deepEqual([batch.count, batch.isFull, sent(batch).text], [0, false, '']);
});

test('a batch has room for long names', () => {
  const batch = new OperationBatch();
  const name = '€'.repeat(300);
  for (let i = 0; i < 200; i++) new AcquireOperation(name, REQUEST).addTo(batch, i);
  assert.equal(sent(batch).text, `300:${name}5:label${`300:${name}=`.repeat(199)}`);
});

test('of a batch that could not be sent each operation has failed, and no cancelled one', () => {
  const batch = new OperationBatch();
  new AcquireOperation('x', REQUEST).addTo(batch, 3);
  batch.addCancel(9);
  new AcquireOperation('y', REQUEST).addTo(batch, 4);
  assert.deepEqual(
    batch.flush(() => false),
    [3, 4],
  );
  assert.equal(batch.count, 0);
});

test('a grant whose text could not be had is still one, to be given back', () => {
  for (const name of ['AcquiredAs', 'AcquiredAll']) {
    const outcome = records.withoutText(codeOf(name), 512, 9);
    assert.deepEqual(outcome, { code: codeOf(name), a: 512, b: 9, text: null });
    assert.equal(records.hasText(codeOf(name)), true);
  }
  assert.equal(records.withoutText(codeOf('TimedOut'), 1, 2).code, codeOf('Internal'));
  const lost = records.withoutText(codeOf('AcquiredAll'), 512, 9);
  assert.deepEqual(records.readGrants(lost, 2), { leases: [512, 768], fences: undefined });
  const grants = { code: codeOf('AcquiredAll'), a: 512, b: 0, text: { message: '7,8' } };
  assert.deepEqual(records.readGrants(grants, 2), { leases: [512, 768], fences: [7, 8] });
});

test('both kinds of grants of one lock are grants', () => {
  const kinds = Object.keys(OutcomeCode).filter((name) =>
    records.isGrant({ code: codeOf(name), a: 0, b: 0, text: null }),
  );
  assert.deepEqual(kinds.sort(), ['Acquired', 'AcquiredAs']);
});

test('a lease that never ends by itself has no rest', () => {
  const timeout = (b: number) =>
    records.readTimeout({ code: codeOf('TimedOut'), a: 5, b, text: null });
  assert.deepEqual([timeout(0)['remaining'], timeout(70)['remaining']], [0, 70]);
  assert.equal(timeout(native.LEASE_ENDLESS)['remaining'], undefined);
  assert.deepEqual([records.readTtl(0), records.readTtl(native.LEASE_ENDLESS)], [0, null]);
});

test('the leases of a token are those that it is the token of', () => {
  const leases = records.leasesOf(7);
  assert.equal(leases.length, 256);
  assert.ok(leases.every((lease) => records.tokenIdOf(lease) === 7));
  assert.equal(records.tokenIdOf(7 * 256 - 1), 6);
  assert.equal(records.tokenIdOf(8 * 256), 8);
});
