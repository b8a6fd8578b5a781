// Judges mistakes by the files of tests that reach them.

import { availableParallelism } from 'node:os';
import { inLanes } from './lanes.mjs';
import { describe } from './tally.mjs';

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
 * Tells of each mistake whether a file of tests notices it. `tests`: `{ file, ms, reaches }`, as `reachOfTests` answers them.
 * `means`: `runTest(file, variables, limit)`, `made(mistake)`, the variables of a process that makes it, and
 * `ownFolder(mistake)`, the start of the paths of its own tests.
 */
export async function judge(mistakes, tests, means) {
  const sound = new Sound(means.runTest);
  const trials = mistakes.map((mistake) => new Trial(mistake, tests, { ...means, sound }));
  const all = tests.reduce((sum, { ms }) => sum + ms, 0);
  await inLanes(trials, (trial) => trial.run(PART_OF_ALL * all));
  const open = trials.filter(({ word }) => word === 'undecided');
  await inLanes(open, (trial) => trial.run(PART_ONCE_MORE * all), availableParallelism());
  return trials;
}

/** Which files of tests pass without a mistake: what they reach is kept, and the sources may have changed since then. */
class Sound {
  #runTest;
  #known = new Map();

  constructor(runTest) {
    this.#runTest = runTest;
  }

  has({ file, ms }) {
    if (!this.#known.has(file)) this.#known.set(file, this.#passes(file, ms));
    return this.#known.get(file);
  }

  async #passes(file, ms) {
    const { ended } = await this.#runTest(file, {}, BUSIER * ms + LONGER_MS);
    if (ended !== 'passed') console.log(`  left out: ${file} ${ended} without a mistake`);
    return ended === 'passed';
  }
}

/** One mistake, and the tests that reach it: the quickest first, and those of its own folder sooner. */
class Trial {
  mistake;
  #means;
  #left;
  #passed = 0;
  #noticedBy;

  constructor(mistake, tests, means) {
    const own = means.ownFolder(mistake);
    const costOf = ({ file, ms }) => (file.startsWith(own) ? ms / OWN_SOONER : ms);
    this.mistake = mistake;
    this.#means = means;
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
      const ended = ms + test.ms > budget ? 'late' : await this.#endedWith(test);
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

  /**
   * How a file of tests ends with a mistake. Only a failure that is repeated is no accident, and one that takes too long only
   * against the time that it takes without the mistake then: the machine may be slow, for which it is 'slow' to judge.
   */
  async #endedWith({ file, ms }) {
    const { made, runTest, sound } = this.#means;
    const run = async (longest) =>
      (await runTest(file, made(this.mistake), LONGER * longest + LONGER_MS)).ended;
    const ended = await run(ms);
    if (ended === 'passed') return ended;
    if (ended === 'failed') return (await sound.has({ file, ms })) ? run(ms) : 'slow';
    const without = await runTest(file, {}, BUSIER * ms + LONGER_MS);
    return without.ended === 'passed' ? run(Math.max(ms, without.ms)) : 'slow';
  }
}
