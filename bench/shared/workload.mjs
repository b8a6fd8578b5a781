// Locks that several hold at once: pairs of distinct names, and many who want the permits of one.

import { Child } from '../child.mjs';
import { endAll } from '../contended/rounds.mjs';
import { NAMES } from '../names.mjs';
import { judge } from '../outcome.mjs';
import { showRound } from '../progress.mjs';
import { median, Samples, shuffled } from '../samples.mjs';
import { PEERS } from './peers.mjs';

const ROUNDS = 5;
const LEVEL = 64;
const IDS = PEERS.map(({ id }) => id);

const ABOUT = `Shared locks and semaphores. Where nobody waits, a share costs the server about twice an exclusive lock: it is a member of a
set, with an end and a fence of its own. Where sixty-four callers want ten permits, each
goes from one of them to the next in the order of their calls, by one script of some ten commands, and after fifteen times to
whoever is first in line at the server; redis-semaphore lets have it whoever polls at the right moment (see p99).`;

export const SHARED = { id: 'shared', about: ABOUT, run };

async function run({ url, admin, flags: { ms, rounds = ROUNDS }, fail }) {
  const children = IDS.map((id) => new Child('shared/worker.mjs', id));
  const failed = new Set();
  const runs = [];
  const attempt = async (child, task) => {
    if (failed.has(child.id)) return;
    try {
      await task();
    } catch (error) {
      failed.add(child.id);
      fail(child.id, 'misbehaved', error.message);
    }
  };
  try {
    for (const child of children) await attempt(child, () => child.ask('open', url));
    for (let round = 0; round <= rounds; round++) {
      showRound('shared', round, rounds);
      for (const child of shuffled(children)) {
        for (const kind of ['distinct', 'one']) {
          await attempt(child, async () => {
            const run = await runOnce(child, { kind, ms, admin });
            if (round > 0) runs.push({ id: child.id, round, level: kind, ...run });
          });
        }
      }
    }
  } finally {
    endAll(children);
  }
  return report(new Samples(runs), { rounds, ms });
}

async function runOnce(child, { kind, ms, admin }) {
  const before = await admin.work();
  const name = `${NAMES}${child.pid}:permits`;
  const result = await child.ask('run', { kind, name, level: LEVEL, ms }, ms);
  const after = await admin.work();
  const per = (what) => (after[what] - before[what]) / result.pairs;
  return { ...result, serverCpu: per('cpu'), commands: per('commands') };
}

function report(samples, { rounds, ms }) {
  const table = (kind) =>
    IDS.filter((id) => samples.has(id, kind)).map((id) => {
      const value = (metric, digits = 0) => samples.median(id, kind, metric).toFixed(digits);
      return [
        id.padEnd(28),
        `${value('throughput').padStart(8)}/s`,
        `${value('p50').padStart(8)} µs p50`,
        `${value('p99').padStart(8)} µs p99`,
        `${value('clientCpu', 1).padStart(7)} µs client CPU`,
        `${value('serverCpu', 1).padStart(7)} µs server CPU`,
        `${value('commands', 1).padStart(6)} commands`,
      ].join('');
    });
  const ratio = (id, other, kind, metric) => median(samples.ratios(id, other, kind, metric));
  const lines = [
    `SHARED  acquire + release of locks that several may hold, ${LEVEL} in flight`,
    `rounds: ${rounds} after a warm-up, ${ms} ms per run`,
    '',
    'Distinct names: nobody waits',
    ...table('distinct'),
    '',
    'One name of ten permits, or one that all may share',
    ...table('one'),
    '',
    'Median of the ratios of each round',
    judge(
      'distinct: pairs/s, limit 10 : redis-semaphore',
      ratio('holdfast, limit 10', 'redis-semaphore, limit 10', 'distinct', 'throughput'),
      { unit: ' x' },
    ),
    judge(
      'one: pairs/s, limit 10 : redis-semaphore',
      ratio('holdfast, limit 10', 'redis-semaphore, limit 10', 'one', 'throughput'),
      { unit: ' x' },
    ),
    judge(
      'distinct: server CPU, shared : exclusive',
      ratio('holdfast, shared', 'holdfast, exclusive', 'distinct', 'serverCpu'),
      { unit: ' x' },
    ),
  ];
  return { lines, charts: [] };
}
