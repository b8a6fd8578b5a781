// Puts plausible mistakes into a copy of the project, one at a time, and runs the tests that are to notice each.
//
//   npm run mutants -- [WORD...]   the lists of test/mutants whose names contain one of the words
//
// A list is a file for each folder of `js`, or a part of the core. A mistake that no test notices needs a reason why it
// changes nothing that anybody sees. Ends with code 1 if a mistake does not apply, or too many of a list are missed.
//
// The copy is in target/mutants, so the sources stay as they are, however this ends.

import { spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const ROOT = join(import.meta.dirname, '..');
const LISTS = join(ROOT, 'test', 'mutants');
const COPY = join(ROOT, 'target', 'mutants', 'copy');
/** What is built or changed in the copy; all else is the project's own. */
const COPIED = ['js', 'src', 'package.json', 'build', 'dist'];
const LEFT_OUT = ['.git', 'target'];
/** The part of the mistakes of a list that the tests must notice. */
const NOTICED = 0.9;
/** Tests that take longer wait for something that never comes: the mistake is noticed, but late. */
const LIMIT_MS = 240_000;

const words = process.argv.slice(2);
const names = readdirSync(LISTS).filter((file) => file.endsWith('.mjs'));
const chosen = names.filter(
  (file) => words.length === 0 || words.some((word) => file.includes(word)),
);
if (chosen.length === 0) fail(`no list of ${LISTS} matches ${words.join(' ')}`);
const lists = await Promise.all(chosen.map(readList));
const stale = lists.flatMap(({ name, mistakes }) =>
  mistakes.flatMap((each) => doesNotApply(name, each)),
);
if (stale.length > 0) fail(stale.join('\n'));
if (!existsSync(join(ROOT, 'build', 'test')))
  fail('the tests are not compiled: run `npm run build:js`');
makeCopy();
const missed = lists.filter((list) => !isNoticed(list));
process.exitCode = missed.length === 0 ? 0 : 1;

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

function makeCopy() {
  rmSync(COPY, { recursive: true, force: true });
  mkdirSync(COPY, { recursive: true });
  for (const entry of readdirSync(ROOT)) {
    if (LEFT_OUT.includes(entry)) continue;
    if (COPIED.includes(entry)) cpSync(join(ROOT, entry), join(COPY, entry), { recursive: true });
    else symlinkSync(join(ROOT, entry), join(COPY, entry));
  }
}

/** Makes the mistakes of a list, and says which were noticed. */
function isNoticed({ name, mistakes }) {
  const all = [...new Set(mistakes.flatMap(({ tests }) => tests))];
  const isJavaScript = mistakes.every(({ file }) => file.startsWith('js/'));
  const check = isJavaScript ? javaScriptFails : rustFails;
  if (check(all)) fail(`${name}: the tests fail without a mistake: ${all.join(' ')}`);
  let noticed = 0;
  for (const mistake of mistakes) {
    const isSeen = withMistake(mistake, check);
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

function withMistake({ file, was, becomes, tests }, check) {
  const path = join(COPY, file);
  const source = readFileSync(path, 'utf8');
  // A function: `$` has no meaning in what it returns.
  writeFileSync(
    path,
    source.replace(was, () => becomes),
  );
  const fails = check(tests);
  writeFileSync(path, source);
  return fails;
}

/** Whether a build of JavaScript, or the files of tests whose paths contain one of `words`, fail. */
function javaScriptFails(words) {
  const rolldown = join(ROOT, 'node_modules', '.bin', 'rolldown');
  if (!succeeds(rolldown, ['--config', 'js/rolldown.config.mjs'])) return true;
  const root = join(COPY, 'build', 'test');
  const files = readdirSync(root, { recursive: true }).filter(
    (file) => file.endsWith('.test.js') && words.some((word) => file.includes(word)),
  );
  if (files.length === 0) fail(`no test matches ${words.join(' ')}`);
  const args = ['--test', '--expose-gc', '--test-timeout=120000'];
  return !succeeds(process.execPath, [...args, ...files.map((file) => join(root, file))]);
}

/** Whether the core does not build, or its unit tests whose names contain one of `words` fail. */
function rustFails(words) {
  const target = join(COPY, '..', 'rust');
  const args = [
    'test',
    '--quiet',
    '--no-default-features',
    '--features',
    'core',
    '--target-dir',
    target,
  ];
  return !succeeds('cargo', [...args, '--', ...words]);
}

function succeeds(program, args) {
  const { status } = spawnSync(program, args, { cwd: COPY, stdio: 'ignore', timeout: LIMIT_MS });
  return status === 0;
}

function shown(text) {
  const line = text.replace(/\s+/g, ' ').trim();
  return JSON.stringify(line.length > 70 ? `${line.slice(0, 70)}…` : line);
}

function fail(message) {
  console.error(message);
  process.exit(1);
}
