/** The operations under way, and the records about them, with a core that says what a test wants: also that it is broken. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';

interface Outcome {
  readonly code: number;
  readonly a: number;
  readonly b: number;
  readonly text: object | null;
}

type Resolve = (value: never) => void;

interface Reader {
  read(outcome: Outcome): unknown;
}

interface Operations {
  readonly records: Float64Array;
  readonly reads: number;
  readonly open: number;
  readonly hasRoom: boolean;
  readonly unanswered: number;
  register(id: number, owner: object): void;
  nextId(): number;
  take(resolve: Resolve, owner?: object, reader?: Reader): number;
  takeFor<T>(start: (entry: number) => T, resolve: Resolve, owner?: object): T;
  generation(entry: number): number;
  isOpen(ticket: { entry: number; generation: number }): boolean;
  entriesOf(owner: object, matches: (reader: unknown) => boolean): number[];
  drain(): void;
  readBetween(count: number): void;
  fail(entries: readonly number[]): void;
  leaveToExpire(): void;
  endWithProcess(): void;
}

interface Binding {
  Bridge: unknown;
  readonly RECORD_LENGTH: number;
  readonly RecordKind: Readonly<Record<'Loss' | 'Notice', number>>;
}

type Row = readonly [number, number, number, number];

/** As many records as one reading has room for. */
const ROOM = 256;
const READINGS_PER_TURN = 100;

/** What the core has ready, and what it does when it is asked. */
const core = {
  rows: [] as Row[],
  asked: 0,
  texts: [] as number[],
  ends: 0,
  broken: false,
  textless: false,
};

class ScriptedBridge {
  constructor(
    _ready: () => void,
    _reads: boolean,
    readonly records: Float64Array,
  ) {}
  drainer(): () => number {
    return () => {
      core.asked += 1;
      if (core.broken) throw new Error('broken');
      return put(this.records, core.rows.splice(0, ROOM));
    };
  }
  takeText(entry: number): object {
    core.texts.push(entry);
    if (core.textless) throw new Error('no text');
    return { message: `text of ${entry}` };
  }
  takeNotice(): string {
    if (core.textless) throw new Error('no text');
    return 'notice';
  }
  end(): void {
    core.ends += 1;
  }
}

// The package starts its operations as it is loaded, with the core that the addon has by then.
const binding = require('../../../native/binding.js') as Binding;
binding.Bridge = ScriptedBridge;
const { records } = require('../../../dist/internals.js') as {
  records: { OutcomeCode: Record<string, number>; LossCode: Record<string, number> };
};
const { version } = require('../../../package.json') as { version: string };
const operations = (globalThis as unknown as Record<symbol, Operations>)[
  Symbol.for(`holdfast.operations@${version}`)
] as Operations;

const codeOf = (name: string) => records.OutcomeCode[name] as number;
const [DONE, INTERNAL, CONNECTION, LOST] = ['Done', 'Internal', 'Connection', 'Lost'].map(
  codeOf,
) as [number, number, number, number];

function put(room: Float64Array, rows: readonly Row[]): number {
  for (const [i, row] of rows.entries()) room.set(row, i * binding.RECORD_LENGTH);
  return rows.length;
}

/** An operation whose outcomes are noted. */
class Noted {
  readonly outcomes: unknown[] = [];
  readonly entry: number;
  constructor(owner?: object, reader?: Reader) {
    const resolve = (value: unknown) => void this.outcomes.push(value);
    this.entry = operations.take(resolve as Resolve, owner, reader);
  }
}

/** A manager, and what it was told. */
class Owner {
  readonly told: unknown[] = [];
  readonly id = operations.nextId();
  constructor() {
    operations.register(this.id, this);
  }
  lose = (lease: number, reason: number) => this.told.push(['lose', lease, reason]);
  loseAll = (reason: number) => this.told.push(['loseAll', reason]);
  notify = (code: number, text: string) => this.told.push(['notify', code, text]);
  findAbandoned = () => false;
}

const outcome = (code: number, a = 0, b = 0, text: object | null = null) => ({ code, a, b, text });
/** Those that keep the process alive. */
const timers = () => process.getActiveResourcesInfo().filter((each) => each === 'Timeout').length;

beforeEach(async () => {
  Object.assign(core, { rows: [], asked: 0, texts: [], ends: 0, broken: false, textless: false });
  await turn();
});

afterEach(() => {
  assert.equal(operations.open, 0, 'no operation is left');
});

test('each outcome goes to its operation, once', () => {
  const [one, other] = [new Noted(), new Noted()];
  assert.equal(operations.open, 2);
  core.rows = [
    [other.entry, DONE, 7, 8],
    [other.entry, LOST, 1, 2],
    [one.entry, LOST, 3, 4],
  ];
  operations.drain();
  assert.deepEqual([one.outcomes, other.outcomes], [[outcome(LOST, 3, 4)], [outcome(DONE)]]);
  assert.deepEqual(core.texts, []);
});

test('the text of an outcome is had from the core; without it the outcome is an internal error', () => {
  const one = new Noted();
  core.rows = [[one.entry, CONNECTION, 3, 4]];
  operations.drain();
  const text = { message: `text of ${one.entry}` };
  assert.deepEqual(one.outcomes, [outcome(CONNECTION, 3, 4, text)]);
  core.textless = true;
  const other = new Noted();
  core.rows = [[other.entry, CONNECTION, 3, 4]];
  operations.drain();
  assert.deepEqual(
    other.outcomes.map((each) => (each as Outcome).code),
    [INTERNAL],
  );
  assert.deepEqual(core.texts, [one.entry, other.entry, other.entry], 'asked once more');
});

test('a reader makes of an outcome what the caller gets, and of a failure a promise', async () => {
  const read = ({ code }: Outcome) => {
    if (code === LOST) throw new Error('lost');
    return `read ${code}`;
  };
  const [done, lost] = [new Noted(undefined, { read }), new Noted(undefined, { read })];
  const broken = new Noted(undefined, {
    read: () => {
      throw new Error('unread');
    },
  });
  core.rows = [
    [done.entry, DONE, 0, 0],
    [lost.entry, LOST, 0, 0],
    [broken.entry, DONE, 0, 0],
  ];
  operations.drain();
  assert.deepEqual(done.outcomes, [`read ${DONE}`]);
  await assert.rejects(lost.outcomes[0] as Promise<unknown>, /lost/);
  await assert.rejects(broken.outcomes[0] as Promise<unknown>, /unread/);
});

test('an entry serves again, and a ticket of before is not open then', () => {
  const first = new Noted();
  const { entry } = first;
  const generation = operations.generation(entry);
  const ticket = { entry, generation };
  assert.equal(operations.isOpen(ticket), true);
  assert.equal(operations.isOpen({ entry, generation: generation + 1 }), false);
  operations.fail([entry]);
  assert.equal(operations.isOpen(ticket), false);
  const second = new Noted();
  assert.equal(second.entry, entry);
  assert.equal(operations.generation(entry), generation + 1);
  assert.equal(operations.isOpen(ticket), false);
  assert.equal(operations.isOpen({ entry, generation: generation + 1 }), true);
  assert.equal(operations.generation(1_000_000), 0);
  operations.fail([entry]);
  assert.deepEqual([first.outcomes, second.outcomes], [[outcome(INTERNAL)], [outcome(INTERNAL)]]);
});

test('what cannot begin takes no entry', () => {
  const begun = operations.takeFor(
    (entry) => entry,
    () => {},
  );
  operations.fail([begun]);
  const failing = () =>
    operations.takeFor(
      (entry) => {
        assert.equal(entry, begun);
        throw new Error('refused');
      },
      () => assert.fail('it has not begun'),
    );
  assert.throws(failing, /refused/);
  assert.throws(failing, /refused/);
});

test('a manager has its own operations, of a kind', () => {
  const [one, other] = [new Owner(), new Owner()];
  const reader = { read: () => 'read' };
  const [plain, read, another] = [new Noted(one), new Noted(one, reader), new Noted(other)];
  const all = () => true;
  assert.deepEqual(operations.entriesOf(one, all).sort(), [plain.entry, read.entry].sort());
  assert.deepEqual(
    operations.entriesOf(one, (each) => each === reader),
    [read.entry],
  );
  operations.fail([plain.entry, read.entry, another.entry]);
  assert.deepEqual(operations.entriesOf(one, all), []);
  assert.deepEqual(operations.entriesOf(other, all), []);
});

test('the process lives while an operation is under way', () => {
  const before = timers();
  const [one, other] = [new Noted(), new Noted()];
  assert.equal(timers(), before + 1);
  operations.fail([one.entry]);
  assert.equal(timers(), before + 1);
  operations.fail([other.entry]);
  assert.equal(timers(), before);
});

test('operations of which the core has not heard fail, and no others', () => {
  const [one, other] = [new Noted(), new Noted()];
  operations.fail([one.entry, one.entry, 1_000_000]);
  assert.deepEqual([one.outcomes, other.outcomes], [[outcome(INTERNAL)], []]);
  assert.equal(operations.open, 1);
  operations.fail([other.entry]);
});

test('records are read as long as there are as many as there is room for', () => {
  const reads = operations.reads;
  const all = Array.from({ length: 2 * ROOM + 1 }, () => new Noted());
  core.rows = all.map(({ entry }) => [entry, DONE, 0, 0]);
  operations.drain();
  assert.deepEqual([core.asked, operations.reads - reads], [3, 1]);
  assert.ok(all.every(({ outcomes }) => outcomes.length === 1));
  operations.drain();
  assert.equal(core.asked, 4);
});

test('a listener may read on: no record is read twice, and none is left', () => {
  const order: string[] = [];
  const take = (name: string, resolve = () => {}) =>
    operations.take(() => {
      order.push(name);
      resolve();
    });
  const last = take('last');
  const third = take('third');
  const second = take('second');
  const first = take('first', () => {
    assert.equal(operations.hasRoom, false, 'while records are read');
    core.rows = [[last, DONE, 0, 0]];
    operations.drain();
    order.push('end of first');
  });
  core.rows = [first, second, third].map((entry) => [entry, DONE, 0, 0]);
  operations.drain();
  assert.deepEqual(order, ['first', 'second', 'third', 'last', 'end of first']);
  assert.equal(operations.hasRoom, true);
});

test('what starting an operation has left is read at once, or after the turn', async () => {
  const [one, other] = [new Noted(), new Noted()];
  operations.readBetween(0);
  put(operations.records, [[one.entry, DONE, 0, 0]]);
  operations.readBetween(1);
  assert.deepEqual([one.outcomes.length, core.asked], [1, 0]);
  core.rows = [[other.entry, DONE, 0, 0]];
  operations.readBetween(-1);
  assert.equal(other.outcomes.length, 0);
  await turn();
  assert.deepEqual([other.outcomes.length, core.asked], [1, 1]);
  await turn();
  assert.equal(core.asked, 1, 'nothing is left');
});

test('what is left elsewhere is read with the next records', () => {
  const [one, other] = [new Noted(), new Noted()];
  operations.readBetween(-1);
  core.rows = [[other.entry, DONE, 0, 0]];
  put(operations.records, [[one.entry, DONE, 0, 0]]);
  operations.readBetween(1);
  assert.deepEqual([one.outcomes.length, other.outcomes.length], [1, 1]);
});

test('as many records as there is room for are not all', () => {
  const all = Array.from({ length: ROOM }, () => new Noted());
  const last = new Noted();
  core.rows = [[last.entry, DONE, 0, 0]];
  put(
    operations.records,
    all.map(({ entry }) => [entry, DONE, 0, 0]),
  );
  operations.readBetween(ROOM);
  assert.ok([...all, last].every(({ outcomes }) => outcomes.length === 1));
});

test('after a hundred readings in one turn there is no room until the next', async () => {
  for (let i = 0; i < READINGS_PER_TURN; i++) {
    assert.equal(operations.hasRoom, true);
    const { entry } = new Noted();
    put(operations.records, [[entry, DONE, 0, 0]]);
    operations.readBetween(1);
    operations.readBetween(0);
  }
  assert.equal(operations.hasRoom, false);
  await turn();
  assert.equal(operations.hasRoom, true);
});

test('the number of requests without an answer lies behind the records', () => {
  operations.records[ROOM * binding.RECORD_LENGTH] = 42;
  assert.equal(operations.unanswered, 42);
});

test('losses and notices go to their manager', () => {
  const [one, other] = [new Owner(), new Owner()];
  const { Loss, Notice } = binding.RecordKind;
  core.rows = [
    [Loss, one.id, 5, 6],
    [Notice, other.id, 7, 0],
    [Loss, 1_000_000, 5, 6],
    [Notice, 1_000_000, 7, 0],
  ];
  operations.drain();
  assert.deepEqual([one.told, other.told], [[['lose', 5, 6]], [['notify', 7, 'notice']]]);
  core.textless = true;
  core.rows = [[Notice, one.id, 7, 0]];
  operations.drain();
  assert.deepEqual(one.told[1], ['notify', 7, '']);
});

test('once the core cannot be read every operation fails, and every lock is given up', () => {
  const [one, other] = [new Owner(), new Owner()];
  const before = timers();
  const read: unknown[] = [];
  const reader = { read: ({ code }: Outcome) => read.push(code) };
  const all = [new Noted(one), new Noted(other), new Noted(other, reader), new Noted()];
  operations.fail([all[1]?.entry as number]);
  core.broken = true;
  operations.drain();
  assert.equal(core.asked, 2, 'asked once more');
  assert.deepEqual(
    [0, 1, 3].map((i) => all[i]?.outcomes),
    [[outcome(INTERNAL)], [outcome(INTERNAL)], [outcome(INTERNAL)]],
  );
  assert.equal(all[2]?.outcomes.length, 1);
  assert.deepEqual([operations.open, timers()], [0, before]);
  const expired = ['loseAll', records.LossCode['Expired']];
  assert.deepEqual([one.told, other.told], [[expired], [expired]]);
  operations.drain();
  assert.deepEqual(one.told, [expired, expired]);
});

test('the locks end with the process, unless they are to be left to expire', () => {
  const listeners = () => process.listeners('exit') as (() => void)[];
  const before = listeners();
  operations.leaveToExpire();
  const [end, ...rest] = before.filter((each) => !listeners().includes(each));
  assert.deepEqual([rest.length, core.ends], [0, 0]);
  end?.();
  assert.equal(core.ends, 1);
  operations.endWithProcess();
  assert.equal(listeners().length, before.length);
});
