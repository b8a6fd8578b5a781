// Thousands of waiting callers of one process: their memory, and the delay of its other work.

import { Child } from '../child.mjs';
import { NAMES } from '../names.mjs';
import { showRound } from '../progress.mjs';
import { shuffled } from '../samples.mjs';
import { record, report } from './report.mjs';

const ROUNDS = 3;
const COUNT = 10_000;
/**
 * The number of further waiters whose memory is measured, in batches of the same size: the spare memory of the
 * process took those before, and it has grown by then as far as a batch makes it.
 */
const MORE = 20_000;
const READ_MS = 700;
const SETTLE_MS = 1000;
/**
 * The young generation of the heap has its full size from the start, and the reading fills it before
 * any measurement: its growth under load does not belong to the memory of a waiter.
 */
const NODE_FLAGS = ['--expose-gc', '--min-semi-space-size=16', '--max-semi-space-size=16'];
const IDS = ['holdfast', 'redis-semaphore', 'redlock', 'redlock-universal'];

const ABOUT = `${COUNT.toLocaleString('en')} callers of one process wait for a lock of another. The first column is the time to read a small file meanwhile, relative
to that without waiters.`;

const QUESTION = 'What does waiting cost the process that waits?';

export const WAITERS = { id: 'waiters', question: QUESTION, about: ABOUT, run };

async function run({ url, flags: { rounds = ROUNDS }, fail }) {
  const runs = [];
  const failed = new Set();
  for (let round = 1; round <= rounds; round++) {
    showRound('waiters', round, rounds);
    for (const id of shuffled(IDS).filter((candidate) => !failed.has(candidate))) {
      try {
        runs.push({ id, round, level: COUNT, ...(await runOnce(id, url)) });
      } catch (error) {
        failed.add(id);
        fail(id, 'misbehaved', error.message);
      }
    }
  }
  const lines = [
    `WAITERS  ${COUNT} callers of one process wait for a lock that another process holds`,
    `rounds: ${rounds}, each in new processes; a small file is read for ${READ_MS} ms before and meanwhile;`,
    `memory is what each of ${MORE} more takes, ${COUNT} at once`,
    ...report(IDS, COUNT, runs),
  ];
  return { lines, table: record(IDS, COUNT, runs), charts: [] };
}

async function runOnce(id, url) {
  const holder = new Child('waiters/worker.mjs', id);
  const child = new Child('waiters/worker.mjs', id, NODE_FLAGS);
  try {
    return await measure(holder, child, url);
  } finally {
    holder.end();
    child.end();
  }
}

async function measure(holder, child, url) {
  const name = `${NAMES}${child.pid}:wanted`;
  await Promise.all([holder.ask('open', url), child.ask('open', url)]);
  await holder.ask('hold', name);
  await child.ask('read', READ_MS, READ_MS);
  const idle = await child.ask('read', READ_MS, READ_MS);
  await child.ask('wait', { name, count: COUNT, ms: SETTLE_MS }, SETTLE_MS);
  const busy = await child.ask('read', READ_MS, READ_MS);
  const before = await child.ask('memory');
  for (let more = 0; more < MORE; more += COUNT) {
    await child.ask('wait', { name, count: COUNT, ms: SETTLE_MS }, SETTLE_MS);
  }
  const after = await child.ask('memory');
  return {
    idle,
    busy,
    slowdown: busy / idle,
    rss: (after.rss - before.rss) / MORE,
    js: (after.js - before.js) / MORE,
  };
}
