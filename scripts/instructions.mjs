// Counts what a lock costs the client: instructions, bytes, and misses of the caches. A machine's speed varies by a third
// within minutes; counts of instructions vary by one or two percent, so they show a change of a few. Needs valgrind. What the
// kernel does is not counted, nor what V8's compilers and its collector of old objects do.
//
//   npm run instructions [-- WORD...]        the scenarios whose name contains a word, or all
//   npm run instructions -- --check          fails if one costs more than instructions/figures.json allows
//   npm run instructions -- --accept         writes the figures; the commit says what was bought with them
//   npm run instructions -- --misses         counts the misses of the caches, too, which takes half as long again
//   npm run instructions -- --units 20000    how many units are counted
//
// Instructions are relative to `limit`, the hand-written snippet without a client library, counted in the same run:
// another version of Node changes both. What is too high is measured twice more; the lowest counts.

import { parseArgs } from 'node:util';
import { YARDSTICK } from '../bench/pairs/peers.mjs';
import { excess, lower, readFigures, writeFigures } from './instructions/figures.mjs';
import { countInstructions, measureMemory } from './instructions/measure.mjs';
import { SCENARIOS } from './instructions/scenarios.mjs';

const TRIES = 3;
const PARTS = ['all', 'addon', 'node', 'compiled', 'C library'];

const { values: options, positionals: words } = parseArgs({
  allowPositionals: true,
  options: {
    units: { type: 'string', default: '20000' },
    misses: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    accept: { type: 'boolean', default: false },
  },
});

const columns = options.misses ? [...PARTS, 'L1i miss', 'L1d miss'] : PARTS;
console.log('INSTRUCTIONS  per unit, without the kernel\n');
console.log(row('', [...columns, `/ ${YARDSTICK}`]));
/** The lowest counts of each scenario. */
const counts = {};
const memory = {};
await count(YARDSTICK);
for (const scenario of chosen()) await count(scenario);
// One count in four is a tenth too high, which would hide as much in all others.
await count(YARDSTICK);
if (words.length === 0) await addMemory();
if (options.accept) await again(() => true);
if (options.check) {
  const figures = readFigures();
  const problem = ([kind, name, figure]) => excess(kind, name, figure, figures[kind][name]);
  await again((each) => problem(each) !== undefined);
  const problems = measured().flatMap((each) => problem(each) ?? []);
  if (problems.length > 0) {
    console.error(
      `\nA lock costs more than instructions/figures.json says:\n${problems.join('\n')}`,
    );
    process.exitCode = 1;
  }
}
if (options.accept) {
  const kinds = { instructions: {}, memory: {} };
  for (const [kind, name, figure] of measured()) kinds[kind][name] = figure;
  writeFigures(kinds);
}

function chosen() {
  const others = Object.keys(SCENARIOS).filter((each) => each !== YARDSTICK);
  if (words.length === 0) return others;
  return others.filter((each) => words.some((word) => each.includes(word)));
}

/** Everything that was measured: its kind, its name and its figure. */
function measured() {
  const scenarios = Object.keys(counts).filter((each) => each !== YARDSTICK);
  return [
    ...scenarios.map((name) => ['instructions', name, relative(name)]),
    ...Object.entries(memory).map(([name, bytes]) => ['memory', name, bytes]),
  ];
}

/** Measures twice more what is `wanted`. */
async function again(wanted) {
  for (let tries = 1; tries < TRIES; tries++) {
    const left = measured().filter(wanted);
    const scenarios = left.filter(([kind]) => kind === 'instructions').map(([, name]) => name);
    if (scenarios.length > 0) await count(YARDSTICK);
    for (const scenario of scenarios) await count(scenario);
    if (left.length > scenarios.length) await addMemory();
  }
}

async function count(scenario) {
  const { units, misses } = options;
  const now = await countInstructions(scenario, Number(units), { misses });
  counts[scenario] = lower(now, counts[scenario]);
  const whole = columns.map((each) => Math.round(now[each]).toLocaleString('en'));
  console.log(row(scenario, [...whole, (now.all / counts[YARDSTICK].all).toFixed(3)]));
}

/** The counts of a scenario and of its parts, relative to those of the yardstick. */
function relative(scenario) {
  const ratio = (part) => Number((counts[scenario][part] / counts[YARDSTICK].all).toFixed(4));
  return Object.fromEntries(PARTS.map((part) => [part, ratio(part)]));
}

async function addMemory() {
  console.log('\nMEMORY  in bytes');
  for (const [name, bytes] of Object.entries(await measureMemory())) {
    console.log(row(name, [Math.round(bytes).toLocaleString('en')]));
    memory[name] = lower(Math.round(bytes), memory[name]);
  }
}

function row(head, cells) {
  return head.padEnd(26) + cells.map((cell) => cell.padStart(11)).join('');
}
