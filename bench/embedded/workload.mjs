// The store without a server, for unit tests, beside another library's.

import { interleaved } from '../interleaved.mjs';
import { judge } from '../outcome.mjs';
import { median } from '../samples.mjs';

const ROUNDS = 5;
const LEVELS = [1, 64];
const [MEMORY, REDIS, UNIVERSAL] = [
  'holdfast, memory:',
  'holdfast, Redis',
  'redlock-universal, memory',
];

const ABOUT = `\`memory:\`, the store for unit tests, runs the same scripts on an embedded Lua. The store of redlock-universal is a Map in
JavaScript, without scripts, a queue or fences.`;

export const EMBEDDED = { id: 'embedded', about: ABOUT, run };

async function run({ url, flags: { ms, rounds = ROUNDS }, fail }) {
  const ids = [MEMORY, REDIS, UNIVERSAL];
  const target = (id) => (id === MEMORY ? 'memory:' : url);
  const plan = { workload: 'embedded', ids, target, levels: LEVELS, rounds, ms, fail };
  return report(await interleaved(plan), { ids, rounds, ms });
}

function report(samples, { ids, rounds, ms }) {
  const line = (id, level) =>
    [
      `${String(level).padStart(3)} in flight  ${id.padEnd(28)}`,
      `${samples.median(id, level, 'throughput').toFixed(0).padStart(8)} pairs/s`,
      `${samples.median(id, level, 'p50').toFixed(0).padStart(6)} µs p50`,
      `${samples.median(id, level, 'clientCpu').toFixed(1).padStart(7)} µs CPU`,
    ].join('');
  const lines = [
    'EMBEDDED  acquire + release of distinct names without a server',
    `rounds: ${rounds} after a warm-up, ${ms} ms per run`,
    '',
    ...LEVELS.flatMap((level) => ids.map((id) => line(id, level))),
    '',
    'Target (median of the ratios of each round)',
    judge(
      '64 in flight: memory: to Redis on loopback',
      median(samples.ratios(MEMORY, REDIS, 64, 'throughput')),
      {
        atLeast: 1,
        unit: ' x',
      },
    ),
  ];
  return { lines, charts: [] };
}
