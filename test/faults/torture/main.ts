/**
 * The fault campaign: real processes, real servers, real faults, for as long as one likes.
 *
 *   npm run torture -- [--minutes N] [--seed N] [--only place,place] [--unfenced] [--history DIR] [--controls]
 *
 * It plays rounds, each in one place and from a seed of its own, and ends with one whose stores do not look at fences:
 * that must see stale writes, otherwise the others prove nothing. Ends with code 1 if a promise was broken.
 */

import { parseArgs } from 'node:util';
import { Dice } from '../../support/dice.js';
import { DEFECTS, defective } from './defects.js';
import { PLACES } from './places.js';
import { publish } from './record.js';
import { line, story, table } from './report.js';
import { playRound, type RoundPlan, type RoundResult } from './round.js';
import { recordSnippet } from './snippet.js';

interface Flags {
  readonly minutes: number;
  readonly seed: number;
  readonly places: readonly string[];
  readonly unfenced: boolean;
  /** The folder for the histories of the rounds, which `npm run judge` reads. */
  readonly history: string | undefined;
  /** Instead of the campaign, histories that must be judged to be broken. */
  readonly controls: boolean;
}

/** How long faults occur in a round, in s: a failover with all that follows takes half of it. */
const ROUND_SECONDS = 25;
/** The shortest useful round. */
const LEAST_SECONDS = 5;
const CONTROL_SECONDS = 10;
/** The number of attempts: by chance a round may have no late write. */
const CONTROLS = 3;

async function main(flags: Flags): Promise<boolean> {
  const { controls: unsound, history, minutes, places, seed, unfenced } = flags;
  if (unsound) return recordControls(history as string, seed);
  const witnessed = history === undefined ? {} : { history };
  const end = performance.now() + minutes * 60_000;
  console.log(`${minutes} minutes on ${places.join(', ')}, from seed ${seed}`);
  const rounds: RoundResult[] = [];
  const left: Promise<readonly string[]>[] = [];
  const play = async (plan: RoundPlan) => {
    const result = await playRound(plan);
    console.log(`${plan.unfenced ? 'unfenced: ' : ''}${line(result)}`);
    if (result.problems.length > 0) console.log(story(result));
    left.push(result.left);
    return result;
  };
  for (let number = 0; number === 0 || performance.now() < end; number++) {
    const where = places[number % places.length] as string;
    const remaining = (end - performance.now()) / 1000;
    const seconds = Math.max(LEAST_SECONDS, Math.min(ROUND_SECONDS, remaining));
    rounds.push(await play({ where, seed: seed + number, seconds, unfenced, ...witnessed }));
  }
  const controls = unfenced ? rounds : [];
  const staleWrites = () => controls.reduce((sum, { stores }) => sum + stores.stale, 0);
  for (let number = 0; !unfenced && number < CONTROLS && staleWrites() === 0; number++) {
    controls.push(await play(control(seed + number)));
  }
  const leftovers = (await Promise.all(left)).flat();
  const stale = staleWrites();
  console.log(table(rounds, leftovers, stale));
  for (const each of leftovers) console.log(`left behind: ${each}`);
  if (stale === 0) console.log('No stale write without a fence: this campaign proves nothing.');
  const broken = [...rounds, ...controls].some(({ problems }) => problems.length > 0);
  return !broken && leftovers.length === 0 && stale > 0;
}

/** Records the usual snippet, and a round with each defect of the scripts. */
async function recordControls(folder: string, seed: number): Promise<boolean> {
  const snippet = 'SET NX PX, and work that outlasts the lease';
  console.log(publish(folder, 'snippet', snippet, await recordSnippet(seed)));
  for (const where of Object.keys(DEFECTS)) {
    const plan = { where, seed, seconds: LEAST_SECONDS, unfenced: false, history: folder };
    const round = await playRound(plan, () => defective(where));
    console.log(line(round));
    await round.left;
  }
  return true;
}

/** A server that loses its data now and then, so that two hold a lock, and stores that do not mind. */
function control(seed: number): RoundPlan {
  return { where: 'single', seed, seconds: CONTROL_SECONDS, unfenced: true };
}

function readFlags(): Flags {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: '10' },
      seed: { type: 'string' },
      only: { type: 'string' },
      unfenced: { type: 'boolean', default: false },
      history: { type: 'string' },
      controls: { type: 'boolean', default: false },
    },
  });
  const {
    minutes,
    seed = String(new Dice().below(2 ** 31)),
    only,
    unfenced,
    history,
    controls,
  } = values;
  if (!(Number(minutes) > 0)) throw new Error(`--minutes takes a number, got ${minutes}`);
  if (!/^\d+$/.test(seed)) throw new Error(`--seed takes a whole number, got ${seed}`);
  if (controls && history === undefined) throw new Error('--controls needs --history DIR');
  const places = only === undefined ? Object.keys(PLACES) : only.split(',');
  const unknown = places.find((place) => !(place in PLACES));
  if (unknown !== undefined) {
    throw new Error(`--only takes ${Object.keys(PLACES).join(', ')}; got ${unknown}`);
  }
  return { minutes: Number(minutes), seed: Number(seed), places, unfenced, history, controls };
}

void main(readFlags()).then((kept) => {
  process.exitCode = kept ? 0 : 1;
});
