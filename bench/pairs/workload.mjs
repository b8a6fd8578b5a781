// Acquire + release of distinct names: what a lock costs that nobody else wants.

import { showRound } from '../progress.mjs';
import { charts, report } from './report.mjs';
import { openAll, runRounds } from './rounds.mjs';

const ROUNDS = 5;

const ABOUT = `What a lock costs that nobody else wants: the daily case. The baseline is the snippet that everybody writes
by hand (\`SET NX PX\`, then EVALSHA of a compare-and-delete) on ioredis. holdfast issues a fence with each lock and renews it;
the snippets do neither. Commands are those that the server ran, inside of scripts too; bytes those of both directions.

Where the CPU of holdfast's client goes (perf, 64 in flight): three fifths to the core's thread and two fifths to JavaScript's;
of either a third to the kernel, for a write, a read and a wake-up each way that some twenty calls share. JavaScript's thread spends
the rest in Node itself, on promises, wake-ups and garbage. The core's own code takes 24 thousand instructions for a pair: half for the
protocol (two requests, two answers, four timers), a fifth for writing the commands, a tenth for reading the answers, and a fifth
for the runtime around them. The target for the client leaves 8 µs, of which JavaScript's thread takes three and a half.`;

export const PAIRS = { id: 'pairs', about: ABOUT, run };

async function run({ url, admin, flags: { peers, levels, ms, rounds = ROUNDS }, fail }) {
  const failures = new Map();
  const children = await openAll(peers, { url, admin, failures });
  const onRound = (round) => showRound('pairs', round, rounds);
  try {
    const runs = await runRounds(children, { levels, rounds, ms, admin, failures, onRound });
    for (const [id, { how, message }] of failures) fail(id, how, message);
    const lines = [
      `PAIRS  acquire + release of distinct names, ${levels.join(', ')} in flight`,
      `rounds: ${rounds} after a warm-up, ${ms} ms per run`,
      ...report({ peers, levels, runs, failures }),
    ];
    return { lines, charts: charts({ peers, levels, runs, failures }) };
  } finally {
    for (const child of children) child.end();
  }
}
