// Runs the compiled tests with Node's own runner.
//
//   node scripts/test.mjs              those that show on each machine that it works there
//   node scripts/test.mjs --thorough   those that show what no machine changes: faults, servers that fail, each step broken
//   node scripts/test.mjs --quick      the promises on the store inside the process, and on the servers of this machine
//   node scripts/test.mjs --left-out   what these runs left out, since the last of the first kind
//   node scripts/test.mjs --full       all but those of other platforms
//   node scripts/test.mjs WORD...      the files whose path contains one of the words
//
// With TRY_FAILED_AGAIN=1 the files of failed tests run once more, alone, when they are few, and those that pass then are named:
// each has a fault of its own, in the test or in what it tests, but is no reason to refuse a change that has nothing to do with it.
//
// The first three leave out the files that need a program which this machine lacks, and name them at the end with the command
// that installs it. In the others a missing program fails the tests that need it. Other flags are those of the runner.

import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, relative } from 'node:path';
import { LONG } from './long-tests.mjs';

/** What takes minutes as well, and depends on the machine in nothing. */
const THOROUGH = [
  'behaviour/conformance/neighbour', // the promises once more, beside another
  'behaviour/conformance/reader',
  'behaviour/kinds/',
  'behaviour/lifecycle/',
  'connect/rotations',
  'faults/',
  'adapters/redlock/rolling',
  'steps/',
  'support/topologies',
  'topologies/',
  'weather/slow',
];

const QUICK = ['behaviour/conformance/conformance', 'behaviour/conformance/embedded'];

/** They need addons that are built apart, and root: `npm run test:platforms`. */
const OTHER_PLATFORMS = 'platforms';

/** The most files that run once more. */
const FEW = 4;

const MODES = ['--quick', '--thorough', '--left-out', '--full'];

const build = join(import.meta.dirname, '..', 'build');
const root = join(build, 'test');
const tools = join(root, 'support', 'tools.js');
if (!existsSync(tools)) fail('the tests are not compiled: run `npm run build:js`');
const { howToGet, lackingFor } = await import(tools);
/** The files that the last run left out, for `--left-out`. */
const leftOutFile = join(build, 'left-out.json');

const given = process.argv.slice(2);
const words = given.filter((argument) => !argument.startsWith('-'));
const flags = given.filter((argument) => argument.startsWith('-') && !MODES.includes(argument));
const mode = words.length > 0 ? 'words' : given.find((argument) => MODES.includes(argument));
const leavesOut = mode === undefined || mode === '--quick' || mode === '--thorough';

const all = readdirSync(root, { recursive: true }).filter((file) => file.endsWith('.test.js'));
const here = all.filter((file) => !file.startsWith(OTHER_PLATFORMS)).sort();
const gone = [...LONG, ...THOROUGH, ...QUICK].find(
  (start) => !all.some((file) => file.startsWith(start)),
);
if (gone !== undefined) fail(`scripts/test.mjs names tests that are not there: ${gone}`);
const long = here.filter((file) => startsWithOne(file, LONG));
const thorough = here.filter((file) => startsWithOne(file, THOROUGH) && !long.includes(file));
const wanted = wantedFiles();
/** The files that are left out, by what they need. */
const lacking = leavesOut ? filesByWhatTheyLack() : new Map();
const leftOut = new Set([...lacking.values()].flat());
const chosen = wanted.filter((file) => !leftOut.has(file));

const args = [
  '--test',
  '--enable-source-maps',
  '--expose-gc',
  // The quorums of the tests keep no data over a restart, on purpose.
  '--disable-warning=WARN_LOCK_PERSISTENCE',
  // Repeats the failures at the end, wherever it is printed.
  `--test-reporter=${join(import.meta.dirname, 'test-reporter.mjs')}`,
  // A test that hangs fails; no file takes a third of this, but what is emulated takes long.
  `--test-timeout=${chosen.some((file) => file.startsWith(OTHER_PLATFORMS)) ? 1_800_000 : 300_000}`,
  ...flags,
];
// Most tests wait for a server or a lease most of the time.
const failed = run(
  chosen.map((file) => join(root, file)),
  2 * availableParallelism(),
);
const tryAgain = process.env.TRY_FAILED_AGAIN === '1' && chosen.length > 0 && failed.length <= FEW;
const failedTwice = tryAgain && failed.length > 0 ? failedAgain(failed) : failed;
if (leavesOut) rememberLeftOut();
tellLeftOut();
process.exit(failedTwice.length === 0 ? 0 : 1);

/** Runs files; returns those with a failed test, or all where the runner did not say which. */
function run(files, concurrency) {
  // Without files the runner would look for some.
  if (files.length === 0) return ['no file'];
  const told = join(build, 'failed.json');
  rmSync(told, { force: true });
  const env = {
    ...process.env,
    HOLDFAST_TEST_FILES: String(files.length),
    HOLDFAST_TEST_FAILED: told,
  };
  const all = [...args, `--test-concurrency=${concurrency}`, ...files];
  const { status } = spawnSync(process.execPath, all, { stdio: 'inherit', env });
  if (status === 0) return [];
  const names = existsSync(told) ? JSON.parse(readFileSync(told, 'utf8')) : [];
  return names.length > 0 ? names : files;
}

function failedAgain(files) {
  const named = (some) => some.map((file) => `\n  ${relative(root, file)}`).join('');
  console.log(`once more, alone:${named(files)}`);
  const still = run(files, 1);
  const passed = files.filter((file) => !still.includes(file));
  if (passed.length > 0) console.log(`passed at the second try only:${named(passed)}`);
  return still;
}

/** What this run is asked for. */
function wantedFiles() {
  if (mode === 'words') {
    const matching = all.filter((file) => words.some((word) => file.includes(word))).sort();
    return matching.length > 0 ? matching : fail(`no test matches ${words.join(' ')}`);
  }
  if (mode === '--left-out') {
    const files = knownLeftOut();
    return files.length > 0 ? files : fail('the last runs left nothing out for want of a program');
  }
  if (mode === '--quick') return here.filter((file) => startsWithOne(file, QUICK));
  if (mode === '--thorough') return thorough;
  if (mode === '--full') return here;
  return here.filter((file) => !long.includes(file) && !thorough.includes(file));
}

function knownLeftOut() {
  return existsSync(leftOutFile) ? JSON.parse(readFileSync(leftOutFile, 'utf8')) : [];
}

function rememberLeftOut() {
  const before = mode === '--thorough' ? knownLeftOut() : [];
  writeFileSync(leftOutFile, JSON.stringify([...new Set([...before, ...leftOut])]));
}

function filesByWhatTheyLack() {
  const files = new Map();
  for (const file of wanted) {
    for (const tool of lackingFor(join(root, file))) {
      const way = howToGet(tool);
      files.set(way, [...(files.get(way) ?? []), file]);
    }
  }
  return files;
}

function startsWithOne(file, starts) {
  return starts.some((start) => file.startsWith(start));
}

function tellLeftOut() {
  const lines = [...lacking].map(([way, files]) => {
    const names = files.map((file) => file.replace(/\.test\.js$/, ''));
    return `${names.length === 1 ? 'a file needs' : `${names.length} files need`} ${way}: ${names.join(', ')}`;
  });
  if (mode === undefined) {
    lines.unshift(
      `${thorough.length} files break it in every way, in some minutes: npm run test:thorough`,
      `${long.length} files take long; \`npm run test:full\` runs them, too`,
    );
  }
  if (lines.length > 0) console.log(['left out:', ...lines].join('\n  '));
}

function fail(message) {
  console.error(message);
  process.exit(1);
}
