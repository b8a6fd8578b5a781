/** Whether an object has its lock, through all that happens to it, without a server. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LockLostError } from 'holdfast';
import { until } from '../../support/wait.js';

interface Hold {
  readonly lock: object;
}

interface Possession {
  readonly isAcquired: boolean;
  readonly isBelieved: boolean;
  readonly isExternal: boolean;
  readonly isRefreshed: boolean;
  readonly hold: Hold | undefined;
  begin(connection: object, lock: object): void;
  join(shared: Hold, take: () => Promise<object>): Promise<void>;
  settle(): void;
  stopRefresh(): Promise<void>;
  giveUp(): void;
  expect(): void;
  release(): Promise<unknown>;
  leave(hold: Hold | undefined): void;
  lose(cause: Error | undefined): void;
  lost(cause: Error | undefined): void;
  released(): void;
}

interface Acts {
  isReplaced(object: unknown): boolean;
  refresh(object: unknown): Promise<void>;
  onLost(object: unknown, cause: Error | undefined): void;
}

// They are internal: they are reached by path, past the package's exports.
const { Connection, Possession } = require('../../../../dist/internals.js') as {
  Connection: { of(clients: readonly object[]): object };
  Possession: new (
    isExternal: boolean,
    object: unknown,
    acts: Acts,
    choices: { renew: boolean; refreshInterval: number },
  ) => Possession;
};

const connection = Connection.of([]);
const LONG = 60_000;
const LOSS = new LockLostError('lost', 'a', 'expired');

/** A lock of a server. */
class ServerLock {
  held = true;
  releases = 0;
  async extend(): Promise<void> {}
  async release(): Promise<boolean> {
    this.held = false;
    this.releases += 1;
    return true;
  }
}

/** An object with its lock, and what it was told. */
class Subject {
  readonly lock = new ServerLock();
  readonly told: string[] = [];
  readonly is: Possession;
  constructor({
    external = false,
    replaced = false,
    renew = true,
    refreshInterval = LONG,
  }: {
    external?: boolean;
    replaced?: boolean;
    renew?: boolean;
    refreshInterval?: number;
  } = {}) {
    const acts: Acts = {
      isReplaced: () => replaced,
      refresh: async (object) => {
        this.told.push(object === this ? 'refresh' : 'refresh of another');
      },
      onLost: (object, cause) => {
        assert.equal(object, this);
        this.told.push(cause?.message ?? 'lost without cause');
      },
    };
    this.is = new Possession(external, this, acts, { renew, refreshInterval });
  }
  begin(): this {
    this.is.begin(connection, this.lock);
    return this;
  }
  acquire(): this {
    this.begin().is.settle();
    return this;
  }
  /** A letter for each that is so: acquired, believed, external, refreshed, with a hold; and what it was told. */
  get state(): string {
    const { isAcquired, isBelieved, isExternal, isRefreshed, hold } = this.is;
    const is = {
      a: isAcquired,
      b: isBelieved,
      e: isExternal,
      r: isRefreshed,
      h: hold !== undefined,
    };
    const letters = Object.entries(is).map(([letter, so]) => (so ? letter : '-'));
    return [letters.join(''), ...this.told].join(' ');
  }
}

const STATES: Record<string, () => Subject> = {
  free: () => new Subject(),
  external: () => new Subject({ external: true }),
  between: () => new Subject().begin(),
  'between, taken over': () => new Subject({ external: true }).begin(),
  held: () => new Subject().acquire(),
  'held, not renewed': () => new Subject({ renew: false }).acquire(),
  'held, but over': () => {
    const subject = new Subject().acquire();
    subject.lock.held = false;
    return subject;
  },
  released: () => {
    const subject = new Subject().acquire();
    subject.is.released();
    return subject;
  },
  own: () => new Subject({ replaced: true }).acquire(),
  'own without a hold': () => {
    const subject = new Subject({ replaced: true });
    subject.is.settle();
    return subject;
  },
};

const ACTS: Record<string, (subject: Subject) => unknown> = {
  nothing: () => {},
  begin: (subject) => subject.begin(),
  settle: ({ is }) => is.settle(),
  stopRefresh: ({ is }) => is.stopRefresh(),
  giveUp: ({ is }) => is.giveUp(),
  'giveUp and expect': ({ is }) => {
    is.giveUp();
    is.expect();
  },
  'giveUp and release': ({ is }) => {
    is.giveUp();
    return is.release();
  },
  'giveUp, expect and release': ({ is }) => {
    is.giveUp();
    is.expect();
    return is.release();
  },
  expect: ({ is }) => is.expect(),
  release: ({ is }) => is.release(),
  leave: ({ is }) => is.leave(is.hold),
  'leave another': ({ is }) => is.leave(new Subject().acquire().is.hold),
  lose: ({ is }) => is.lose(new Error('gone')),
  lost: ({ is }) => is.lost(LOSS),
  'lost with its clients': ({ is }) => is.lost(undefined),
  'released by another': ({ is }) => is.released(),
};

const EXPECTED: Record<string, string[]> = {
  free: [
    'nothing: -----',
    'begin: ---rh',
    'settle: -----',
    'stopRefresh: -----',
    'giveUp: -----',
    'giveUp and expect: --e--',
    'giveUp and release: -----',
    'giveUp, expect and release: --e--',
    'expect: --e--',
    'release: -----',
    'leave: -----',
    'leave another: -----',
    'lose: -----',
    'lost: -----',
    'lost with its clients: -----',
    'released by another: -----',
  ],
  external: [
    'nothing: --e--',
    'begin: --erh',
    'settle: -----',
    'stopRefresh: --e--',
    'giveUp: -----',
    'giveUp and expect: --e--',
    'giveUp and release: -----',
    'giveUp, expect and release: --e--',
    'expect: --e--',
    'release: --e--',
    'leave: --e--',
    'leave another: --e--',
    'lose: --e--',
    'lost: --e--',
    'lost with its clients: --e--',
    'released by another: --e--',
  ],
  between: [
    'nothing: ---rh',
    'begin: ---rh',
    'settle: ab-rh',
    'stopRefresh: ----h',
    'giveUp: ----h',
    'giveUp and expect: --e-h',
    'giveUp and release: -----, released',
    'giveUp, expect and release: --e--, released',
    'expect: --erh',
    'release: -----, released',
    'leave: -----',
    'leave another: ---rh',
    'lose: ----- gone',
    'lost: ----- lost',
    'lost with its clients: -----',
    'released by another: -b-r-',
  ],
  'between, taken over': [
    'nothing: --erh',
    'begin: --erh',
    'settle: ab-rh',
    'stopRefresh: --e-h',
    'giveUp: ----h',
    'giveUp and expect: --e-h',
    'giveUp and release: -----, released',
    'giveUp, expect and release: --e--, released',
    'expect: --erh',
    'release: --e--, released',
    'leave: --e--',
    'leave another: --erh',
    'lose: --e-- gone',
    'lost: --e-- lost',
    'lost with its clients: --e--',
    'released by another: -b-r-',
  ],
  held: [
    'nothing: ab-rh',
    'begin: ab-rh',
    'settle: ab-rh',
    'stopRefresh: ab--h',
    'giveUp: ----h',
    'giveUp and expect: --e-h',
    'giveUp and release: -----, released',
    'giveUp, expect and release: --e--, released',
    'expect: ab-rh',
    'release: -b---, released',
    'leave: -b---',
    'leave another: ab-rh',
    'lose: ----- gone',
    'lost: ----- lost',
    'lost with its clients: -----',
    'released by another: -b-r-',
  ],
  'held, not renewed': [
    'nothing: ab--h',
    'begin: ab--h',
    'settle: ab--h',
    'stopRefresh: ab--h',
    'giveUp: ----h',
    'giveUp and expect: --e-h',
    'giveUp and release: -----, released',
    'giveUp, expect and release: --e--, released',
    'expect: ab--h',
    'release: -b---, released',
    'leave: -b---',
    'leave another: ab--h',
    'lose: -----',
    'lost: -----',
    'lost with its clients: -----',
    'released by another: -b---',
  ],
  'held, but over': [
    'nothing: -b-rh',
    'begin: -b-rh',
    'settle: -b-rh',
    'stopRefresh: -b--h',
    'giveUp: ----h',
    'giveUp and expect: --e-h',
    'giveUp and release: -----, released',
    'giveUp, expect and release: --e--, released',
    'expect: -b-rh',
    'release: -b---, released',
    'leave: -b---',
    'leave another: -b-rh',
    'lose: ----- gone',
    'lost: ----- lost',
    'lost with its clients: -----',
    'released by another: -b-r-',
  ],
  released: [
    'nothing: -b-r-',
    'begin: ab-rh',
    'settle: -b-r-',
    'stopRefresh: -b---',
    'giveUp: -----',
    'giveUp and expect: --e--',
    'giveUp and release: -----',
    'giveUp, expect and release: --e--',
    'expect: -b-r-',
    'release: -b-r-',
    'leave: -b-r-',
    'leave another: -b-r-',
    'lose: ----- gone',
    'lost: ----- lost',
    'lost with its clients: -----',
    'released by another: -b-r-',
  ],
  own: [
    'nothing: ab-rh',
    'begin: ab-rh',
    'settle: ab-rh',
    'stopRefresh: ab--h',
    'giveUp: ----h',
    'giveUp and expect: --e-h',
    'giveUp and release: -----, released',
    'giveUp, expect and release: --e--, released',
    'expect: ab-rh',
    'release: ab-r-, released',
    'leave: ab-r-',
    'leave another: ab-rh',
    'lose: ----- gone',
    'lost: ab-r-',
    'lost with its clients: ab-r-',
    'released by another: ab-r-',
  ],
  'own without a hold': [
    'nothing: ab-r-',
    'begin: ab-rh',
    'settle: ab-r-',
    'stopRefresh: ab---',
    'giveUp: -----',
    'giveUp and expect: --e--',
    'giveUp and release: -----',
    'giveUp, expect and release: --e--',
    'expect: ab-r-',
    'release: ab-r-',
    'leave: ab-r-',
    'leave another: ab-r-',
    'lose: ----- gone',
    'lost: ab-r-',
    'lost with its clients: ab-r-',
    'released by another: ab-r-',
  ],
};

for (const [state, make] of Object.entries(STATES)) {
  test(`an object whose lock is ${state}, through each act`, async () => {
    const found: string[] = [];
    for (const [name, act] of Object.entries(ACTS)) {
      const subject = make();
      await act(subject);
      found.push(`${name}: ${subject.state}${subject.lock.releases > 0 ? ', released' : ''}`);
    }
    assert.deepEqual(found, EXPECTED[state]);
  });
}

test('what another object has released is lost when the next refresh would find out', async () => {
  const subject = new Subject({ refreshInterval: 5 }).acquire();
  subject.is.released();
  assert.equal(subject.state, '-b-r-');
  await until(() => subject.told.length > 0, 'the loss');
  assert.equal(subject.state, '----- another object released it by its identifier');
});

test('that is told to nobody who has ended the refresh or the lock before, or has another', async () => {
  const ends: Record<string, (is: Possession) => unknown> = {
    stopRefresh: (is) => is.stopRefresh(),
    giveUp: (is) => is.giveUp(),
    lost: (is) => is.lost(undefined),
    begin: (is) => is.begin(connection, new ServerLock()),
  };
  const subjects = Object.values(ends).map((end) => {
    const subject = new Subject({ refreshInterval: 5 }).acquire();
    subject.is.released();
    end(subject.is);
    return subject;
  });
  const last = new Subject({ refreshInterval: 5 }).acquire();
  last.is.released();
  await until(() => last.told.length > 0, 'the loss of the last');
  assert.deepEqual(
    subjects.map(({ told }) => told),
    subjects.map(() => []),
  );
});

test('a subclass refreshes its own lock until it has that no more, or wants no refresh', async () => {
  const acquired = (given: object = {}) =>
    new Subject({ replaced: true, refreshInterval: 2, ...given }).acquire();
  const [kept, stopped, left, unwanted, plain] = [
    acquired(),
    acquired(),
    acquired(),
    acquired({ renew: false }),
    acquired({ replaced: false }),
  ];
  await stopped.is.stopRefresh();
  left.is.giveUp();
  await until(() => kept.told.length > 2, 'three refreshes');
  const others = [stopped, left, unwanted, plain].map(({ told }) => told);
  assert.deepEqual(others, [[], [], [], []], 'a manager renews the last');
  kept.is.lose(new Error('gone'));
  const { length } = kept.told;
  const next = acquired();
  await until(() => next.told.length > 2, 'three refreshes of the next');
  assert.equal(kept.told.length, length);
  assert.equal(kept.told.at(-1), 'gone');
  next.is.giveUp();
});

test('an object joins the hold of another, and has none if it cannot take that over', async () => {
  const first = new Subject().acquire();
  const shared = first.is.hold as Hold;
  const second = new Subject({ external: true });
  const refused = second.is.join(shared, () => Promise.reject(new Error('refused')));
  assert.equal(second.is.hold, shared, 'while it is taken over');
  await assert.rejects(refused, /refused/);
  assert.equal(second.state, '--e--');
  const lock = new ServerLock();
  await second.is.join(shared, async () => lock);
  assert.equal(second.state, '--erh');
  second.is.settle();
  assert.deepEqual([first.state, second.state], ['ab-rh', 'ab-rh']);
  assert.equal(first.is.hold?.lock, lock);
  // One leaves it to the other; who releases it ends it for both.
  first.is.leave(shared);
  assert.deepEqual([first.state, second.state], ['-b---', 'ab-rh']);
  await first.is.join(shared, async () => lock);
  await second.is.release();
  assert.deepEqual([lock.releases, second.is.isAcquired], [1, false]);
  assert.equal(first.state, '-b-r-', 'until its next refresh');
  first.is.giveUp();
});

test('a lock that is lost while it is taken over is lost for all, with its cause', async () => {
  const [first, second] = [new Subject().acquire(), new Subject()];
  const shared = first.is.hold as Hold & { lose(cause: Error | undefined): void };
  const lock = new ServerLock();
  await second.is.join(shared, async () => {
    shared.lose(LOSS);
    assert.deepEqual(first.told, [], 'the lock that replaces it may be held');
    lock.held = false;
    return lock;
  });
  assert.deepEqual([first.told, second.told], [['lost'], ['lost']]);
  assert.deepEqual([first.state, second.state], ['----- lost', '----- lost']);
  const third = new Subject().acquire();
  const kept = third.is.hold as typeof shared;
  await new Subject().is.join(kept, async () => {
    kept.lose(LOSS);
    return new ServerLock();
  });
  assert.equal(third.state, 'ab-rh', 'its successor is held');
});

test('the end of the clients is no loss', () => {
  const subject = new Subject().acquire();
  const hold = subject.is.hold as Hold & { lose(cause: Error | undefined): void };
  hold.lose(new LockLostError('closed', 'a', 'closed'));
  assert.equal(subject.state, '-----');
});
