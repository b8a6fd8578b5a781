// Mistakes drawn by lot: they were never shown to anybody, so they say how likely the next slip is to be noticed.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { compilerFails, javaScriptFails, makeCopy, ROOT, whileChanged } from './copy.mjs';
import { mistakesOf } from './maker.mjs';

/** Those that change nothing that anybody sees, each with the reason. */
const EQUIVALENT = join(ROOT, 'test', 'mutants', 'equivalent.json');
/** The tests that notice a fault of any part. */
const COMMON = ['acquire/bounds', 'conformance/embedded'];
/** The folders of `js` whose tests, or whose list of mistakes, have another name. */
const ADAPTERS = ['adapters', 'operators'];

/** Draws `count` mistakes of the files below `js/` whose paths begin with `folder`, and tells which are noticed. */
export async function sample({ count, seed, folder = 'js' }, lists) {
  const drawn = draw(all(folder), count, seed);
  console.log(`${drawn.length} mistakes, seed ${seed}`);
  makeCopy();
  const tallies = new Map();
  for (const mistake of drawn) {
    const tests = testsFor(mistake.file, lists);
    const change = (source) =>
      source.slice(0, mistake.start) + mistake.becomes + source.slice(mistake.end);
    const noticed = await whileChanged(
      mistake.file,
      change,
      async () => (await javaScriptFails(tests)) || compilerFails(),
    );
    const part = partOf(mistake.file);
    const tally = tallies.get(part) ?? { noticed: 0, of: 0 };
    tallies.set(part, { noticed: tally.noticed + Number(noticed), of: tally.of + 1 });
    console.log(`  ${noticed ? 'noticed' : 'missed '}  ${describe(mistake)}`);
  }
  const parts = [...tallies].sort(([a], [b]) => (a < b ? -1 : 1));
  for (const [part, tally] of parts) tell(part, tally);
  const sum = (key) => parts.reduce((total, [, tally]) => total + tally[key], 0);
  tell('all', { noticed: sum('noticed'), of: sum('of') });
}

/** All mistakes of the files of a folder, without those that were judged. */
function all(folder) {
  const judged = existsSync(EQUIVALENT) ? JSON.parse(readFileSync(EQUIVALENT, 'utf8')) : [];
  const known = new Set(judged.map(({ mistake }) => mistake));
  const files = readdirSync(join(ROOT, 'js'), { recursive: true })
    .map((file) => `js/${file}`)
    .filter((file) => file.endsWith('.ts') && file.startsWith(folder))
    .sort();
  return files.flatMap((file) => {
    const source = readFileSync(join(ROOT, file), 'utf8');
    return mistakesOf(file, source)
      .map((mistake) => ({
        file,
        was: source.slice(mistake.start, mistake.end),
        ...mistake,
        line: lineOf(source, mistake.start),
      }))
      .filter((mistake) => !known.has(keyOf(mistake)));
  });
}

/** By its text rather than its line, which moves. */
function keyOf({ file, kind, was, becomes }) {
  return `${file}: ${kind}: ${shown(was)} -> ${shown(becomes)}`;
}

function describe(mistake) {
  return `${mistake.line}: ${keyOf(mistake)}`;
}

/** The first `count` of `list` in an order that the seed decides. */
function draw(list, count, seed) {
  const next = random(seed);
  const rest = [...list];
  const drawn = [];
  while (drawn.length < count && rest.length > 0) {
    const [one] = rest.splice(Math.floor(next() * rest.length), 1);
    drawn.push(one);
  }
  return drawn;
}

/** mulberry32: numbers from 0 to 1. */
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The folder of `js` that a file is in; of adapters and annexes the one below. */
function partOf(file) {
  const [, first = '', second = ''] = file.split('/');
  return ADAPTERS.includes(first) ? `${first}/${second}` : first;
}

/** The words of the tests that cover a file: those of its folder, and those that the list of its folder names. */
function testsFor(file, lists) {
  const part = partOf(file);
  const last = part.split('/').at(-1);
  const list = lists.find(({ name }) => name === last);
  const listed = list?.mistakes.flatMap(({ tests }) => tests) ?? [];
  const own = existsSync(join(ROOT, 'test', part)) ? [`${part}/`] : [];
  const weather = existsSync(join(ROOT, 'test', 'weather', `${last}.ts`))
    ? [`weather/${last}`]
    : [];
  const common = ADAPTERS.some((each) => part.startsWith(each)) ? [] : COMMON;
  return [...new Set([...own, ...weather, ...listed, ...common])];
}

function tell(part, { noticed, of }) {
  const [low, high] = wilson(noticed, of).map((each) => Math.round(100 * each));
  const rate = Math.round((100 * noticed) / of);
  console.log(`${part.padEnd(28)} ${noticed} of ${of} noticed, ${rate} % (${low} to ${high} %)`);
}

/** The interval that has the true rate with 95 %. */
function wilson(noticed, of) {
  const z = 1.96;
  const rate = noticed / of;
  const middle = rate + z ** 2 / (2 * of);
  const reach = z * Math.sqrt((rate * (1 - rate)) / of + z ** 2 / (4 * of ** 2));
  const scale = 1 + z ** 2 / of;
  return [(middle - reach) / scale, (middle + reach) / scale];
}

function lineOf(source, at) {
  return source.slice(0, at).split('\n').length;
}

function shown(text) {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length > 90 ? `${line.slice(0, 90)}…` : line;
}
