// A process that holds many locks, and reads how long each of them is still valid.

import { setTimeout as sleep } from 'node:timers/promises';
import { answer } from '../answer.mjs';
import { clock } from '../clock.mjs';

/** Every lock is read once a second, a slice of them at a time: reading is part of the cost. */
const SLICES = 20;
const TURN_MS = 1000 / SLICES;
const BATCH = 5_000;
const WARM_UP_TURNS = 10;
const HOUR_MS = 3_600_000;
let locks;
let held;
/** Locks that are held meanwhile, but neither renewed nor read. */
let others;
let lost = 0;

answer({
  async open(url) {
    const { connect } = await import('../../dist/index.mjs');
    locks = await connect(url, { ttl: 10_000 });
    locks.on('lost', () => lost++);
  },

  /**
   * Makes the process grow as far as batches make it, by taking and releasing some; and fills its spare memory
   * then, by holding all of `names`.
   */
  async warmUp(names) {
    for (let turn = 0; turn < WARM_UP_TURNS; turn++) {
      const taken = await acquireAll(names.slice(0, BATCH));
      await Promise.all(taken.map((lock) => lock.release()));
    }
    others = await acquireAll(names, { ttl: HOUR_MS });
    return others.length;
  },

  /** Bytes in use when nothing is left to be collected. */
  async memory() {
    for (let turn = 0; turn < 3; turn++) {
      await sleep(50);
      globalThis.gc();
    }
    return process.memoryUsage().rss;
  },

  async acquire(names) {
    held = await acquireAll(names);
  },

  /** Keeps them for `ms`. */
  async keep(ms) {
    const cpuBefore = process.cpuUsage();
    const { renewals, requests } = locks.stats();
    const start = clock();
    let lowest = Number.POSITIVE_INFINITY;
    for (let turn = 0; clock() < start + ms * 1000; turn++) {
      await sleep(TURN_MS);
      for (let at = turn % SLICES; at < held.length; at += SLICES) {
        lowest = Math.min(lowest, held[at].remaining);
      }
    }
    const elapsed = clock() - start;
    const cpu = process.cpuUsage(cpuBefore);
    const stats = locks.stats();
    return {
      share: (cpu.user + cpu.system) / elapsed,
      lowest,
      lost,
      renewals: (stats.renewals - renewals) / (elapsed / 1e6),
      requests: (stats.requests - requests) / (elapsed / 1e6),
    };
  },
});

async function acquireAll(names, options) {
  const all = [];
  for (let first = 0; first < names.length; first += BATCH) {
    const some = names.slice(first, first + BATCH);
    all.push(...(await Promise.all(some.map((name) => locks.acquire(name, options)))));
  }
  return all;
}
