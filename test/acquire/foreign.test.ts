/** The lease of other code: how its end is told, by what the core says of it. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

interface Lease {
  readonly lease: number;
  readonly lasts: boolean;
  readonly since: number;
  readonly server: string;
  renew(): Promise<boolean>;
  onUnkept(tell: (reason: string) => void): void;
  lose(reason: number): () => void;
  standIn(): undefined;
  abandon(): () => void;
  end(): void;
}

interface Outcome {
  readonly code: number;
  readonly a: number;
  readonly b: number;
  readonly text: object | null;
}

// They are internal: they are reached by path, past the package's exports.
const { ForeignLease, records } = require('../../../dist/internals.js') as {
  ForeignLease: {
    begin(channel: Core, errors: object, lock: object): Promise<Lease>;
  };
  records: {
    readonly CLOSED_LOSS: number;
    readonly LossCode: Readonly<Record<string, number>>;
    readonly OutcomeCode: Readonly<Record<string, number>>;
  };
};

const codeOf = (name: string) => records.OutcomeCode[name] as number;
const lossOf = (name: string) => records.LossCode[name] as number;
const ERRORS = { server: 'redis://here', client: 'a' };
const LOCK = { key: 'bull:q:1:lock', value: 'v', ttl: 1_000, age: 0, stallTimeout: 500 };
const GRANT: Outcome = { code: codeOf('Acquired'), a: 512, b: 9, text: null };

/** What a channel answers to each operation, in order; and what it is told to watch and to forget. */
class Core {
  readonly watched: unknown[] = [];
  readonly forgotten: unknown[] = [];
  submitted = 0;
  constructor(readonly outcomes: Outcome[]) {}
  async submit(): Promise<Outcome> {
    this.submitted += 1;
    return this.outcomes.shift() as Outcome;
  }
  watch = (lease: unknown) => this.watched.push(lease);
  forget = (lease: unknown) => this.forgotten.push(lease);
}

const outcome = (name: string, text: object | null = null) => ({
  code: codeOf(name),
  a: 0,
  b: 0,
  text,
});

async function begin(
  ...outcomes: Outcome[]
): Promise<{ lease: Lease; core: Core; told: string[] }> {
  const core = new Core([GRANT, ...outcomes]);
  const lease = await ForeignLease.begin(core, ERRORS, LOCK);
  return { lease, core, told: [] };
}

test('a lease that begins is watched, and no other', async () => {
  const { lease, core } = await begin();
  assert.deepEqual(core.watched, [lease]);
  assert.deepEqual(
    [lease.lease, lease.lasts, lease.since, lease.server],
    [512, true, 0, 'redis://here'],
  );
  assert.equal(lease.standIn(), undefined);
  assert.equal(lease.abandon()(), undefined);
  const refused = new Core([outcome('Connection', { message: 'refused' })]);
  await assert.rejects(ForeignLease.begin(refused, ERRORS, LOCK), {
    code: 'ERR_LOCK_CONNECTION',
    message: /cannot keep lock "bull:q:1:lock" on redis:\/\/here: refused/,
  });
  assert.deepEqual(refused.watched, []);
});

test('a renewal tells whether the key has the value, or that this is unknown', async () => {
  const { lease } = await begin(
    outcome('Done'),
    outcome('Lost'),
    outcome('Connection', { message: 'reset' }),
  );
  assert.deepEqual([await lease.renew(), await lease.renew()], [true, false]);
  await assert.rejects(lease.renew(), { code: 'ERR_LOCK_CONNECTION', lock: LOCK.key });
});

for (const [what, loss, reason] of [
  ['the end of its manager', records.CLOSED_LOSS, 'closed'],
  ['a stall', lossOf('Stalled'), 'stalled'],
  ['the end of the lease', lossOf('Expired'), 'expired'],
] as const) {
  test(`${what} is told as ${reason}, to who asks before or after`, async () => {
    const { lease, told } = await begin();
    lease.onUnkept((each) => told.push(each));
    const tell = lease.lose(loss);
    assert.equal(told.length, 0, 'only once all losses of the turn are noted');
    tell();
    assert.deepEqual([...told], [reason]);
    const late = (await begin()).lease;
    late.lose(loss)();
    late.onUnkept((each) => told.push(`late ${each}`));
    assert.deepEqual([...told], [reason, `late ${reason}`]);
  });
}

test('that the key is gone is not told, nor that a lease has ended with its manager', async () => {
  const { lease, core, told } = await begin(outcome('Done'));
  lease.lose(lossOf('Ended'))();
  lease.onUnkept((each) => told.push(each));
  lease.end();
  lease.lose(records.CLOSED_LOSS)();
  assert.deepEqual([told, core.forgotten], [[], []]);
  await new Promise(setImmediate);
  assert.deepEqual([core.submitted, core.forgotten], [2, [lease]]);
  // A loss from before, while the event loop was blocked.
  const blocked = await begin(outcome('Done'));
  blocked.lease.onUnkept((each) => told.push(each));
  blocked.lease.end();
  blocked.lease.lose(lossOf('Stalled'))();
  assert.deepEqual(told, ['stalled']);
});
