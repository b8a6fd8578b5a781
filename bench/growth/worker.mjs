// One process of holdfast under a burden: pairs of distinct names, or a wait queue that advances.

import { answer } from '../answer.mjs';
import { NAMES } from '../names.mjs';
import { measure, namesFor } from '../pairs/measure.mjs';

/** A lease so long that no renewals mix with the measured work. */
const HELD_TTL_MS = 600_000;
const PATIENCE_MS = 600_000;
const BATCH = 5_000;

const managers = [];
let url;

answer({
  async open(target) {
    url = target;
    managers.push(await connect());
  },

  /** Holds `count` locks; `key` tells them from those of others. */
  async hold({ key, count }) {
    for (let first = 0; first < count; first += BATCH) {
      const names = list(key, first, Math.min(count, first + BATCH));
      await Promise.all(names.map((name) => managers[0].acquire(name, { ttl: HELD_TTL_MS })));
    }
  },

  /** Waits for `count` locks of another process; returns as soon as all waiters are queued. */
  async wait({ key, count }) {
    for (const name of list(key, 0, count)) managers[0].acquire(name).catch(() => {});
    await managers[0].tryAcquire(`${NAMES}${process.pid}:behind`);
  },

  pairs({ level, ms, length }) {
    const [manager] = managers;
    const peer = {
      acquire: (name) => manager.acquire(name),
      async release(_name, lock) {
        if (!(await lock.release())) throw new Error('release found the lock lost');
      },
    };
    const names = namesFor(process.pid, level).map((name) => name.padEnd(length ?? 0, '.'));
    return measure(peer, { names, level, ms });
  },

  /** `count` managers, as if of as many processes, want one lock again and again. */
  async line({ count, ms }) {
    while (managers.length < count) managers.push(await connect());
    const name = `${NAMES}${process.pid}:line`;
    const end = performance.now() + ms;
    let grants = 0;
    await Promise.all(
      managers.map(async (manager) => {
        while (performance.now() < end) {
          const lock = await manager.acquire(name);
          grants += 1;
          await lock.release();
        }
      }),
    );
    return { pairs: grants, throughput: grants / (ms / 1000) };
  },
});

async function connect() {
  const holdfast = await import('../../dist/index.mjs');
  return holdfast.connect(url, { wait: PATIENCE_MS });
}

function list(key, first, end) {
  return Array.from({ length: end - first }, (_, at) => `${NAMES}${key}:${first + at}`);
}
