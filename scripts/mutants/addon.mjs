// Mistakes of the core that no unit test notices, in one build of the addon: the tests of JavaScript judge them on real servers.

import { copyFileSync, existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { LONG } from '../long-tests.mjs';
import { makeCopy, ROOT } from './copy.mjs';
import { buildAddon, WORK } from './core-build.mjs';
import { inLanes } from './lanes.mjs';
import { runTest, sharedFolder, testsOf } from './switched.mjs';
import { judge } from './trial.mjs';

const COPY = join(WORK, 'addon');
const NATIVE = 'native';
/** The tests whose subject is the core; those of adapters use it alike. */
const OF_THE_CORE = [
  'acquire/',
  'behaviour/',
  'connect/',
  'faults/',
  'lock/',
  'manager/',
  'native/',
  'topologies/',
];
/** For a file without a mistake. */
const LIMIT_MS = 120_000;

/** Tells of each mistake whether tests of JavaScript notice it; all are in the copy that was built last. */
export async function judgeByAddon(mistakes) {
  if (mistakes.length === 0) return [];
  makeCopy(COPY, ['package.json', 'build', 'dist', NATIVE]);
  const [addon] = readdirSync(join(ROOT, NATIVE)).filter((file) => file.endsWith('.node'));
  copyFileSync(buildAddon(), join(COPY, NATIVE, addon));
  const measuredOnce = await inLanes(await testsOfTheCore(), measured);
  const left = measuredOnce.filter(({ ended }) => ended !== 'passed');
  for (const { file, ended } of left) console.log(`  left out: ${file} ${ended} without a mistake`);
  const tests = measuredOnce.filter((each) => !left.includes(each));
  return judge(mistakes, tests, {
    ownFolder: () => 'faults/',
    runTest: (...run) => runTest(...run, COPY),
    made: ({ number }) => ({ HOLDFAST_MUTANT: String(number) }),
  });
}

async function testsOfTheCore() {
  const { lackingFor } = await import(join(testsOf(COPY), 'support', 'tools.js'));
  const startsWithOne = (file, starts) => starts.some((start) => file.startsWith(start));
  return readdirSync(testsOf(COPY), { recursive: true })
    .filter((file) => file.endsWith('.test.js') && startsWithOne(file, OF_THE_CORE))
    .filter((file) => !startsWithOne(file, LONG))
    .filter((file) => lackingFor(join(testsOf(COPY), file)).length === 0);
}

/** How long a file of tests takes, and which mistakes it reaches. */
async function measured(file) {
  const folder = sharedFolder('reached-');
  const told = join(folder, 'numbers');
  const { ended, ms } = await runTest(file, { HOLDFAST_REACHED: told }, LIMIT_MS, COPY);
  const lines = existsSync(told) ? readFileSync(told, 'utf8').split('\n') : [];
  rmSync(folder, { recursive: true });
  const numbers = new Set(lines.map((line) => Number.parseInt(line, 10)));
  return { file, ended, ms, reaches: ({ number }) => numbers.has(number) };
}
