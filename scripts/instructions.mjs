// Counts what a lock costs the client: instructions, cache misses, and bytes. A machine's speed varies by a third within
// minutes; counts of instructions vary by a percent, so they show a change of a few. Needs valgrind. What the kernel does
// is not counted, nor what V8's compilers do.
//
//   npm run instructions [-- WORD...]        the scenarios whose name contains a word, or all
//   npm run instructions -- --check          fails if one costs more than instructions/figures.json allows; with `--report`
//                                            it only says so
//   npm run instructions -- --accept         writes the figures; the commit says what was bought with them
//   npm run instructions -- --units 30000    how many units are counted
//
// Instructions are relative to `limit`, the hand-written snippet without a client library, counted in the same run:
// another version of Node changes both. What is too high is measured twice more, and the lowest counts.

import { parseArgs } from 'node:util';
import { YARDSTICK } from '../bench/pairs/peers.mjs';
import { excess, lower, readFigures, writeFigures } from './instructions/figures.mjs';
import { countInstructions, measureMemory } from './instructions/measure.mjs';
import { SCENARIOS } from './instructions/scenarios.mjs';

const TRIES = 3;
const COLUMNS = ['all', 'addon', 'node', 'compiled', 'C library', 'L1i miss', 'L1d miss'];
const PARTS = COLUMNS.slice(0, 5);

const { values: options, positionals: words } = parseArgs({
  allowPositionals: true,
  options: {
    units: { type: 'string', default: '30000' },
    check: { type: 'boolean', default: false },
    report: { type: 'boolean', default: false },
    accept: { type: 'boolean', default: false },
  },
});

console.log('INSTRUCTIONS  per unit, without the kernel\n');
console.log(row('', [...COLUMNS, `/ ${YARDSTICK}`]));
let yardstick;
yardstick = await count(YARDSTICK);
const measured = { instructions: {}, memory: {} };
for (const scenario of chosen()) measured.instructions[scenario] = await relative(scenario);
if (words.length === 0) await addMemory();
if (options.accept) await again(() => true);
if (options.check) {
  const figures = readFigures();
  const problem = (kind, name) => excess(kind, name, measured[kind][name], figures[kind][name]);
  await again((kind, name) => problem(kind, name) !== undefined);
  const problems = names().flatMap(([kind, name]) => problem(kind, name) ?? []);
  if (problems.length > 0) {
    console.error(
      `\nA lock costs more than instructions/figures.json says:\n${problems.join('\n')}`,
    );
    process.exitCode = options.report ? 0 : 1;
  }
}
if (options.accept) writeFigures(measured);

function chosen() {
  const others = Object.keys(SCENARIOS).filter((each) => each !== YARDSTICK);
  if (words.length === 0) return others;
  return others.filter((each) => words.some((word) => each.includes(word)));
}

/** Everything that was measured: its kind and its name. */
function names() {
  return Object.keys(measured).flatMap((kind) =>
    Object.keys(measured[kind]).map((name) => [kind, name]),
  );
}

/** Measures twice more what is `wanted`, and keeps the lowest. */
async function again(wanted) {
  for (let tries = 1; tries < TRIES; tries++) {
    const left = names().filter(([kind, name]) => wanted(kind, name));
    const scenarios = left.filter(([kind]) => kind === 'instructions').map(([, name]) => name);
    if (scenarios.length > 0) yardstick = await count(YARDSTICK);
    for (const scenario of scenarios) {
      const known = measured.instructions[scenario];
      measured.instructions[scenario] = lower(await relative(scenario), known);
    }
    if (left.length > scenarios.length) await addMemory();
  }
}

async function count(scenario) {
  const counts = await countInstructions(scenario, Number(options.units));
  const whole = COLUMNS.map((each) => Math.round(counts[each]).toLocaleString('en'));
  const ratio = yardstick === undefined ? 1 : counts.all / yardstick.all;
  console.log(row(scenario, [...whole, ratio.toFixed(3)]));
  return counts;
}

/** The counts of a scenario and of its parts, relative to those of the yardstick. */
async function relative(scenario) {
  const counts = await count(scenario);
  const parts = PARTS.map((part) => [part, Number((counts[part] / yardstick.all).toFixed(4))]);
  return Object.fromEntries(parts);
}

async function addMemory() {
  console.log('\nMEMORY  in bytes');
  for (const [name, bytes] of Object.entries(await measureMemory())) {
    console.log(row(name, [Math.round(bytes).toLocaleString('en')]));
    measured.memory[name] = lower(Math.round(bytes), measured.memory[name]);
  }
}

function row(head, cells) {
  return head.padEnd(26) + cells.map((cell) => cell.padStart(11)).join('');
}
