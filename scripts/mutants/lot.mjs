// Mistakes drawn by lot: they were never shown to anybody, so they say how likely the next slip is to be noticed.

import { spawnSync } from 'node:child_process';
import { Compiler } from './compiler.mjs';
import { ROOT } from './copy.mjs';
import { makeMistakes } from './mistakes.mjs';
import { reachOfTests } from './reach.mjs';
import { buildSwitched, runTest } from './switched.mjs';
import { describe, equivalents, keyOf, shuffled, tell } from './tally.mjs';
import { judge } from './trial.mjs';

/** The folders of `js` whose own folders are parts. */
const ADAPTERS = ['adapters', 'operators'];

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
  const trials = await judge(drawn, tests, {
    ownFolder: ({ file }) => `${partOf(file)}/`,
    runTest,
    made: ({ id }) => ({ __STRYKER_ACTIVE_MUTANT__: id }),
  });
  // The file of a mistake may pass, and another be refused for its sake: it takes the compiler seconds to find out.
  const refusedLate = trials.filter(
    ({ word, mistake }) => word !== 'noticed' && compiler.refuses(mistake, { everywhere: true }),
  );
  for (const { mistake } of refusedLate) console.log(`  refused    ${describe(mistake)}`);
  tell(
    trials
      .filter((trial) => !refusedLate.includes(trial))
      .map(({ mistake, word }) => ({ part: partOf(mistake.file), word })),
  );
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
