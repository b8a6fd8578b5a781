/**
 * Both sides of the boundary agree on its records. The addon with the feature `faults` says what it reads in the
 * operations that JavaScript writes, and writes a record of every kind for JavaScript to read.
 */

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { buildFaultyAddon } from '../support/faulty-addon.js';

type Text = Readonly<Record<string, unknown>> | null;

interface Outcome {
  readonly code: number;
  readonly a: number;
  readonly b: number;
  readonly text: Text;
}

interface Batch {
  readonly numbers: Float64Array;
  readonly text: Buffer;
  readonly isFull: boolean;
  addCancel(slot: number): void;
  flush(submit: (count: number, length: number, long?: Buffer) => boolean): readonly number[];
}

interface Operation {
  addTo(batch: Batch, slot: number): void;
}

/** The exports of `js/native/records.ts` for the rest of `js`. */
interface Records {
  readonly LossCode: Readonly<Record<string, number>>;
  readonly NoticeCode: Readonly<Record<string, number>>;
  readonly OutcomeCode: Readonly<Record<string, number>>;
  readonly RECORD_LENGTH: number;
  readonly SHARE_EXCLUSIVE: number;
  readonly SHARE_UNLIMITED: number;
  readonly WAIT_NEVER: number;
  readonly WAIT_STEAL: number;
  readonly AcquireOperation: new (name: string, request: object) => Operation;
  readonly OperationBatch: new () => Batch;
  acquireAllOperation(names: readonly string[], request: object): Operation;
  adoptOperation(name: string, token: string, request: object): Operation;
  closeOperation(): Operation;
  downgradeOperation(lease: number): Operation;
  extendOperation(lease: number, ttl?: number): Operation;
  forceReleaseOperation(name: string, foreign: boolean, owners: readonly string[]): Operation;
  expireInOperation(lease: number, ttl: number): Operation;
  stopRenewingOperation(lease: number): Operation;
  queryOperation(cursor: string, numbers: object): Operation;
  releaseOperation(lease: number, exported: boolean): Operation;
  readRecord(records: Float64Array, at: number, reader: object): void;
  hasText(code: number): boolean;
  isGrant(outcome: Outcome): boolean;
  readGrant(outcome: Outcome): object;
  readGrants(outcome: Outcome, count: number): object;
  readTimeout(outcome: Outcome): object;
  readCauses(outcome: Outcome): string[];
  readTtl(ttl: number): number | null;
}

interface Sample {
  readonly meaning: string;
  readonly record: number[];
  readonly text?: Text;
  readonly notice?: string;
}

interface Addon {
  describeOperations(count: number, numbers: Float64Array, text: Buffer, length: number): string[];
  sampleRecords(): Sample[];
}

const HOLD = {
  renew: true,
  leaveToExpire: false,
  maxHold: 3_000,
  stallTimeout: 4_000,
  linger: 500,
};
const HELD =
  'HoldTerms { renew: true, leave_to_expire: false, max_hold: Some(3s), stall_timeout: 4s, linger: 500ms }';
const LEFT = { renew: false, leaveToExpire: true };
const HELD_LEFT = HELD.replace(
  'renew: true, leave_to_expire: false',
  'renew: false, leave_to_expire: true',
);

let records: Records;
let addon: Addon;

before(
  () => {
    process.env['NAPI_RS_NATIVE_LIBRARY_PATH'] = buildFaultyAddon();
    ({ records, native: addon } = require('../../../dist/internals.js') as {
      records: Records;
      native: Addon;
    });
  },
  { timeout: 280_000 },
);

/** The operations as the core reads them, each with an entry of its own. */
function described(...operations: Operation[]): string[] {
  const batch = new records.OperationBatch();
  for (const [i, operation] of operations.entries()) operation.addTo(batch, 10 + i);
  let lines: string[] = [];
  batch.flush((count, length, long) => {
    lines = addon.describeOperations(count, batch.numbers, long ?? batch.text, length);
    return true;
  });
  return lines;
}

test('the core reads the operations that JavaScript writes', () => {
  const { SHARE_EXCLUSIVE, SHARE_UNLIMITED } = records;
  const request = {
    ...HOLD,
    ttl: 1_000,
    wait: 2_000,
    share: SHARE_EXCLUSIVE,
    permits: 1,
    label: 'label',
  };
  const lines = described(
    new records.AcquireOperation('name', request),
    records.acquireAllOperation(['a', 'b'], { ...request, ...LEFT }),
    records.adoptOperation('name', 'token', { ...request, share: SHARE_UNLIMITED }),
    records.adoptOperation('name', 'token', { ...request, ...LEFT, label: '' }),
    records.closeOperation(),
    records.downgradeOperation(160),
    records.extendOperation(160),
    records.extendOperation(160, 1_000),
    records.forceReleaseOperation('name', false, []),
    records.forceReleaseOperation('name', true, ['token', 'other']),
    records.expireInOperation(160, 1_000),
    records.stopRenewingOperation(160),
    records.queryOperation('cursor', { keysStartWith: 'keys', wholeKey: false, count: 500 }),
    records.queryOperation('', { keysStartWith: 'key', wholeKey: true, count: 1 }),
    records.releaseOperation(160, false),
    records.releaseOperation(160, true),
    records.adoptOperation('name', 'token', { ...request, label: 'value', labelKind: 1 }),
    records.adoptOperation('name', 'token', { ...request, label: 'value', labelKind: 2 }),
  );
  assert.deepEqual(lines, [
    `10 Acquire { name: "name", ttl: 1s, wait: UpTo(2s), label: "label", hold: ${HELD}, mode: Exclusive }`,
    `11 AcquireAll { names: ["a", "b"], ttl: 1s, label: "label", hold: ${HELD_LEFT} }`,
    `12 Adopt { name: "name", owner: "token", label: Text("label"), ttl: 1s, hold: ${HELD}, mode: Shared { limit: None, permits: 1 } }`,
    `13 Adopt { name: "name", owner: "token", label: Text(""), ttl: 1s, hold: ${HELD_LEFT}, mode: Exclusive }`,
    '14 Close',
    '15 Downgrade { lease: LeaseId(160) }',
    '16 Extend { lease: LeaseId(160), ttl: None }',
    '17 Extend { lease: LeaseId(160), ttl: Some(1s) }',
    '18 Force { name: "name", foreign: false, owners: [] }',
    '19 Force { name: "name", foreign: true, owners: ["token", "other"] }',
    '20 ExpireIn { lease: LeaseId(160), ttl: 1s }',
    '21 StopRenewing { lease: LeaseId(160) }',
    '22 Question { cursor: "cursor", starts_with: "keys", whole_key: false, count: 500 }',
    '23 Question { cursor: "", starts_with: "key", whole_key: true, count: 1 }',
    '24 Release { lease: LeaseId(160), exported: false }',
    '25 Release { lease: LeaseId(160), exported: true }',
    `26 Adopt { name: "name", owner: "token", label: Chosen("value"), ttl: 1s, hold: ${HELD}, mode: Exclusive }`,
    `27 Adopt { name: "name", owner: "token", label: Made("value"), ttl: 1s, hold: ${HELD}, mode: Exclusive }`,
  ]);
});

test('the core reads every sentinel of an acquire', () => {
  const { SHARE_EXCLUSIVE, SHARE_UNLIMITED, WAIT_NEVER, WAIT_STEAL } = records;
  const request = { ...HOLD, ttl: 1_000, wait: 2_000, share: SHARE_EXCLUSIVE, label: '' };
  const cases: readonly [object, RegExp][] = [
    [{ wait: 0 }, /wait: UpTo\(0ns\)/],
    [{ wait: Number.POSITIVE_INFINITY }, /wait: Forever/],
    [{ wait: WAIT_NEVER }, /wait: Never/],
    [{ wait: WAIT_STEAL }, /wait: Steal/],
    [{ share: SHARE_EXCLUSIVE }, /mode: Exclusive/],
    [{ share: SHARE_UNLIMITED }, /mode: Shared \{ limit: None, permits: 1 \}/],
    [{ share: 3 }, /mode: Shared \{ limit: Some\(3\), permits: 1 \}/],
    [{ share: 3, permits: 2 }, /mode: Shared \{ limit: Some\(3\), permits: 2 \}/],
    [
      { share: 2 ** 40, permits: 2 ** 39 },
      /limit: Some\(1099511627776\), permits: 549755813888 \}/,
    ],
    [{ maxHold: Number.POSITIVE_INFINITY }, /max_hold: None/],
    [
      { stallTimeout: Number.POSITIVE_INFINITY },
      /renew: true, .*stall_timeout: 9007199254740.991s/,
    ],
    [{ renew: false }, /renew: false, leave_to_expire: false, .*stall_timeout: 4s/],
    [{ renew: false, leaveToExpire: true }, /renew: false, leave_to_expire: true, .*: 4s/],
  ];
  const lines = described(
    ...cases.map(([given]) => new records.AcquireOperation('name', { ...request, ...given })),
  );
  for (const [i, [, expected]] of cases.entries()) assert.match(lines[i] ?? '', expected);
});

test('the core reads any text', () => {
  const { SHARE_EXCLUSIVE } = records;
  const texts = ['7:', '', '12', 'ä:€', '🔒🔓', 'e\u0301', '\0\n', 'x'.repeat(1_024)];
  const request = { ...HOLD, ttl: 1_000, wait: 0, share: SHARE_EXCLUSIVE };
  const lines = described(
    ...texts.map((text, i) => {
      const label = texts[texts.length - 1 - i] as string;
      return new records.AcquireOperation(text, { ...request, label });
    }),
    records.acquireAllOperation(texts, { ...request, label: '🔒' }),
  );
  const [last] = lines.slice(-1);
  // As Rust prints them.
  const shown = ['7:', '', '12', 'ä:€', '🔒🔓', 'e\\u{301}', '\\0\\n', 'x'.repeat(1_024)];
  for (const [i, text] of shown.entries()) {
    const label = shown[texts.length - 1 - i];
    assert.equal(lines[i]?.includes(`name: "${text}",`), true, lines[i]);
    assert.equal(lines[i]?.includes(`label: "${label}",`), true, lines[i]);
  }
  assert.equal(
    last?.includes(`names: [${shown.map((text) => `"${text}"`).join(', ')}]`),
    true,
    last,
  );
});

test('a label is written once for acquires that follow each other', () => {
  const request = { ...HOLD, ttl: 1_000, wait: 0, share: records.SHARE_EXCLUSIVE };
  const labels = ['=', '=', '1:=', '', '', 'a', '='];
  const batch = new records.OperationBatch();
  for (const round of [0, 1]) {
    for (const [slot, label] of labels.entries()) {
      new records.AcquireOperation('=', { ...request, label }).addTo(batch, 2 * slot);
      records.releaseOperation(160, false).addTo(batch, 2 * slot + 1);
    }
    batch.flush((count, length, long) => {
      const lines = addon.describeOperations(count, batch.numbers, long ?? batch.text, length);
      const read = lines.map((line) => /label: "([^"]*)"/.exec(line)?.[1]);
      assert.deepEqual(
        read.filter((label) => label !== undefined),
        labels,
        `round ${round}`,
      );
      return true;
    });
  }
});

test('a batch tells when it is full, and names the operations that could not be submitted', () => {
  const batch = new records.OperationBatch();
  for (let slot = 0; slot < 255; slot++) records.downgradeOperation(slot * 16).addTo(batch, slot);
  assert.equal(batch.isFull, false);
  batch.addCancel(7);
  assert.equal(batch.isFull, true);
  let lines: string[] = [];
  const failed = batch.flush((count, length, long) => {
    lines = addon.describeOperations(count, batch.numbers, long ?? batch.text, length);
    return false;
  });
  assert.equal(batch.isFull, false);
  assert.equal(lines.length, 256);
  assert.equal(lines[254], '254 Downgrade { lease: LeaseId(4064) }');
  assert.equal(lines[255], '7 Cancel');
  assert.deepEqual(
    failed,
    Array.from({ length: 255 }, (_, slot) => slot),
  );
});

test('JavaScript reads a record of every outcome', () => {
  const { OutcomeCode, hasText } = records;
  const seen = new Set<number>();
  for (const { meaning, record, text = null } of samples((kind) => kind >= 0)) {
    const told: unknown[][] = [];
    const settle = (...numbers: number[]) => told.push(numbers);
    records.readRecord(Float64Array.from(record), 0, { settle });
    assert.deepEqual(told, [record], meaning);
    const [, code = -1, a = 0, b = 0] = record;
    seen.add(code);
    assert.equal(hasText(code), text !== null, meaning);
    assert.deepEqual(readOutcome({ code, a, b, text }), OUTCOMES[nameOf(meaning)], meaning);
  }
  const codes = Object.values(OutcomeCode).filter((code) => typeof code === 'number');
  assert.deepEqual([...seen].sort(byNumber), codes.sort(byNumber), 'there is a sample of each');
});

test('JavaScript reads a record of every loss, of every notice and of a heartbeat', () => {
  const told: unknown[][] = [];
  const lose = (...numbers: number[]) => told.push(['lose', ...numbers]);
  const notify = (...numbers: number[]) => told.push(['notify', ...numbers]);
  for (const { record } of samples((kind) => kind < 0)) {
    records.readRecord(Float64Array.from(record), 0, { lose, notify });
  }
  const { LossCode, NoticeCode } = records;
  const losses = ['Adopted', 'Ended', 'Expired', 'MaxHold', 'Stalled', 'Stolen'];
  const notices = ['PubsubDenied', 'PlainCommandsDenied', 'ClockDenied', 'Disconnected'];
  notices.push(
    'LoginRefused',
    'LoginNotRenewed',
    'Reconnected',
    'SameServer',
    'ActiveReplica',
    'Eviction',
    'Forgets',
    'Replica',
  );
  assert.deepEqual(told, [
    ...losses.map((name) => ['lose', 3, 160, LossCode[name]]),
    ...notices.map((name) => ['notify', 3, NoticeCode[name]]),
  ]);
});

/** The samples whose first number is as `wanted` says: a slot, or a kind below zero. */
function samples(wanted: (first: number) => boolean): Sample[] {
  const all = addon.sampleRecords();
  assert.ok(all.every(({ record }) => record.length === records.RECORD_LENGTH));
  return all.filter(({ record }) => wanted(record[0] as number));
}

/** The key of a sample in `OUTCOMES`. Rust prints an outcome as its name and its fields. */
function nameOf(meaning: string): string {
  const [name = ''] = meaning.split(/[ ({]/, 1);
  if (name === 'Acquired') return meaning.includes('Some') ? 'AcquiredAs' : name;
  if (name === 'TimedOut') return meaning.includes('remaining: None') ? 'TimedOutEndless' : name;
  return name;
}

/** The fields of an outcome as the functions of `records` read them, if it has more than its code. */
function readOutcome(outcome: Outcome): unknown {
  const { OutcomeCode } = records;
  const { code, text } = outcome;
  if (records.isGrant(outcome)) return records.readGrant(outcome);
  if (code === OutcomeCode['AcquiredAll']) return records.readGrants(outcome, 2);
  if (code === OutcomeCode['TimedOut']) return records.readTimeout(outcome);
  if (code === OutcomeCode['Quorum']) return records.readCauses(outcome);
  if (code === OutcomeCode['Page']) assert.equal(records.readTtl(PAGE.held[0]?.ttl ?? 0), null);
  return text ?? undefined;
}

function byNumber(a: number, b: number): number {
  return a - b;
}

const NO_TEXT = { message: '' };
const PAGE = {
  cursor: 'cursor',
  held: [{ key: 'key', shared: true, token: 'token', fence: 42, ttl: -1, idle: 5 }],
  pending: [{ key: 'key', shared: false, token: 'token', position: 2, waited: 7 }],
};
const SURVEY = {
  server: 'server',
  roundTrips: [5],
  ahead: -6,
  answers: [{ text: 'text', refused: true }],
};

/** The expected fields of each sample. */
const OUTCOMES: Readonly<Record<string, unknown>> = {
  Acquired: { lease: 160, fence: 42, label: undefined },
  AcquiredAs: { lease: 160, fence: 42, label: 'text' },
  AcquiredAll: { leases: [160, 416], fences: [42, 43] },
  Connection: { message: 'text' },
  Page: { ...NO_TEXT, page: PAGE },
  Quorum: ['text', ''],
  Server: { message: 'text', serverCode: 'CODE', key: 'key' },
  Surveyed: { ...NO_TEXT, surveys: [SURVEY] },
  TimedOut: { waited: 2_000, remaining: 3_000, holder: 'holder', holders: 2, position: 4 },
  TimedOutEndless: {
    waited: 2_000,
    remaining: undefined,
    holder: '',
    holders: 0,
    position: undefined,
  },
};
