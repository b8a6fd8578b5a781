// Counts what a lock costs the client in instructions and cache misses. A machine's speed varies by a third within minutes;
// these counts hardly do on a machine that does nothing else, so they show a change of a few percent. Needs valgrind. What
// the kernel does is not counted.
//
//   npm run instructions [-- WORD...]        the scenarios whose name contains a word, or all
//   npm run instructions -- --check          fails if one costs more than 2 % more than instructions/figures.json says
//   npm run instructions -- --accept         writes the counts there; the commit says what was bought with them
//   npm run instructions -- --units 30000    how many are counted
//
// Figures are relative to `limit`, the hand-written snippet without a client library, counted in the same run: another
// version of Node changes both.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { YARDSTICK } from '../bench/pairs/peers.mjs';
import { startOwnServer } from '../bench/server.mjs';
import { countsOf } from './instructions/profile.mjs';
import { SCENARIOS } from './instructions/scenarios.mjs';

/** More than this part above its figure fails. */
const TOLERANCE = 0.02;
/** Units before the counted ones, per counted unit: until V8 has compiled what it runs. */
const WARM_UP = 3;
const FIGURES = join(import.meta.dirname, 'instructions', 'figures.json');
const COLUMNS = ['all', 'addon', 'node', 'compiled', 'C library', 'L1i miss', 'L1d miss'];
const PARTS = COLUMNS.slice(0, 5);

const { values: options, positionals: words } = parseArgs({
  allowPositionals: true,
  options: {
    units: { type: 'string', default: '30000' },
    check: { type: 'boolean', default: false },
    accept: { type: 'boolean', default: false },
    /** Set by this script for the process that it counts: scenario and URL. */
    worker: { type: 'string', multiple: true },
  },
});
if (options.worker === undefined) await report();
else await work(...options.worker);

async function report() {
  const server = await startOwnServer();
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-instructions-'));
  try {
    console.log('INSTRUCTIONS  per unit, without the kernel\n');
    console.log(row('', [...COLUMNS, `/ ${YARDSTICK}`]));
    const counts = {};
    for (const scenario of chosen()) {
      counts[scenario] = count(scenario, server.url, join(folder, 'profile'));
      const relative = (counts[scenario].all / counts[YARDSTICK].all).toFixed(3);
      console.log(
        row(scenario, [...COLUMNS.map((each) => written(counts[scenario][each])), relative]),
      );
    }
    if (options.accept) accept(counts);
    if (options.check) check(counts);
  } finally {
    rmSync(folder, { recursive: true });
    await server.stop();
  }
}

/** The yardstick comes first. */
function chosen() {
  const all = Object.keys(SCENARIOS);
  if (words.length === 0) return all;
  return all.filter((each) => each === YARDSTICK || words.some((word) => each.includes(word)));
}

function count(scenario, url, file) {
  const valgrind = [
    '--tool=callgrind',
    '--instr-atstart=no',
    '--cache-sim=yes',
    '--smc-check=all-non-file',
    `--callgrind-out-file=${file}`,
  ];
  const own = ['--units', options.units, '--worker', scenario, '--worker', url];
  const args = [...valgrind, process.execPath, import.meta.filename, ...own];
  const stdout = execFileSync('valgrind', args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  return countsOf(readFileSync(file, 'utf8'), Number(stdout));
}

/** Runs under valgrind, and prints how many units were counted. */
async function work(scenario, url) {
  const { open, units: part = 1 } = SCENARIOS[scenario];
  const units = Math.ceil(Number(options.units) * part);
  const run = await open(url);
  await run(WARM_UP * units);
  const instrument = (on) => execFileSync('callgrind_control', ['-i', on, String(process.pid)]);
  instrument('on');
  const counted = await run(units);
  instrument('off');
  process.stdout.write(String(counted), () => process.exit());
}

function accept(counts) {
  const known = words.length === 0 ? {} : JSON.parse(readFileSync(FIGURES, 'utf8'));
  for (const [scenario, each] of Object.entries(counts)) {
    if (scenario !== YARDSTICK) known[scenario] = relativeTo(counts[YARDSTICK], each);
  }
  writeFileSync(FIGURES, `${JSON.stringify(known, null, 2)}\n`);
}

function check(counts) {
  const figures = JSON.parse(readFileSync(FIGURES, 'utf8'));
  const dearer = Object.entries(counts).flatMap(([scenario, each]) => {
    if (scenario === YARDSTICK) return [];
    const [now, before] = [relativeTo(counts[YARDSTICK], each), figures[scenario]];
    if (before === undefined) return [`${scenario}: no figure; run with --accept`];
    if (now.all <= before.all * (1 + TOLERANCE)) return [];
    const parts = PARTS.map((part) => `${part} ${before[part]} -> ${now[part]}`);
    return [`${scenario}: ${percent(now.all / before.all - 1)} more, ${parts.join(', ')}`];
  });
  if (dearer.length === 0) return;
  console.error(`\nA lock costs more, relative to ${YARDSTICK}:\n${dearer.join('\n')}`);
  process.exitCode = 1;
}

function relativeTo(yardstick, counts) {
  const parts = PARTS.map((part) => [part, Number((counts[part] / yardstick.all).toFixed(4))]);
  return Object.fromEntries(parts);
}

function percent(part) {
  return `${(100 * part).toFixed(1)} %`;
}

function written(count) {
  return Math.round(count).toLocaleString('en');
}

function row(head, cells) {
  return head.padEnd(26) + cells.map((cell) => cell.padStart(11)).join('');
}
