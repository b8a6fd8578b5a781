// The drop-in packages beside the libraries that they replace: pairs, the CPU of a pair, connections and memory.

import { Child } from '../child.mjs';
import { interleaved } from '../interleaved.mjs';
import { outcome } from '../outcome.mjs';
import { median } from '../samples.mjs';
import { startOwnServer } from '../server.mjs';
import { figure, markdown } from '../table.mjs';
import { HOT, HOT_CALLERS, LEVELS } from './levels.mjs';
import { coreOf, DROP_INS } from './peers.mjs';

const ROUNDS = 7;
const SERVERS = 3;
const CLIENTS = 10;
const HELD = 2_000;
/** The levels whose CPU time has a target: below, each pair pays for a wake of its own. */
const CPU_LEVEL = 64;

const ABOUT = `Each drop-in package divided by the library that it replaces, with the same code and its client. *hot*: ${HOT_CALLERS} callers of one
name, polling every 10 ms where a library polls; semaphores have ten permits, of which a MultiSemaphore takes two. *CPU* is that of a pair at
${CPU_LEVEL} in flight, divided by the core's own pair on as many servers, with as many permits. *connections* are those of ${CLIENTS} clients of one server.`;

const QUESTION = 'What does a drop-in package cost?';

export const DROP_INS_WORKLOAD = { id: 'dropins', question: QUESTION, about: ABOUT, run };

const original = (id) => `${id}, original`;
const dropIn = (id) => `${id}, dropIn`;

async function run({ url, admin, flags: { ms, rounds = ROUNDS }, fail }) {
  const more = await Promise.all(Array.from({ length: SERVERS - 1 }, () => startOwnServer()));
  const urls = [url, ...more.map((server) => server.url)];
  const workload = 'dropins';
  const plan = { workload, target: () => urls, levels: LEVELS, rounds, ms, fail };
  const connections = new Map();
  const memory = new Map();
  const all = [];
  try {
    // One library after the other: more processes at once would only make the rounds longer.
    for (const each of DROP_INS) {
      const { id } = each;
      const core = coreOf(each);
      const ids = [original(id), dropIn(id), core];
      all.push({ id, core, samples: await interleaved({ ...plan, ids }) });
      for (const side of ids.slice(0, 2)) {
        connections.set(side, await connectionsOf(side, urls, admin));
        memory.set(side, await memoryOf(side, urls));
      }
    }
  } finally {
    await Promise.all(more.map((server) => server.stop()));
  }
  return report(all, { connections, memory, rounds, ms });
}

/** How many connections to the first server a process has whose clients have each taken a lock. */
async function connectionsOf(id, urls, admin) {
  const child = new Child('dropins/worker.mjs', id);
  try {
    const before = await admin.connections();
    await child.ask('connect', { urls, clients: CLIENTS });
    return (await admin.connections()) - before;
  } finally {
    child.end();
  }
}

async function memoryOf(id, urls) {
  const child = new Child('dropins/worker.mjs', id);
  try {
    await child.ask('open', urls);
    await child.ask('hold', HELD);
    return await child.ask('hold', HELD);
  } finally {
    child.end();
  }
}

function report(all, { connections, memory, rounds, ms }) {
  const heads = ['', ...LEVELS.map(String), 'CPU µs', ': original', ': core', 'connections'];
  const rows = all.map(({ id, core, samples }) => {
    const cpu = (side) => samples.median(side, CPU_LEVEL, 'clientCpu');
    const share = (other) =>
      median(samples.ratios(dropIn(id), other, CPU_LEVEL, 'clientCpu')).toFixed(2);
    const counted = [dropIn(id), original(id)].map((side) => connections.get(side));
    return [
      id,
      ...LEVELS.map((level) => ratio(samples, id, level).toFixed(2)),
      `${figure(cpu(dropIn(id)), 1)} / ${figure(cpu(original(id)), 1)}`,
      share(original(id)),
      share(core),
      counted.join(' / '),
    ];
  });
  const widths = heads.map((head, i) => Math.max(head.length, ...rows.map((row) => row[i].length)));
  const line = (cells) => cells.map((cell, i) => cell.padEnd(widths[i] + 2)).join('');
  const lines = [
    'DROP-INS  pairs/s, divided by those of the library that each replaces',
    `rounds: ${rounds} after a warm-up, ${ms} ms per run, interleaved; ${HOT}: ${HOT_CALLERS} callers of one name`,
    '',
    line(heads),
    ...rows.map(line),
    '',
    'RSS of a process per held lock, bytes (drop-in / original)',
    ...all.map(
      ({ id }) =>
        `  ${id.padEnd(16)}${[dropIn(id), original(id)].map((side) => figure(memory.get(side))).join(' / ')}`,
    ),
    '',
    ...all.flatMap(targetsOf),
  ];
  return { lines, table: markdown(heads, rows), charts: [] };
}

function ratio(samples, id, level) {
  return median(samples.ratios(dropIn(id), original(id), level, 'throughput'));
}

function targetsOf({ id, core, samples }) {
  const cpu = median(samples.ratios(dropIn(id), core, CPU_LEVEL, 'clientCpu'));
  const rates = LEVELS.map((level) => ({
    what: `${level}: pairs/s, drop-in : original`,
    value: ratio(samples, id, level),
    target: { atLeast: level === CPU_LEVEL ? 2 : 1, unit: ' x' },
  }));
  const costs = { what: 'CPU, drop-in : core', value: cpu, target: { atMost: 1.5, unit: ' x' } };
  return [...rates, costs].map(({ what, value, target }) => {
    const { word, text } = outcome(target, value);
    return `  ${word.padEnd(7)} ${`${id}, ${what}`.padEnd(50)} ${value.toFixed(2)} x  ${text}`;
  });
}
