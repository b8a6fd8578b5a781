// The cost of thousands of locks that one process holds.

import { setTimeout as sleep } from 'node:timers/promises';
import { Child } from '../child.mjs';
import { OWN } from '../contenders.mjs';
import { NAMES } from '../names.mjs';
import { judge } from '../outcome.mjs';
import { figure, markdown } from '../table.mjs';

/**
 * The second number shows how the cost grows; the targets are for the first. But memory is measured where there
 * are most: the memory of a process varies by a megabyte, which is a hundred bytes for each of ten thousand locks.
 */
const COUNTS = [10_000, 100_000];
/** Other locks, held for an hour without renewal: they fill the spare memory of the process before the measurement. */
const OTHERS = 10_000;
const SETTLE_MS = 1000;
const BURDEN_MS = 60_000;
/** The young generation of the heap is kept small: its changes of size do not belong to the memory of a lock. */
const NODE_FLAGS = ['--expose-gc', '--min-semi-space-size=1', '--max-semi-space-size=1'];

const ABOUT = `One process holds the locks with a lease of 10 s. Memory in the server is that beyond a plain string of the same name. A server that
renews by \`SET … IFEQ\` runs no script: 100,000 locks took 3.3 and 3.7 % of a core of Redis 8.6, 3.9 and 4.4 % of one of Valkey 9.1.`;

const QUESTION = 'What do held locks cost?';

export const HELD = { id: 'held', question: QUESTION, about: ABOUT, run };

async function run({ url, admin, flags: { heldSeconds }, fail }) {
  const [lines, rows] = [[], []];
  for (const count of COUNTS) {
    process.stderr.write(`held: ${count}, ${heldSeconds} s\n`);
    const child = new Child('held/worker.mjs', OWN, NODE_FLAGS);
    lines.push('', `${count.toLocaleString('en')} locks`);
    try {
      const result = await measure(child, { url, admin, count, ms: heldSeconds * 1000 });
      const [withTargets, withMemory] = [count === COUNTS.at(0), count === COUNTS.at(-1)];
      lines.push(...report(result, { withTargets, withMemory }));
      rows.push(row(count, result, withMemory));
    } catch (error) {
      fail(`${OWN}, ${count} held`, 'misbehaved', error.message);
    } finally {
      child.end();
    }
    await admin.deleteAll();
  }
  const title = `HELD  with a lease of 10 s, by one process for ${heldSeconds} s`;
  return { lines: [title, ...lines], table: markdown(HEADS, rows), charts: [] };
}

const HEADS = [
  'locks',
  'renewals/s',
  'CPU of the process',
  'CPU of the server',
  'shortest lease left, ms',
  'memory per lock, server, bytes',
  'process, bytes',
];

function row(count, result, withMemory) {
  const { renewals, share, serverShare, lowest, serverBytes, processBytes } = result;
  return [
    figure(count),
    figure(renewals),
    `${figure(share * 100, 1)} %`,
    `${figure(serverShare * 100, 1)} %`,
    figure(lowest),
    figure(serverBytes),
    figure(withMemory ? processBytes : Number.NaN),
  ];
}

async function measure(child, { url, admin, count, ms }) {
  const namesOf = (kind, length) =>
    Array.from({ length }, (_, index) => `${NAMES}${child.pid}:${kind}:${index}`);
  const names = namesOf('held', count);
  await child.ask('open', url);
  const emptyBytes = await child.ask('memory');
  await child.ask('warmUp', namesOf('other', OTHERS), BURDEN_MS);
  const plain = await admin.plainStrings(names);
  const [processBefore, serverBefore] = [await child.ask('memory'), await admin.memory()];
  await child.ask('acquire', names, BURDEN_MS);
  const processBytes = ((await child.ask('memory')) - processBefore) / count;
  const warmUpBytes = processBefore - emptyBytes;
  const serverBytes = ((await admin.memory()) - serverBefore) / count - plain;
  await sleep(SETTLE_MS);
  const cpuBefore = (await admin.work()).cpu;
  const result = await child.ask('keep', ms, ms);
  const serverShare = ((await admin.work()).cpu - cpuBefore) / (ms * 1000);
  const there = await admin.exists(names.map((name) => `lock:${name}`));
  if (there !== count || result.lost > 0) {
    throw new Error(`${result.lost} locks were lost, ${there} of ${count} are there`);
  }
  return { ...result, serverShare, warmUpBytes, processBytes, serverBytes, plain };
}

function report(result, { withTargets, withMemory }) {
  const { share, serverShare, lowest, renewals, requests } = result;
  const { serverBytes, plain } = result;
  const percent = (value) => `${(value * 100).toFixed(1)} % of a core`;
  const bound = (limits) => (withTargets ? limits : {});
  return [
    `renewals ${renewals.toFixed(0)}/s, requests ${requests.toFixed(0)}/s; ` +
      `the process ${percent(share)}, the server ${percent(serverShare)}`,
    `a plain string of the same name takes ${plain.toFixed(0)} bytes in the server`,
    judge('CPU share of the process', share * 100, { ...bound({ atMost: 3 }), unit: ' %' }),
    judge('lowest remaining of any lock', lowest, { ...bound({ atLeast: 5000 }), unit: ' ms' }, 0),
    judge('memory per lock in the server beyond it', serverBytes, { atMost: 400, unit: ' B' }, 0),
    ...(withMemory ? weighed(result) : []),
  ];
}

function weighed({ warmUpBytes, processBytes }) {
  const growth = (warmUpBytes / 2 ** 20).toFixed(0);
  return [
    judge('memory per lock in the process', processBytes, { atMost: 600, unit: ' B' }, 0),
    `before, to take five thousand at once and to hold ${OTHERS.toLocaleString('en')} others, the process had grown by ${growth} MiB`,
  ];
}
