// Acquire + release of distinct names on a Cluster of three.

import { interleaved } from '../interleaved.mjs';
import { judge } from '../outcome.mjs';
import { median } from '../samples.mjs';
import { figure, markdown } from '../table.mjs';
import { startCluster } from './servers.mjs';

const ROUNDS = 5;
const LEVEL = 64;
const OWN = 'holdfast';
const SNIPPET = 'ioredis Cluster';
const IDS = [OWN, SNIPPET];

const ABOUT = `Acquire and release of distinct names on three servers, ${LEVEL} in flight; servers and clients share two cores.`;

const QUESTION = 'What does a lock on a Cluster cost?';

export const CLUSTER = { id: 'cluster', question: QUESTION, about: ABOUT, run };

async function run({ flags: { rounds = ROUNDS, ms }, fail }) {
  const cluster = await startCluster();
  try {
    const target = () => cluster.urls;
    const plan = { workload: 'cluster', ids: IDS, target, levels: [LEVEL], rounds, ms, fail };
    const samples = await interleaved(plan);
    const lines = [
      `CLUSTER  acquire + release of distinct names on three servers, ${LEVEL} in flight`,
      `rounds: ${rounds} after a warm-up, ${ms} ms per run`,
      '',
      ...IDS.filter((id) => samples.has(id, LEVEL)).map((id) => line(id, samples)),
      '',
      'Target (median of the ratios of each round)',
      judge('pairs/s', median(samples.ratios(OWN, SNIPPET, LEVEL, 'throughput')), {
        atLeast: 1.3,
        unit: ' x',
      }),
    ];
    return { lines, table: record(samples), charts: [] };
  } finally {
    await cluster.stop();
  }
}

function record(samples) {
  const value = (id, metric, digits) => figure(samples.median(id, LEVEL, metric), digits);
  return markdown(
    ['', 'pairs/s', 'p50, µs', 'client CPU, µs'],
    IDS.filter((id) => samples.has(id, LEVEL)).map((id) => [
      id,
      value(id, 'throughput'),
      value(id, 'p50'),
      value(id, 'clientCpu', 1),
    ]),
  );
}

function line(id, samples) {
  const value = (key) => samples.median(id, LEVEL, key);
  return [
    id.padEnd(18),
    `${Math.round(value('throughput')).toString().padStart(7)} pairs/s`,
    `${value('p50').toFixed(0).padStart(6)} us p50`,
    `${value('p99').toFixed(0).padStart(6)} us p99`,
    `${value('clientCpu').toFixed(1).padStart(6)} us client CPU per pair`,
  ].join('  ');
}
