// Puts plausible mistakes into a copy of the project, one at a time, and runs the tests that are to notice each.
//
//   npm run mutants -- [WORD...]   the lists of test/mutants whose names contain one of the words
//   npm run mutants -- --applies   only whether each mistake of the lists can be made
//   npm run mutants -- --sample 100 [--seed 7] [--folder js/once] [--since COMMIT]   mistakes drawn by lot, of JavaScript
//   npm run mutants -- --sample 100 [--seed 7] --folder src/machine   of Rust; `--folder lua`: of the scripts
//
// A list is a file for each folder of `js`, or a part of the core. A mistake that no test notices needs a reason why it
// changes nothing that anybody sees. Ends with code 1 if a mistake does not apply, or too many of a list are missed.
//
// The copy is in target/mutants, so the sources stay as they are, however this ends.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { javaScriptFails, makeCopy, ROOT, rustFails, whileChanged } from './mutants/copy.mjs';

const LISTS = join(ROOT, 'test', 'mutants');
/** The part of the mistakes of a list that the tests must notice. */
const NOTICED = 0.9;

const { values, positionals: words } = parseArgs({
  allowPositionals: true,
  options: {
    applies: { type: 'boolean', default: false },
    sample: { type: 'string' },
    seed: { type: 'string', default: '1' },
    folder: { type: 'string' },
    since: { type: 'string' },
  },
});
const names = readdirSync(LISTS).filter((file) => file.endsWith('.mjs'));
const chosen = names.filter(
  (file) => words.length === 0 || words.some((word) => file.includes(word)),
);
if (chosen.length === 0) fail(`no list of ${LISTS} matches ${words.join(' ')}`);
const lists = await Promise.all(chosen.map(readList));
if (values.sample !== undefined) {
  const { folder, since } = values;
  const lot = { count: Number(values.sample), seed: Number(values.seed), folder, since };
  if (/^(src|lua)\b/.test(folder)) {
    const { sampleCore } = await import('./mutants/core.mjs');
    await sampleCore(lot);
  } else {
    checkBuilt();
    const { sample } = await import('./mutants/lot.mjs');
    await sample(lot);
  }
  process.exit(0);
}
const stale = lists.flatMap(({ name, mistakes }) =>
  mistakes.flatMap((each) => doesNotApply(name, each)),
);
if (stale.length > 0) fail(stale.join('\n'));
if (values.applies) process.exit(0);
checkBuilt();
makeCopy();
for (const list of lists) if (!(await isNoticed(list))) process.exitCode = 1;

/** A list of `{ file, was, becomes, tests, argued }`; `tests` by default those of the list. */
async function readList(file) {
  const { tests, mistakes } = (await import(pathToFileURL(join(LISTS, file)).href)).default;
  const name = file.replace(/\.mjs$/, '');
  return { name, mistakes: mistakes.map((each) => ({ tests, ...each })) };
}

/** Why a mistake cannot be made: the text must be there once. */
function doesNotApply(name, { file, was, becomes }) {
  const source = existsSync(join(ROOT, file)) ? readFileSync(join(ROOT, file), 'utf8') : '';
  const count = source.split(was).length - 1;
  if (count === 1 && was !== becomes) return [];
  return [`${name}: "${was}" is ${count} times in ${file}`];
}

/** Makes the mistakes of a list, and says which were noticed. */
async function isNoticed({ name, mistakes }) {
  const all = [...new Set(mistakes.flatMap(({ tests }) => tests))];
  const isJavaScript = mistakes.every(({ file }) => file.startsWith('js/'));
  const check = isJavaScript ? javaScriptFails : rustFails;
  if (await check(all)) fail(`${name}: the tests fail without a mistake: ${all.join(' ')}`);
  let noticed = 0;
  for (const mistake of mistakes) {
    const isSeen = await withMistake(mistake, check);
    if (isSeen || mistake.argued !== undefined) noticed += 1;
    if (isSeen) continue;
    const what = `${mistake.file}: ${shown(mistake.was)} -> ${shown(mistake.becomes)}`;
    console.log(
      mistake.argued === undefined ? `  missed  ${what}` : `  argued  ${what}: ${mistake.argued}`,
    );
  }
  console.log(`${name.padEnd(20)} ${noticed} of ${mistakes.length} noticed`);
  return noticed >= NOTICED * mistakes.length;
}

function checkBuilt() {
  if (existsSync(join(ROOT, 'build', 'test'))) return;
  fail('the tests are not compiled: run `npm run build:js`');
}

function withMistake({ file, was, becomes, tests }, check) {
  // A function: `$` has no meaning in what it returns.
  const change = (source) => source.replace(was, () => becomes);
  return whileChanged(file, change, () => check(tests));
}

function shown(text) {
  const line = text.replace(/\s+/g, ' ').trim();
  return JSON.stringify(line.length > 70 ? `${line.slice(0, 70)}…` : line);
}

function fail(message) {
  console.error(message);
  process.exit(1);
}
