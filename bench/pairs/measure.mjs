// One measured run of one participant: a closed loop with a fixed number of pairs in flight.

import { NAMES } from '../names.mjs';
import { percentile } from '../samples.mjs';

const CATALOGUE = 10_000;

/**
 * The lock names of a run. A multiple of the pairs in flight, so that slots which advance by
 * `level` never meet on a name.
 */
export function namesFor(owner, level) {
  const count = Math.ceil(CATALOGUE / level) * level;
  return Array.from({ length: count }, (_, index) => `${NAMES}${owner}:${index}`);
}

/** Runs acquire + release pairs for `ms`, `level` at a time, and returns the cost of a pair. */
export async function measure(peer, { names, level, ms }) {
  // `again`: as many names as tasks, so each takes its own again.
  const chosen = peer.again ? names.slice(0, level) : names;
  const latencies = [];
  const cpuBefore = process.cpuUsage();
  const start = performance.now();
  const run = { peer, names: chosen, level, latencies, end: start + ms };
  await Promise.all(Array.from({ length: level }, (_, slot) => repeat(run, slot)));
  // The last pairs in flight count, and so does the time until they are done.
  const elapsed = performance.now() - start;
  const cpu = process.cpuUsage(cpuBefore);
  const pairs = latencies.length;
  return {
    pairs,
    throughput: pairs / (elapsed / 1000),
    p50: percentile(latencies, 0.5) * 1000,
    p99: percentile(latencies, 0.99) * 1000,
    clientCpu: (cpu.user + cpu.system) / pairs,
  };
}

async function repeat({ peer, names, level, latencies, end }, slot) {
  let now = performance.now();
  for (let index = slot; now < end; index = (index + level) % names.length) {
    const begin = now;
    await peer.release(names[index], await peer.acquire(names[index]));
    now = performance.now();
    latencies.push(now - begin);
  }
}
