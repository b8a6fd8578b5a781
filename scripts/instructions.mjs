// Counts what an acquire and its release cost the client in instructions and cache misses, beside `limit` (bench/pairs).
// A machine's speed varies by a third within minutes; these counts hardly do, so they show a change of a few percent.
// Needs valgrind. What the kernel does is not counted.
//
//   npm run instructions [-- --levels 64,1000] [--pairs 30000]

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { namesFor } from '../bench/pairs/measure.mjs';
import { PEERS, YARDSTICK } from '../bench/pairs/peers.mjs';
import { startOwnServer } from '../bench/server.mjs';

const { values: options } = parseArgs({
  options: {
    levels: { type: 'string', default: '64,1000' },
    pairs: { type: 'string', default: '30000' },
    /** Set by this script for the process that it counts: participant and URL. */
    worker: { type: 'string', multiple: true },
  },
});
const pairs = Number(options.pairs);
const levels = options.levels.split(',').map(Number);
if (options.worker === undefined) await report();
else await work(...options.worker);

async function report() {
  const server = await startOwnServer();
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-instructions-'));
  try {
    console.log(
      'INSTRUCTIONS  acquire + release of distinct names, per pair, without the kernel\n',
    );
    console.log(row(['', 'all', 'addon', 'node', 'compiled', 'C library', 'L1i miss', 'L1d miss']));
    for (const level of levels) {
      for (const id of ['holdfast', YARDSTICK]) {
        const file = join(folder, `${id}.${level}`);
        count(file, id, server.url, level);
        console.log(row([`${level} in flight, ${id}`, ...columns(readFileSync(file, 'utf8'))]));
      }
    }
  } finally {
    rmSync(folder, { recursive: true });
    await server.stop();
  }
}

function count(file, id, url, level) {
  const valgrind = [
    '--tool=callgrind',
    '--instr-atstart=no',
    '--cache-sim=yes',
    '--smc-check=all-non-file',
    `--callgrind-out-file=${file}`,
  ];
  const own = ['--levels', String(level), '--pairs', String(pairs)];
  const args = [import.meta.filename, ...own, '--worker', id, '--worker', url];
  execFileSync('valgrind', [...valgrind, process.execPath, ...args], { stdio: 'pipe' });
}

/** The numbers of one run: instructions in all and by file, then misses. */
function columns(profile) {
  const totals = costs(profile);
  const sum = (index, wanted = () => true) =>
    [...totals].reduce((all, [file, cost]) => all + (wanted(file) ? cost[index] : 0), 0) / pairs;
  const by = (pattern) => sum(0, (file) => pattern.test(file));
  const [instructions, codeMiss, readMiss, writeMiss] = [0, 3, 4, 5].map((index) => sum(index));
  const files = [/holdfast/, /\/node$/, /^\?\?\?$/, /libc|ld-linux/].map(by);
  return [instructions, ...files, codeMiss, readMiss + writeMiss].map((each) =>
    Math.round(each).toLocaleString('en'),
  );
}

/**
 * The costs of each file's own code. A line of numbers after `calls=` is what a call cost, which its callee has counted.
 *
 * Source: <https://valgrind.org/docs/manual/cl-format.html>
 */
function costs(profile) {
  const names = new Map();
  const totals = new Map();
  let total;
  let isCall = false;
  for (const line of profile.split('\n')) {
    const object = /^c?ob=\((\d+)\)(?: (.*))?$/.exec(line);
    if (object !== null) {
      const [, id, name] = object;
      if (name !== undefined) names.set(id, name);
      const file = names.get(id);
      if (!totals.has(file)) totals.set(file, Array(9).fill(0));
      if (line.startsWith('ob=')) total = totals.get(file);
    } else if (line.startsWith('calls=')) {
      isCall = true;
    } else if (/^[\d+*-]/.test(line)) {
      if (!isCall)
        for (const [i, cost] of line.split(' ').slice(1).entries()) total[i] += Number(cost);
      isCall = false;
    }
  }
  return totals;
}

function row([head, ...cells]) {
  return head.padEnd(26) + cells.map((cell) => cell.padStart(11)).join('');
}

/** Runs under valgrind: twice as many pairs first, until V8 has compiled what it runs. */
async function work(id, url) {
  const [level] = levels;
  const peer = await PEERS.find((each) => each.id === id).open(url);
  const names = namesFor(id, level);
  await run(peer, names, level, 2 * pairs);
  const instrument = (on) => execFileSync('callgrind_control', ['-i', on, String(process.pid)]);
  instrument('on');
  await run(peer, names, level, pairs);
  instrument('off');
  process.exit();
}

function run(peer, names, level, count) {
  let left = count;
  const loop = async (slot) => {
    for (let index = slot; left > 0; index = (index + level) % names.length) {
      left -= 1;
      await peer.release(names[index], await peer.acquire(names[index]));
    }
  };
  return Promise.all(Array.from({ length: level }, (_, slot) => loop(slot)));
}
