/** Permits of `holdfast/redis-semaphore` that pass from one object of a process to the next. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import {
  type LockOptions,
  MultiSemaphore,
  Semaphore,
  TimeoutError,
} from 'holdfast/redis-semaphore';
import type { Redis } from 'ioredis';
import { until } from '../../support/wait.js';
import { threeServers } from '../../three-servers.js';

const three = threeServers();
const { client } = three;
const limited = { timeout: 60_000 };

const LIMIT = 10;
const CALLERS = 16;
/** Longer than a test, also on a busy machine. */
const PATIENT: LockOptions = { lockTimeout: 60_000, acquireTimeout: 50_000 };

/** Calls of scripts, by which all requests about shares are made. */
async function calls(): Promise<number> {
  const info = await three.server.admin.info('commandstats');
  return Number(/cmdstat_evalsha:calls=(\d+)/.exec(info)?.[1] ?? 0);
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
      const own = client();
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

test('another client gets its turn while permits pass here', limited, async () => {
  const own = client();
  let isOver = false;
  let holds = 0;
  const caller = async () => {
    while (!isOver) {
      const semaphore = new Semaphore(own, 'hot', 1, PATIENT);
      await semaphore.acquire();
      holds += 1;
      await turn();
      await semaphore.release();
    }
  };
  const elsewhere = client();
  const callers = Promise.all(Array.from({ length: 4 }, caller));
  for (let round = 0; round < 4; round++) {
    const other = new Semaphore(elsewhere, 'hot', 1, PATIENT);
    const before = holds;
    await other.acquire();
    // The first opens a connection. Without an end the permit would pass for a second, some ten thousand times.
    if (round > 0) assert.ok(holds - before < 500, `${holds - before} holds`);
    await other.release();
  }
  isOver = true;
  await callers;
});

test('a wait ends with its time, its signal and its clients', limited, async () => {
  const own = client();
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

test('a permit that the server has lost passes to nobody', limited, async () => {
  const own = client();
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
    const own = client();
    // Those that ask before the connection is open are not counted.
    await new Semaphore(own, 'other', 1, PATIENT).acquire();
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
