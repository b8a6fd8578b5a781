// Mistakes drawn by lot: they were never shown to anybody, so they say how likely the next slip is to be noticed.

import { spawnSync } from 'node:child_process';
import { Compiler } from './compiler.mjs';
import { ROOT } from './copy.mjs';
import { inLanes } from './lanes.mjs';
import { makeMistakes } from './mistakes.mjs';
import { reachOfTests } from './reach.mjs';
import { buildSwitched, runTest } from './switched.mjs';
import { describe, equivalents, keyOf, shuffled, tell } from './tally.mjs';

/** The folders of `js` whose own folders are parts. */
const ADAPTERS = ['adapters', 'operators'];
/** So much longer a file of a mistake's own folder may take, and still runs before one of another. */
const OWN_SOONER = 8;
/** The tests of one mistake take no longer together, while no mistake is made. */
const BUDGET_MS = 90_000;

/**
 * Draws `count` mistakes of the files whose paths begin with `folder`, from the lines that changed since a commit if one is
 * named, and tells which are noticed.
 */
export async function sample({ count, seed, folder = 'js', since }) {
  const { mistakes, texts } = await makeMistakes();
  const changed = since === undefined ? undefined : changedLines(since);
  const eligible = mistakes
    .filter(({ file }) => file.startsWith(folder))
    .filter(({ file, line }) => changed === undefined || changed.get(file)?.has(line));
  const compiler = new Compiler();
  const { drawn, equal, refused } = draw(shuffled(eligible, seed), count, compiler);
  console.log(`${drawn.length} mistakes of ${eligible.length}, seed ${seed}`);
  console.log(`  the compiler refuses ${refused.length} others`);
  for (const { mistake, reason } of equal)
    console.log(`  equal    ${describe(mistake)}: ${reason}`);
  await buildSwitched(texts);
  const { tests, leftOut } = await reachOfTests(mistakes);
  for (const { file, why } of leftOut) console.log(`  left out: ${file} ${why} without a mistake`);
  const judged = await inLanes(drawn, async (mistake) => {
    const result = await judge(mistake, tests);
    // The file of a mistake may pass, and another be refused for its sake.
    const isRefused = !result.isNoticed && compiler.refuses(mistake, { everywhere: true });
    const word = isRefused ? 'refused' : result.isNoticed ? 'noticed' : 'missed ';
    console.log(`  ${word}  ${describe(mistake)}\n             ${result.how}`);
    return { ...result, part: partOf(mistake.file), isRefused };
  });
  tell(judged.filter(({ isRefused }) => !isRefused));
}

/** The first mistakes of a list that the compiler accepts, without those that were judged equal. */
function draw(list, count, compiler) {
  const reasons = equivalents();
  const drawn = [];
  const equal = [];
  const refused = [];
  for (const mistake of list) {
    if (drawn.length === count) break;
    const reason = reasons.get(keyOf(mistake));
    if (reason !== undefined) equal.push({ mistake, reason });
    else if (compiler.refuses(mistake)) refused.push(mistake);
    else drawn.push(mistake);
  }
  return { drawn, equal, refused };
}

/** Runs the tests that reach a mistake until one fails: the quickest first, and those of its own folder sooner. */
async function judge(mistake, tests) {
  const own = `${partOf(mistake.file)}/`;
  const costOf = ({ file, ms }) => (file.startsWith(own) ? ms / OWN_SOONER : ms);
  const reaching = tests
    .filter(({ reaches }) => reaches(mistake))
    .sort((a, b) => costOf(a) - costOf(b));
  let ms = 0;
  let ran = 0;
  for (const test of reaching) {
    if (ms + test.ms > BUDGET_MS) continue;
    ms += test.ms;
    const ended = await endedWith(mistake.id, test);
    if (ended === 'passed') ran += 1;
    else if (ended !== 'slow') return { isNoticed: true, how: `${test.file} ${ended}` };
  }
  const isCut = ran < reaching.length;
  const passed = `${ran} of ${reaching.length} tests that reach it passed`;
  return { isNoticed: false, isCut, how: isCut ? `not all were run: ${passed}` : passed };
}

/**
 * How a file of tests ends with a mistake. Only a failure that is repeated is no accident, and one that takes too long only
 * if the file ends in time without the mistake: the machine may be slow.
 */
async function endedWith(id, { file, ms }) {
  const limit = 2 * ms + 15_000;
  const run = async (variables) => (await runTest(file, variables, limit)).ended;
  const withMistake = { __STRYKER_ACTIVE_MUTANT__: id };
  const ended = await run(withMistake);
  if (ended === 'passed') return ended;
  if (ended === 'hung' && (await run({})) !== 'passed') return 'slow';
  return run(withMistake);
}

/** The lines of each file that a commit did not have. */
function changedLines(since) {
  const args = ['diff', '--unified=0', '--no-color', since, '--', 'js'];
  const { status, stdout, stderr } = spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
  const changed = new Map();
  let lines = new Set();
  for (const line of stdout.split('\n')) {
    const file = /^\+\+\+ b\/(.+)$/.exec(line)?.[1];
    if (file !== undefined) {
      lines = new Set();
      changed.set(file, lines);
    }
    const hunk = /^@@ .+ \+(\d+)(?:,(\d+))? @@/.exec(line);
    if (hunk === null) continue;
    for (let at = 0; at < Number(hunk[2] ?? 1); at++) lines.add(Number(hunk[1]) + at);
  }
  return changed;
}

/** The folder of `js` that a file is in; of adapters and annexes the one below. */
function partOf(file) {
  const [, first = '', second = ''] = file.split('/');
  return ADAPTERS.includes(first) ? `${first}/${second}` : first;
}
