// Acquire + release of distinct names on a Cluster of three.

import { interleaved } from '../interleaved.mjs';
import { judge } from '../outcome.mjs';
import { median } from '../samples.mjs';
import { startCluster } from './servers.mjs';

const ROUNDS = 5;
const LEVEL = 64;
const OWN = 'holdfast';
const SNIPPET = 'ioredis Cluster';
const IDS = [OWN, SNIPPET];

const ABOUT = `The three primaries of the Cluster run on the same two cores as the clients.`;

export const CLUSTER = { id: 'cluster', about: ABOUT, run };

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
    return { lines, charts: [] };
  } finally {
    await cluster.stop();
  }
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
