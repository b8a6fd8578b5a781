// Acquire + release of distinct names on five independent servers.

import { interleaved } from '../interleaved.mjs';
import { judge } from '../outcome.mjs';
import { median } from '../samples.mjs';
import { startOwnServer } from '../server.mjs';
import { markdown, figure as shown } from '../table.mjs';
import { PEERS } from './peers.mjs';

const ROUNDS = 5;
const SERVERS = 5;
const LEVEL = 64;

const ABOUT = `Acquire and release of distinct names on ${SERVERS} servers, ${LEVEL} in flight. Only holdfast's votes carry fences.
Servers and clients share two cores.`;

const QUESTION = 'What does a lock on a quorum cost?';

export const QUORUM = { id: 'quorum', question: QUESTION, about: ABOUT, run };

async function run({ flags: { ms, rounds = ROUNDS }, fail }) {
  const servers = await Promise.all(Array.from({ length: SERVERS }, () => startOwnServer()));
  const urls = servers.map(({ url }) => url);
  const ids = PEERS.map(({ id }) => id);
  const plan = { workload: 'quorum', ids, target: () => urls, levels: [LEVEL], rounds, ms, fail };
  try {
    return report(await interleaved(plan), rounds, ms);
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

function report(samples, rounds, ms) {
  const measured = PEERS.map(({ id }) => id).filter((id) => samples.has(id, LEVEL));
  const figure = (id, metric, unit) =>
    `${Math.round(samples.median(id, LEVEL, metric))
      .toString()
      .padStart(8)} ${unit}`;
  const rows = measured.map(
    (id) =>
      id.padEnd(24) +
      figure(id, 'throughput', 'pairs/s') +
      figure(id, 'p50', 'µs p50') +
      figure(id, 'p99', 'µs p99') +
      figure(id, 'clientCpu', 'µs CPU per pair'),
  );
  const [own, ...others] = measured;
  const ratios = others.map((id) =>
    judge(
      `pairs/s, holdfast with fences : ${id} without`,
      median(samples.ratios(own, id, LEVEL, 'throughput')),
      { unit: ' x' },
    ),
  );
  const lines = [
    `QUORUM  acquire + release of distinct names on ${SERVERS} servers, ${LEVEL} in flight`,
    `rounds: ${rounds} after a warm-up, ${ms} ms per run, interleaved`,
    '',
    ...rows,
    '',
    'Median of the ratios of each round',
    ...ratios,
  ];
  return { lines, table: record(measured, samples), charts: [chart(measured, samples)] };
}

function record(ids, samples) {
  const value = (id, metric) => shown(samples.median(id, LEVEL, metric));
  return markdown(
    ['', 'pairs/s', 'p50, µs', 'p99, µs', 'client CPU, µs'],
    ids.map((id) => [id, ...['throughput', 'p50', 'p99', 'clientCpu'].map((m) => value(id, m))]),
  );
}

function chart(ids, samples) {
  const bars = ids.map((id) => {
    const value = samples.median(id, LEVEL, 'throughput');
    return { label: id, value, text: `${Math.round(value).toLocaleString('en')} per second` };
  });
  return {
    name: 'quorum',
    title: `Locks per second on ${SERVERS} servers, ${LEVEL} in flight`,
    bars,
  };
}
