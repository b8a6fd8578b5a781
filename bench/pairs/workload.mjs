// Acquire + release of distinct names: the cost of an uncontended lock.

import { showRound } from '../progress.mjs';
import { charts, record, report } from './report.mjs';
import { openAll, runRounds } from './rounds.mjs';

const ROUNDS = 5;

const ABOUT = `Acquire and release of distinct names, relative to the hand-written snippet (\`SET NX PX\`, then EVALSHA of a compare-and-delete)
on ioredis, by pairs in flight. *CPU* is the client's per pair. \`limit\` is the snippet without a client library. The snippets have
neither fence nor renewal.

Client and server work at once if each has a core. With all on one core holdfast had 1.59, 2.58 and 2.73 of the snippet's rate with 8,
64 and 1000 in flight (2.44 with 64 on another machine), and \`limit\` a sixth more than holdfast with 64. With 8 the ratio depends on how
soon the server wakes: on other machines it was 0.74 to 2.01. With Redis 8.6 and Valkey 9.1 (\`HOLDFAST_REDIS_SERVER\` names the server)
holdfast's rate is 4.1 to 4.2 of the snippet's with 64 in flight and 6.0 to 6.2 with 1000, its CPU 0.71 to 0.73 and 0.69 to 0.70 of
\`limit\`'s.`;

const QUESTION = 'What does an uncontended lock cost?';

export const PAIRS = { id: 'pairs', question: QUESTION, about: ABOUT, run };

async function run({ url, admin, flags: { peers, levels, ms, rounds = ROUNDS }, fail }) {
  const failures = new Map();
  const children = await openAll(peers, { url, admin, failures });
  const onRound = (round) => showRound('pairs', round, rounds);
  try {
    const runs = await runRounds(children, { levels, rounds, ms, admin, failures, onRound });
    for (const [id, { how, message }] of failures) fail(id, how, message);
    const measured = { peers, levels, runs, failures };
    const lines = [
      `PAIRS  acquire + release of distinct names, ${levels.join(', ')} in flight`,
      `rounds: ${rounds} after a warm-up, ${ms} ms per run`,
      ...report(measured),
    ];
    return { lines, table: record(measured), charts: charts(measured) };
  } finally {
    for (const child of children) child.end();
  }
}
