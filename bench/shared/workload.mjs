// Locks that several hold at once: pairs of distinct names, and many callers for the permits of one.

import { interleaved } from '../interleaved.mjs';
import { NAMES } from '../names.mjs';
import { judge } from '../outcome.mjs';
import { median } from '../samples.mjs';
import { figure, markdown } from '../table.mjs';
import { PEERS } from './peers.mjs';

const ROUNDS = 5;
const LEVEL = 64;
const IDS = PEERS.map(({ id }) => id);

const ABOUT = `${LEVEL} in flight. On *one* name of ten permits, or one without a limit, holdfast grants permits in the order of the calls,
redis-semaphore to the caller that polls at the right moment, as its p99 shows.`;

const QUESTION = 'What do shared locks and semaphores cost?';

export const SHARED = { id: 'shared', question: QUESTION, about: ABOUT, run };

async function run({ url, admin, flags: { ms, rounds = ROUNDS }, fail }) {
  const levels = ['distinct', 'one'];
  const run = (child, kind) => runOnce(child, { kind, ms, admin });
  const plan = { workload: 'shared', ids: IDS, target: () => url, levels, rounds, ms, run, fail };
  return report(await interleaved(plan), { rounds, ms });
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
  return { lines, table: record(samples), charts: [] };
}

function record(samples) {
  const columns = ['distinct', 'one'].flatMap((kind) => [
    { kind, metric: 'throughput', head: `${kind}: pairs/s` },
    { kind, metric: 'serverCpu', head: 'server CPU, µs', digits: 1 },
    { kind, metric: 'p99', head: 'p99, µs' },
  ]);
  return markdown(
    ['', ...columns.map(({ head }) => head)],
    IDS.filter((id) => samples.has(id, 'one')).map((id) => [
      id,
      ...columns.map(({ kind, metric, digits }) =>
        figure(samples.median(id, kind, metric), digits),
      ),
    ]),
  );
}
