// The growth of a lock's cost with the number of other locks, waiters and managers: there should be none.

import { Child } from '../child.mjs';
import { judge } from '../outcome.mjs';
import { showRound } from '../progress.mjs';
import { Samples, shuffled } from '../samples.mjs';

const ROUNDS = 5;
const LEVEL = 64;
/** The time limit for connecting many managers and taking many locks. */
const BURDEN_MS = 60_000;

const SERIES = [
  { id: 'locks held', unit: 'by the same process', values: [0, 1_000, 10_000, 100_000], run: held },
  {
    id: 'waiters',
    unit: 'of the same process, for other locks',
    values: [0, 100, 1_000, 10_000],
    run: waiting,
  },
  { id: 'name', unit: 'bytes long', values: [40, 100, 300, 1_000], run: named },
  { id: 'line', unit: 'managers want one lock', values: [2, 10, 100, 500], run: line },
];

const ABOUT = `The cost of a lock should not depend on other locks, other waiters or the length of its name, and it hardly does. A longer name is
more to copy: each script gets it five times, in the lock's key and in the side keys. With two managers in the wait queue a lock
is cheaper, since a manager that waits alone often finds the lock free.`;

export const GROWTH = { id: 'growth', about: ABOUT, run };

async function run({ url, admin, flags: { ms, rounds = ROUNDS }, fail }) {
  const runs = [];
  for (let round = 1; round <= rounds; round++) {
    showRound('growth', round, rounds);
    for (const series of SERIES) {
      for (const value of shuffled(series.values)) {
        const child = new Child('growth/worker.mjs', 'holdfast');
        const burden = new Child('growth/worker.mjs', 'holdfast');
        try {
          await Promise.all([child.ask('open', url), burden.ask('open', url)]);
          const result = await series.run(child, burden, { value, ms, admin, key: `${child.pid}` });
          runs.push({ id: series.id, level: value, round, ...result });
        } catch (error) {
          fail(`growth, ${series.id} ${value}`, 'misbehaved', error.message);
        } finally {
          child.end();
          burden.end();
        }
        // The locks of the ended processes would burden the next.
        await admin.deleteAll();
      }
    }
  }
  return report(new Samples(runs), { rounds, ms });
}

async function held(child, _burden, { value, ms, admin, key }) {
  await child.ask('hold', { key: `${key}:held`, count: value }, BURDEN_MS);
  return pairs(child, { ms, admin });
}

async function waiting(child, burden, { value, ms, admin, key }) {
  const what = { key: `${key}:waited`, count: value };
  await burden.ask('hold', what, BURDEN_MS);
  await child.ask('wait', what, BURDEN_MS);
  return pairs(child, { ms, admin });
}

function named(child, _burden, { value, ms, admin }) {
  return pairs(child, { ms, admin, length: value });
}

/** The first turn connects and warms up. */
async function line(child, _burden, { value, ms, admin }) {
  await child.ask('line', { count: value, ms: 100 }, BURDEN_MS);
  return observed(admin, () => child.ask('line', { count: value, ms }, BURDEN_MS));
}

async function pairs(child, { ms, admin, length }) {
  await child.ask('pairs', { level: LEVEL, ms: 100, length }, ms);
  return observed(admin, () => child.ask('pairs', { level: LEVEL, ms, length }, ms));
}

async function observed(admin, task) {
  const before = await admin.work();
  const result = await task();
  const after = await admin.work();
  const per = (what) => (after[what] - before[what]) / result.pairs;
  return { ...result, serverCpu: per('cpu'), commands: per('commands') };
}

function report(samples, { rounds, ms }) {
  const tables = SERIES.flatMap(({ id, unit, values }) => [
    '',
    `${id}, ${unit}`,
    ...values.filter((value) => samples.has(id, value)).map((value) => row(samples, id, value)),
  ]);
  const verdicts = SERIES.map(({ id, values }) => {
    const [first, last] = [values[0], values.at(-1)];
    const grown = samples.median(id, last, 'serverCpu') / samples.median(id, first, 'serverCpu');
    return judge(`server CPU per acquisition: ${id} ${last} to ${first}`, grown, { unit: ' x' });
  });
  const lines = [
    `GROWTH  acquire + release, ${LEVEL} in flight, against what else there is`,
    `rounds: ${rounds}, each value in a new process, ${ms} ms per run`,
    ...tables,
    '',
    ...verdicts,
  ];
  return { lines, charts: [] };
}

function row(samples, id, level) {
  const value = (metric, digits = 0) => samples.median(id, level, metric).toFixed(digits);
  const cells = [
    `${level.toLocaleString('en').padStart(10)}`,
    `${value('throughput').padStart(9)} pairs/s`,
    `${value('serverCpu', 1).padStart(7)} µs server CPU`,
    `${value('commands', 1).padStart(6)} commands`,
  ];
  const cpu = samples.median(id, level, 'clientCpu');
  if (Number.isFinite(cpu)) cells.push(`${cpu.toFixed(1).padStart(7)} µs client CPU`);
  return cells.join('');
}
