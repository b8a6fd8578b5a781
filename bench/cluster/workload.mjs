// Acquire + release of distinct names on a Cluster of three.

import { Child } from '../child.mjs';
import { judge } from '../outcome.mjs';
import { showRound } from '../progress.mjs';
import { median, Samples, shuffled } from '../samples.mjs';
import { startCluster } from './servers.mjs';

const ROUNDS = 5;
const LEVEL = 64;
const OWN = 'holdfast';
const SNIPPET = 'ioredis Cluster';
const IDS = [OWN, SNIPPET];

const ABOUT = `A Cluster of three primaries, on the same two cores as the clients.`;

export const CLUSTER = { id: 'cluster', about: ABOUT, run };

async function run({ flags: { rounds = ROUNDS, ms }, fail }) {
  const cluster = await startCluster();
  const children = IDS.map((id) => new Child('cluster/worker.mjs', id));
  try {
    const samples = new Samples(await measureAll(children, cluster.urls, rounds, ms));
    const lines = [
      `CLUSTER  acquire + release of distinct names on three servers, ${LEVEL} in flight`,
      `rounds: ${rounds} after a warm-up, ${ms} ms per run`,
      '',
      ...IDS.map((id) => line(id, samples)),
      '',
      'Target (median of the ratios of each round)',
      judge('pairs/s', median(samples.ratios(OWN, SNIPPET, LEVEL, 'throughput')), {
        atLeast: 1.3,
        unit: ' x',
      }),
    ];
    return { lines, charts: [] };
  } catch (error) {
    fail('cluster', 'misbehaved', error.message);
    return { lines: ['CLUSTER  failed'], charts: [] };
  } finally {
    for (const child of children) child.end();
    await cluster.stop();
  }
}

async function measureAll(children, urls, rounds, ms) {
  const runs = [];
  for (const child of children) await child.ask('open', urls);
  for (let round = 0; round <= rounds; round++) {
    showRound('cluster', round, rounds);
    for (const child of shuffled(children)) {
      const result = await child.ask('run', { level: LEVEL, ms }, ms);
      if (round > 0) runs.push({ id: child.id, level: LEVEL, round, ...result });
    }
  }
  return runs;
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
