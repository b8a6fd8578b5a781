// Mistakes of Rust and Lua, drawn by lot. All of Rust are in one build of the unit tests, each behind a switch that a variable
// of the environment turns on (tools/mutants): a build for each would take longer than its tests.

import { availableParallelism } from 'node:os';
import { judgeByAddon } from './addon.mjs';
import { buildWith, findMistakes, withLua } from './core-build.mjs';
import { failsAnyTest, failsFreshSeeds, failsOneOf, recordReached } from './core-tests.mjs';
import { inLanes } from './lanes.mjs';
import { describe, equivalents, keyOf, shuffled, tell } from './tally.mjs';

/** Draws `count` mistakes of the Rust files whose paths begin with `folder`, or of `lua`, and tells which are noticed. */
export async function sampleCore({ count, seed, folder }) {
  const isLua = folder === 'lua';
  const isChosen = ({ file }) =>
    isLua ? file.endsWith('.lua') : file.endsWith('.rs') && file.startsWith(folder);
  const known = equivalents();
  const eligible = findMistakes().filter((each) => isChosen(each) && !known.has(keyOf(each)));
  const drawn = shuffled(eligible, seed).slice(0, count);
  console.log(`${drawn.length} mistakes, seed ${seed}`);
  // The unit tests read the scripts when they run.
  const { binary, refused } = buildWith(isLua ? [] : drawn);
  for (const mistake of refused) console.log(`  not compiled  ${describe(mistake)}`);
  const rest = drawn.filter((mistake) => !refused.includes(mistake));
  const reached = isLua ? undefined : await recordReached(binary);
  const judge = async (mistake) => {
    const { isNoticed, by } = await noticedBy(binary, mistake, reached);
    console.log(`  ${isNoticed ? 'noticed' : 'missed '}  ${describe(mistake)}  (${by})`);
    return { mistake, word: isNoticed ? 'noticed' : 'missed' };
  };
  const judged = await inLanes(rest, judge, availableParallelism());
  const missed = judged.filter(({ word }) => word === 'missed');
  const noticed = judged.filter((each) => !missed.includes(each));
  // Unit tests have no connections to servers, and no bridge.
  const again = isLua ? missed : await judgeByAddon(missed.map(({ mistake }) => mistake));
  const all = [...noticed, ...again];
  tell(all.map(({ mistake, word }) => ({ part: partOf(mistake.file), word })));
}

/** Whether unit tests, or else fresh seeds of the simulator, notice a mistake. */
function noticedBy(binary, mistake, reached) {
  if (reached === undefined) {
    return withLua(mistake, (lua) => {
      const env = { HOLDFAST_LUA: lua };
      return judgedBy(binary, env, 'all unit tests', () => failsAnyTest(binary, env));
    });
  }
  const tests = reached.get(mistake.number);
  if (tests === undefined) return { isNoticed: false, by: 'no unit test reaches it' };
  const env = { HOLDFAST_MUTANT: String(mistake.number) };
  return judgedBy(binary, env, `${tests.size} unit tests`, () => failsOneOf(tests, binary, env));
}

async function judgedBy(binary, env, tests, fails) {
  const failed = (await fails()) ?? (await failsFreshSeeds(binary, env));
  if (failed !== undefined) return { isNoticed: true, by: failed };
  return { isNoticed: false, by: `neither ${tests} nor fresh seeds` };
}

/** The folder that a file is in, down to the parts that have tests of their own. */
function partOf(file) {
  if (file.endsWith('.lua')) return 'lua';
  const folders = file.split('/').slice(0, -1);
  const depth = folders[2] === 'quorum' || folders[1] === 'server' ? 3 : 2;
  return folders.slice(0, depth).join('/');
}
