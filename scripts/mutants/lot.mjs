// Mistakes drawn by lot: they were never shown to anybody, so they say how likely the next slip is to be noticed.

import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';
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
/** The part of the time of all tests, while no mistake is made, that those of one mistake take at most. */
const PART_OF_ALL = 1 / 15;
/** The same for a mistake that is judged once more, beside few others. */
const PART_ONCE_MORE = 1 / 6;
/** How a file of tests may take longer than without a mistake: so many times as long, and so much in addition. */
const LONGER = 2;
const LONGER_MS = 15_000;
/** The same for a file without a mistake, on a machine that has become busier. */
const BUSIER = 5;

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
  const trials = drawn.map((mistake) => new Trial(mistake, tests));
  const all = tests.reduce((sum, { ms }) => sum + ms, 0);
  await inLanes(trials, (trial) => trial.run(PART_OF_ALL * all));
  const open = trials.filter(({ word }) => word === 'undecided');
  await inLanes(open, (trial) => trial.run(PART_ONCE_MORE * all), availableParallelism());
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

/** One mistake, and the tests that reach it: the quickest first, and those of its own folder sooner. */
class Trial {
  mistake;
  #left;
  #passed = 0;
  #noticedBy;

  constructor(mistake, tests) {
    const own = `${partOf(mistake.file)}/`;
    const costOf = ({ file, ms }) => (file.startsWith(own) ? ms / OWN_SOONER : ms);
    this.mistake = mistake;
    this.#left = tests
      .filter(({ reaches }) => reaches(mistake))
      .sort((a, b) => costOf(a) - costOf(b));
  }

  /** Undecided: not all tests have run, or one could not be judged. */
  get word() {
    if (this.#noticedBy !== undefined) return 'noticed';
    return this.#left.length > 0 ? 'undecided' : 'missed';
  }

  /** Runs tests until one fails, or none is left that fits into `budget`, in ms without a mistake. Says how it went. */
  async run(budget) {
    const later = [];
    let ms = 0;
    for (const test of this.#left) {
      const ended = ms + test.ms > budget ? 'late' : await endedWith(this.mistake.id, test);
      if (ended !== 'late') ms += test.ms;
      if (ended === 'passed') this.#passed += 1;
      else if (ended === 'late' || ended === 'slow') later.push(test);
      else {
        this.#noticedBy = `${test.file} ${ended}, after ${this.#passed} that passed`;
        break;
      }
    }
    this.#left = later;
    const passed = `${this.#passed} tests that reach it passed, ${later.length} were not run`;
    const how = this.#noticedBy ?? passed;
    console.log(`  ${this.word.padEnd(9)}  ${describe(this.mistake)}\n             ${how}`);
  }
}

/**
 * How a file of tests ends with a mistake. Only a failure that is repeated is no accident, and one that takes too long only
 * against the time that it takes without the mistake then: the machine may be slow, for which it is 'slow' to judge.
 */
async function endedWith(id, { file, ms }) {
  const withMistake = { __STRYKER_ACTIVE_MUTANT__: id };
  const run = async (longest) =>
    (await runTest(file, withMistake, LONGER * longest + LONGER_MS)).ended;
  const ended = await run(ms);
  if (ended === 'passed') return ended;
  if (ended === 'failed') return run(ms);
  const without = await runTest(file, {}, BUSIER * ms + LONGER_MS);
  return without.ended === 'passed' ? run(Math.max(ms, without.ms)) : 'slow';
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
