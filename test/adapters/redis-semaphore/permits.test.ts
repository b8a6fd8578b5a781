/** Permits of `holdfast/redis-semaphore` that pass from one object of a process to the next. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import {
  type LockOptions,
  MultiSemaphore,
  Semaphore,
  TimeoutError,
} from 'holdfast/redis-semaphore';
import type { Redis } from 'ioredis';
import { callsOf, SCRIPTS_AND_DELETIONS } from '../../support/command-stats.js';
import { connect } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';
import { threeServers } from '../../three-servers.js';

const three = threeServers();
const { client } = three;
const limited = { timeout: 60_000 };

const LIMIT = 10;
const CALLERS = 16;
/** Longer than a test, also on a busy machine. */
const PATIENT: LockOptions = { lockTimeout: 60_000, acquireTimeout: 50_000 };

/** By which the requests about shares are made, but for the commands that take a free lock. */
const calls = () => callsOf(three.server.admin, SCRIPTS_AND_DELETIONS);

/** A client whose connection is open: callers that come before that ask the server in any case. */
async function opened(): Promise<Redis> {
  const own = client();
  const first = new Semaphore(own, 'other', 1, PATIENT);
  await first.acquire();
  await first.release();
  return own;
}

const SORTS = {
  Semaphore: { permits: 1, make: (own: Redis) => new Semaphore(own, 'hot', LIMIT, PATIENT) },
  MultiSemaphore: {
    permits: 2,
    make: (own: Redis) => new MultiSemaphore(own, 'hot', LIMIT, 2, PATIENT),
  },
};

for (const [name, { permits, make }] of Object.entries(SORTS)) {
  test(
    `${name}: what is wanted here passes here, and never more than the limit`,
    limited,
    async () => {
      const own = await opened();
      const before = await calls();
      let [held, most, pairs] = [0, 0, 0];
      const caller = async () => {
        for (let round = 0; round < 50; round++) {
          const semaphore = make(own);
          await semaphore.acquire();
          held += permits;
          most = Math.max(most, held);
          pairs += 1;
          await turn();
          assert.equal(semaphore.isAcquired, true);
          held -= permits;
          await semaphore.release();
          assert.equal(semaphore.isAcquired, false);
        }
      };
      await Promise.all(Array.from({ length: CALLERS }, caller));
      assert.deepEqual([most, pairs], [LIMIT, CALLERS * 50]);
      // Two for each pair, and more, if each asked the server.
      assert.ok((await calls()) - before < pairs, `${await calls()} calls`);
      await until(async () => (await three.server.admin.exists('semaphore:hot')) === 0, 'the end');
    },
  );
}

/** As often a permit passes before the server gets it, and the hold before that. */
const HOLDS = 16;

/** Callers of one process that take permits again and again. Answers their holds so far, and how to end them. */
function busy(own: Redis, callers: number, options: LockOptions & { readonly limit: number }) {
  const { limit, ...times } = options;
  let isOver = false;
  const busy = { holds: 0, end };
  const caller = async () => {
    while (!isOver) {
      const semaphore = new Semaphore(own, 'hot', limit, times);
      await semaphore.acquire();
      busy.holds += 1;
      await turn();
      await semaphore.release();
    }
  };
  const ended = Promise.all(Array.from({ length: callers }, caller));
  async function end() {
    isOver = true;
    await ended;
  }
  return busy;
}

const queue = () => three.server.admin.zcard('{semaphore:hot}:queue');

test(
  'a permit passes as often to one that asks in the turn in which it is given back',
  limited,
  async () => {
    const own = await opened();
    const [one, other] = [0, 1].map(() => new Semaphore(own, 'hot', 1, PATIENT)) as [
      Semaphore,
      Semaphore,
    ];
    await one.acquire();
    // Permits pass once they were waited for.
    const waiting = other.acquire();
    await turn();
    await one.release();
    await waiting;
    const passed = async ([from, to]: [Semaphore, Semaphore]): Promise<number> => {
      const before = await calls();
      await Promise.all([from.release(), to.acquire()]);
      return (await calls()) > before ? 0 : 1 + (await passed([to, from]));
    };
    // From the first hold that the server has not given to any other since.
    const passes = await passed([other, one]);
    assert.ok(passes === HOLDS - 1 || passes === HOLDS - 2, `${passes} passes`);
  },
);

test('another process gets its turn while permits pass here', limited, async (t) => {
  const others = await connect(three.server.url, { prefix: '' });
  t.after(() => others.close());
  const here = busy(await opened(), 4, { ...PATIENT, limit: 1 });
  for (let round = 0; round < 10; round++) {
    const before = here.holds;
    const lock = await others.acquire('semaphore:hot', { mode: 'shared', limit: 1 });
    // This process may take what it had left, once more if its next caller was faster than the request. One more caller may have
    // had its permit, and not have counted itself yet, when the count was read.
    assert.ok(here.holds - before <= 2 * HOLDS + 1, `${here.holds - before} holds`);
    await lock.release();
  }
  await here.end();
});

test(
  'a caller that asks the server is not overtaken for long by those that wait here',
  limited,
  async (t) => {
    const others = await connect(three.server.url, { prefix: '' });
    t.after(() => others.close());
    const own = await opened();
    const request = { mode: 'shared', limit: LIMIT } as const;
    const elsewhere = Array.from({ length: LIMIT - 1 }, () =>
      others.acquire('semaphore:hot', request),
    );
    await Promise.all(elsewhere);
    const first = new Semaphore(own, 'hot', LIMIT, PATIENT);
    await first.acquire();
    let here: ReturnType<typeof busy> | undefined;
    const early = Array.from({ length: LIMIT - 1 }, async () => {
      const semaphore = new Semaphore(own, 'hot', LIMIT, PATIENT);
      await semaphore.acquire();
      const overtaken = here?.holds ?? 0;
      // Long enough for the server to confirm what it has granted by message: only then does a permit pass.
      await sleep(20);
      await semaphore.release();
      return overtaken;
    });
    await until(async () => (await queue()) > 0, 'the wait');
    here = busy(own, 2 * LIMIT, { ...PATIENT, limit: LIMIT });
    await first.release();
    const overtaken = await Promise.all(early);
    await here.end();
    assert.ok(Math.max(...overtaken) <= 2 * HOLDS, `overtaken ${overtaken} times`);
  },
);

test(
  'a caller that waits is told by the name that its identifier has by then',
  limited,
  async () => {
    const own = await opened();
    const holder = new Semaphore(own, 'hot', 1, PATIENT);
    await holder.acquire();
    const next = new Semaphore(own, 'hot', 1, PATIENT);
    const acquired = next.acquire();
    const { identifier } = next;
    await holder.release();
    await acquired;
    const other = new Semaphore(client(), 'hot', 1, {
      ...PATIENT,
      identifier,
      acquiredExternally: true,
    });
    assert.equal(await other.tryAcquire(), true);
    await other.release();
    await next.release();
    assert.equal(await three.server.admin.exists('semaphore:hot'), 0);
  },
);

test(
  'a permit that another client has taken over and released counts no more',
  limited,
  async () => {
    const own = await opened();
    const holder = new Semaphore(own, 'hot', 1, { ...PATIENT, onLockLost: () => {} });
    await holder.acquire();
    const { identifier } = holder;
    const terms = { ...PATIENT, identifier, acquiredExternally: true };
    const other = new Semaphore(client(), 'hot', 1, terms);
    await other.acquire();
    await other.release();
    const next = new Semaphore(own, 'hot', 1, { ...PATIENT, acquireTimeout: 10_000 });
    assert.equal(await next.tryAcquire(), true);
    await next.release();
  },
);

test('the end of the clients frees a permit that passes just then', limited, async () => {
  // Of another client, so the connection stays open.
  const stays = new Semaphore(client(), 'stays', 1, PATIENT);
  await stays.acquire();
  for (const end of ['quit', 'disconnect'] as const) {
    const own = await opened();
    const holder = new Semaphore(own, 'hot', 1, PATIENT);
    await holder.acquire();
    const next = new Semaphore(own, 'hot', 1, PATIENT);
    const acquired = next.acquire();
    const rejected = assert.rejects(acquired, { code: 'ERR_LOCK_CLOSED' });
    await turn();
    const released = holder.release();
    // What ioredis does when its connection has ended.
    own.emit('end');
    await Promise.all([released, rejected]);
    assert.equal(next.isAcquired, false);
    await until(async () => (await three.server.admin.exists('semaphore:hot')) === 0, 'the end');
    await own[end]();
  }
});

test(
  'an object that acquires again while its release is under way keeps what it gets',
  limited,
  async () => {
    const own = await opened();
    const semaphores = Array.from({ length: 3 }, () => new Semaphore(own, 'hot', 1, PATIENT));
    await Promise.all(
      semaphores.map(async (semaphore) => {
        for (let round = 0; round < 50; round++) {
          await semaphore.acquire();
          assert.equal(semaphore.isAcquired, true);
          if (round % 2 === 0) await turn();
          const released = semaphore.release();
          const acquired = semaphore.acquire();
          await released;
          await acquired;
          await Promise.resolve();
          assert.equal(semaphore.isAcquired, true);
          await semaphore.release();
        }
      }),
    );
    await until(async () => (await three.server.admin.exists('semaphore:hot')) === 0, 'the end');
  },
);

test('a wait whose time is over as the permit passes ends in one way', limited, async () => {
  const own = await opened();
  const holder = new Semaphore(own, 'hot', 1, PATIENT);
  let got = 0;
  for (let round = 0; round < 20; round++) {
    await holder.acquire();
    const began = performance.now();
    const next = new Semaphore(own, 'hot', 1, { ...PATIENT, acquireTimeout: 20 });
    const acquired = next.tryAcquire();
    // Busy until its time is over, on every second round for a little longer.
    while (performance.now() - began < 19 + (round % 2) * 2) {}
    await holder.release();
    const isGot = await acquired;
    assert.equal(next.isAcquired, isGot);
    if (isGot) got += 1;
    await next.release();
  }
  assert.ok(got > 0);
  await until(async () => (await three.server.admin.exists('semaphore:hot')) === 0, 'the end');
});

test(
  'a permit passes with no other limit, number or lease, and each of these gets its turn',
  limited,
  async () => {
    const own = await opened();
    const holder = new Semaphore(own, 'hot', 1, PATIENT);
    await holder.acquire();
    const waits = [
      new Semaphore(own, 'hot', 2, PATIENT),
      new MultiSemaphore(own, 'hot', 2, 2, PATIENT),
      new Semaphore(own, 'hot', 1, { ...PATIENT, lockTimeout: 30_000 }),
      new Semaphore(own, 'hot', 1, { ...PATIENT, refreshInterval: 0 }),
    ].map(async (semaphore) => {
      await semaphore.acquire();
      await turn();
      await semaphore.release();
    });
    await until(async () => (await queue()) > 0, 'the wait');
    const here = busy(own, 4, { ...PATIENT, limit: 1 });
    await holder.release();
    await Promise.all(waits);
    await here.end();
  },
);

test('a wait ends with its time, its signal and its clients', limited, async () => {
  const own = await opened();
  const holder = new Semaphore(own, 'hot', 1, PATIENT);
  await holder.acquire();
  const short = new Semaphore(own, 'hot', 1, { ...PATIENT, acquireTimeout: 50 });
  await assert.rejects(short.acquire(), TimeoutError);
  const abort = new AbortController();
  const aborted = new Semaphore(own, 'hot', 1, PATIENT).acquire(abort.signal);
  const reason = new Error('enough');
  setTimeout(() => abort.abort(reason), 10);
  await assert.rejects(aborted, reason);
  const left = new Semaphore(own, 'hot', 1, PATIENT).acquire();
  const rejected = assert.rejects(left, { code: 'ERR_LOCK_CLOSED' });
  await turn();
  own.disconnect();
  await rejected;
});

/** A permit is held while another object waits, until `late` has passed. Then the server gets it ahead of that object. */
async function goesToTheServerFirst(lockTimeout: number, late: () => Promise<unknown>) {
  const own = await opened();
  const times = { ...PATIENT, lockTimeout };
  const holder = new Semaphore(own, 'hot', 1, times);
  await holder.acquire();
  const next = new Semaphore(own, 'hot', 1, times);
  const acquired = next.acquire();
  await late();
  const before = await calls();
  await holder.release();
  await acquired;
  assert.ok((await calls()) > before);
  await next.release();
}

test('a permit that was held for half of its lease goes to the server first', limited, () =>
  goesToTheServerFirst(3_000, async () => {
    const begun = await calls();
    await until(async () => (await calls()) >= begun + 2, 'two renewals, each after a third');
  }),
);

// A sixteenth of this lease is late, and a third is when it is renewed.
test('a permit that the server has not confirmed of late goes to it first', limited, () =>
  goesToTheServerFirst(6_000, () => sleep(600)),
);

test('a permit that the server has lost passes to nobody', limited, async () => {
  const own = await opened();
  const losses: Error[] = [];
  const times = { ...PATIENT, lockTimeout: 300 };
  const onLockLost = (error: Error) => losses.push(error);
  const holder = new Semaphore(own, 'hot', 1, { ...times, onLockLost });
  await holder.acquire();
  const waits = new Semaphore(own, 'hot', 1, times);
  const acquired = waits.acquire();
  await three.server.admin.flushall();
  await until(() => losses.length > 0, 'the loss');
  await acquired;
  assert.equal(waits.isAcquired, true);
  await waits.release();
});

test(
  'a permit that is not refreshed, or whose identifier is known, passes to nobody',
  limited,
  async () => {
    const own = await opened();
    const tell = (semaphore: Semaphore) => Promise.resolve(semaphore.identifier);
    const stop = (semaphore: Semaphore) => semaphore.stopRefresh();
    const leave = () => Promise.resolve();
    for (const [end, passes] of [
      [leave, true],
      [tell, false],
      [stop, false],
    ] as const) {
      const holder = new Semaphore(own, 'hot', 1, PATIENT);
      await holder.acquire();
      const next = new Semaphore(own, 'hot', 1, PATIENT);
      const acquired = next.acquire();
      await end(holder);
      const before = await calls();
      await holder.release();
      await acquired;
      assert.equal((await calls()) === before, passes);
      await next.release();
    }
  },
);

test('a permit passes to no object whose class has another key', limited, async () => {
  class Elsewhere extends Semaphore {
    protected override _key = 'semaphore:elsewhere';
  }
  const own = await opened();
  const [plain, first, next] = [Semaphore, Elsewhere, Elsewhere].map(
    (Class) => new Class(own, 'hot', 1, PATIENT),
  ) as [Semaphore, Semaphore, Semaphore];
  await plain.acquire();
  await first.acquire();
  const acquired = next.acquire();
  const { admin } = three.server;
  const waiting = async () => (await admin.zcard('{semaphore:elsewhere}:queue')) === 1;
  await until(waiting, 'the queue of the other key');
  await plain.release();
  assert.deepEqual([await admin.exists('semaphore:hot'), next.isAcquired], [0, false]);
  await first.release();
  await acquired;
  await next.release();
});

test(
  'permits on other terms pass here as well, once nobody has those of before',
  limited,
  async () => {
    const own = await opened();
    const first = new Semaphore(own, 'hot', 1, PATIENT);
    await first.acquire();
    await first.release();
    const others = [0, 1].map(() => new MultiSemaphore(own, 'hot', 3, 3, PATIENT));
    await Promise.all(
      others.map(async (each) => {
        await each.acquire();
        await turn();
        // The other one would be in the queue of the server if it had asked there.
        assert.equal(await queue(), 0);
        await each.release();
      }),
    );
  },
);

test('keys that nobody uses any more take no memory', limited, async () => {
  const own = await opened();
  const KEYS = 20_000;
  const use = async (from: number) => {
    for (let key = from; key < from + KEYS; key += CALLERS) {
      const semaphore = new Semaphore(own, `key ${key}`, 1, PATIENT);
      await semaphore.acquire();
      await semaphore.release();
    }
  };
  const useAll = (start: number) =>
    Promise.all(Array.from({ length: CALLERS }, (_, i) => use(start + i)));
  const heap = () => {
    globalThis.gc?.();
    return process.memoryUsage().heapUsed;
  };
  await useAll(0);
  const before = heap();
  await useAll(KEYS);
  // Each of them would keep its text and its count.
  assert.ok(heap() - before < KEYS * 50, `${heap() - before} bytes`);
});
