// Acquire + release of distinct names: what a lock costs that nobody else wants.

import { showRound } from '../progress.mjs';
import { report } from './report.mjs';
import { openAll, runRounds } from './rounds.mjs';

const ROUNDS = 5;

export const PAIRS = { id: 'pairs', run };

async function run({ url, admin, flags: { peers, levels, ms, rounds = ROUNDS }, fail }) {
  const failures = new Map();
  const children = await openAll(peers, { url, admin, failures });
  const onRound = (round) => showRound('pairs', round, rounds);
  try {
    const runs = await runRounds(children, { levels, rounds, ms, admin, failures, onRound });
    for (const [id, { how, message }] of failures) fail(id, how, message);
    return [
      `PAIRS  acquire + release of distinct names, ${levels.join(', ')} in flight`,
      `rounds: ${rounds} after a warm-up, ${ms} ms per run`,
      ...report({ peers, levels, runs, failures }),
    ];
  } finally {
    for (const child of children) child.end();
  }
}
