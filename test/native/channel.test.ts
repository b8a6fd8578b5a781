/** The channel of a manager: losses, notices and cancels that come before or after what they are about. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { until } from '../support/wait.js';

interface Outcome {
  readonly code: number;
}

interface Ticket {
  readonly entry: number;
  readonly generation: number;
  readonly outcome: Promise<Outcome>;
}

interface Channel {
  readonly abandoned: number;
  readonly oldestHold: number;
  begin(operation: object): Ticket;
  cancel(ticket: Ticket): void;
  close(): Promise<Outcome>;
  findAbandoned(now: number): boolean;
  forget(handle: Holder): void;
  heldFor(tokenId: number): number | undefined;
  lose(lease: number, reason: number): void;
  notify(code: number, text: string): void;
  onNotice(listener: (code: number, text: string) => void): void;
  submit(operation: object): Promise<Outcome>;
  watch(handle: Holder): void;
}

interface Internals {
  readonly NativeChannel: new (options: object, opened: (outcome: never) => void) => Channel;
  readonly records: {
    readonly CLOSED_LOSS: number;
    readonly LossCode: Readonly<Record<string, number>>;
    readonly OutcomeCode: Readonly<Record<string, number>>;
    readonly AcquireOperation: new (name: string, request: object) => object;
    releaseOperation(lease: number, exported: boolean): object;
  };
  openOperations(): number;
  prepare(target: string, options: undefined): { readonly options: object };
}

// They are internal: they are reached by path, past the package's exports.
const { NativeChannel, records, openOperations, prepare } =
  require('../../../dist/internals.js') as Internals;
const { CLOSED_LOSS, LossCode, OutcomeCode } = records;
const STOLEN = LossCode['Stolen'] as number;

/** A handle that records why it was lost. */
class Holder {
  place = 0;
  readonly lasts = false;
  readonly since = performance.now();
  readonly losses: number[] = [];
  readonly told: number[] = [];
  constructor(readonly lease: number) {}
  lose(reason: number): () => void {
    this.losses.push(reason);
    return () => void this.told.push(reason);
  }
  standIn(): Holder | undefined {
    return undefined;
  }
  abandon(): () => void {
    return () => {};
  }
}

const HOLD = { ttl: 10_000, renew: true, maxHold: 1e9, stallTimeout: 30_000, linger: 0 };
const REQUEST = { ...HOLD, leaveToExpire: false, share: 0, label: 'test' };

let channel: Channel;
let visits = 0;

beforeEach(async () => {
  visits += 1;
  const { options } = prepare(`memory:channel-${visits}`, undefined);
  const opened = await new Promise<Outcome>((resolve) => {
    channel = new NativeChannel(options, resolve as never);
  });
  assert.equal(opened.code, OutcomeCode['Done']);
});

afterEach(async () => {
  await channel.close();
  assert.equal(openOperations(), 0);
});

test('a loss is noted at once and told later, once', async () => {
  const handle = new Holder(7);
  channel.watch(handle);
  channel.lose(7, STOLEN);
  assert.deepEqual([handle.losses, handle.told], [[STOLEN], []]);
  await undefined;
  assert.deepEqual(handle.told, [STOLEN]);
  channel.lose(7, STOLEN);
  assert.deepEqual(handle.losses, [STOLEN]);
  assert.equal(channel.findAbandoned(0), false, 'it is held no more');
});

test('a loss that comes before its handle is known is told, in this turn', async () => {
  channel.lose(7, STOLEN);
  channel.lose(8, STOLEN);
  const handle = new Holder(7);
  channel.watch(handle);
  assert.deepEqual(handle.losses, [STOLEN]);
  await new Promise(setImmediate);
  await new Promise(setImmediate);
  const later = new Holder(8);
  channel.watch(later);
  assert.deepEqual(later.losses, [], 'the lease of an earlier turn was another one');
});

test('what is held when the manager closes is lost, and so is what is granted later', async () => {
  const handle = new Holder(7);
  channel.watch(handle);
  const closed = channel.close();
  assert.deepEqual(handle.losses, [CLOSED_LOSS], 'from the call on');
  const late = new Holder(8);
  channel.watch(late);
  assert.deepEqual(late.losses, [CLOSED_LOSS]);
  assert.equal((await closed).code, OutcomeCode['Done']);
  const refused = await channel.submit(records.releaseOperation(1, false));
  assert.equal(refused.code, OutcomeCode['Closed']);
});

test('an error of a listener is one of the process, and the others are called', async (t) => {
  const planned: (() => void)[] = [];
  channel.onNotice((code) => {
    if (code === 1) throw new Error('of the listener');
  });
  t.mock.method(process, 'nextTick', (job: () => void) => planned.push(job));
  channel.notify(1, 'first');
  channel.notify(2, 'second');
  t.mock.restoreAll();
  assert.equal(planned.length, 1);
  assert.throws(() => planned[0]?.(), { message: 'of the listener' });
});

test('notices that come before the listener are kept for it, once and in order', () => {
  const seen: [number, string][] = [];
  channel.notify(101, 'a');
  channel.notify(102, 'b');
  channel.onNotice((code, text) => seen.push([code, text]));
  channel.notify(103, 'c');
  const all = [
    [101, 'a'],
    [102, 'b'],
    [103, 'c'],
  ];
  assert.deepEqual(
    seen.filter(([code]) => code > 100),
    all,
  );
  channel.onNotice(() => assert.fail('they were told'));
});

test('a cancel that comes too late ends no other operation', { timeout: 10_000 }, async () => {
  const { AcquireOperation } = records;
  const wait = { ...REQUEST, ...shareOf(), wait: 60_000 };
  const first = channel.begin(new AcquireOperation('x', wait));
  assert.equal((await first.outcome).code, OutcomeCode['Acquired']);
  const second = channel.begin(new AcquireOperation('x', wait));
  assert.equal(second.entry, first.entry, 'entries are used again');
  let ended = false;
  void second.outcome.then(() => {
    ended = true;
  });
  channel.cancel(first);
  const third = channel.begin(new AcquireOperation('y', wait));
  await third.outcome;
  await new Promise(setImmediate);
  assert.equal(ended, false);
  channel.cancel(second);
  await second.outcome;
  assert.equal(ended, true);
});

/** The share of an exclusive lock. */
function shareOf(): { share: number } {
  const { SHARE_EXCLUSIVE } = records as unknown as { SHARE_EXCLUSIVE: number };
  return { share: SHARE_EXCLUSIVE };
}

test('the age of a hold is found by every lease of its token, and ends with it', async () => {
  assert.equal(channel.oldestHold, 0);
  for (const lease of [256 * 5, 256 * 6 + 255]) {
    const handle = new Holder(lease);
    channel.watch(handle);
    const token = Math.floor(lease / 256);
    await until(() => (channel.heldFor(token) ?? 0) > 0, 'the hold to have an age');
    assert.equal(channel.heldFor(token + 1), undefined);
    assert.ok(channel.oldestHold > 0);
    channel.forget(handle);
    assert.equal(channel.heldFor(token), undefined);
    assert.equal(channel.oldestHold, 0);
  }
});

test('code that awaits only operations lets timers through', { timeout: 20_000 }, async () => {
  const { AcquireOperation } = records;
  const request = { ...REQUEST, ...shareOf(), wait: 1_000 };
  let turned = false;
  setImmediate(() => {
    turned = true;
  });
  let rounds = 0;
  // A few hundred operations at most are read between two turns of the event loop.
  while (!turned && rounds < 5_000) {
    rounds += 1;
    await channel.submit(new AcquireOperation(`n:${rounds}`, request));
  }
  assert.ok(turned, 'the event loop has turned');
});
