// Runs the compiled tests with Node's own runner.
//
//   node scripts/test.mjs            all but the long ones; what the machine lacks is left out and named at the end
//   node scripts/test.mjs --full     all but those of other platforms; a missing program fails the tests that need it
//   node scripts/test.mjs WORD...    the files whose path contains one of the words
//
// Other flags are those of the runner.

import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';

/** What takes minutes, or fetches much. */
const LONG = [
  'adapters/compat/', // deploys beside the clients of other libraries
  'behaviour/conformance/forgetful',
  'behaviour/conformance/servers', // the servers that .ci/servers fetches
  'behaviour/conformance/resp2',
  'behaviour/conformance/runtimes', // Bun and Deno
  'behaviour/lifecycle/worker', // workers that come and go for a minute
  'behaviour/waiting/wakeups',
  'faults/torture/campaign',
  'faults/torture/histories',
  'package/', // runtimes, package managers, bundlers, frameworks
];

/** They need addons that are built apart, and root: `npm run test:platforms`. */
const OTHER_PLATFORMS = 'platforms';

const root = join(import.meta.dirname, '..', 'build', 'test');
const tools = join(root, 'support', 'tools.js');
if (!existsSync(tools)) fail('the tests are not compiled: run `npm run build:js`');
const { howToGet, missingTools } = await import(tools);

const given = process.argv.slice(2);
const words = given.filter((argument) => !argument.startsWith('-'));
const flags = given.filter((argument) => argument.startsWith('-') && argument !== '--full');
const choose = words.length > 0 || given.includes('--full') ? () => true : isOfEveryRun;
const missing = missingTools();

const files = readdirSync(root, { recursive: true })
  .filter((file) => file.endsWith('.test.js'))
  .filter((file) => words.length > 0 || !file.startsWith(OTHER_PLATFORMS))
  .filter((file) => words.length === 0 || words.some((word) => file.includes(word)))
  .sort();
const chosen = files.filter(choose);
if (chosen.length === 0) fail(`no test matches ${words.join(' ')}`);

const args = [
  '--test',
  // Most tests wait for a server or a lease most of the time.
  `--test-concurrency=${2 * availableParallelism()}`,
  '--enable-source-maps',
  '--expose-gc',
  // The quorums of the tests keep no data over a restart, on purpose.
  '--disable-warning=WARN_LOCK_PERSISTENCE',
  // Repeats the failures at the end, wherever it is printed.
  '--test-reporter=spec',
  // A test that hangs fails; no file takes a third of this, but what is emulated takes long.
  `--test-timeout=${chosen.some((file) => file.startsWith(OTHER_PLATFORMS)) ? 1_800_000 : 300_000}`,
  ...flags,
  ...chosen.map((file) => join(root, file)),
];
const { status } = spawnSync(process.execPath, args, { stdio: 'inherit' });
if (chosen.length < files.length) console.log(leftOut());
process.exit(status ?? 1);

/** Whether `npm test` runs it on this machine. */
function isOfEveryRun(file) {
  return !startsWithOne(file, LONG) && !missing.some(({ tests }) => startsWithOne(file, tests));
}

function startsWithOne(file, starts) {
  return starts.some((start) => file.startsWith(start));
}

function leftOut() {
  const long = files.filter((file) => startsWithOne(file, LONG)).length;
  const lacking = missing.map(
    (tool) =>
      `\n  ${files.filter((file) => startsWithOne(file, tool.tests)).length} files that need ${howToGet(tool)}`,
  );
  return `left out: ${long} files that take long, which \`npm run test:full\` runs${lacking.join('')}`;
}

function fail(message) {
  console.error(message);
  process.exit(1);
}
