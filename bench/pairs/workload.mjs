// Acquire + release of distinct names: the cost of an uncontended lock.

import { showRound } from '../progress.mjs';
import { charts, report } from './report.mjs';
import { openAll, runRounds } from './rounds.mjs';

const ROUNDS = 5;

const ABOUT = `This section measures the cost of an uncontended lock, the usual case. The baseline is the snippet that people write by hand
(\`SET NX PX\`, then EVALSHA of a compare-and-delete) on ioredis. \`limit\` is the same snippet without a client library: one write
per turn, and a parser that knows three kinds of reply. holdfast issues a fence with each lock and renews the lock; the snippets
do neither. The column *commands* counts the commands inside scripts too. The column *bytes* counts both directions.

A client that writes once per turn, like \`limit\`, and the server take turns: each waits while the other works through a batch.
So its rate is one second divided by the sum of the two CPU columns. holdfast sends as soon as half as many operations wait for
that as the server has requests to answer, and the first at once to a server that has none, so client and server work at the same
time if each has a core; if other processes keep the cores busy, it loses that advantage. With 1000 in flight the client's core is
busy all the time, and its CPU per pair decides. holdfast's commands cost the server about 1.25 times as much as the snippet's
(see *Limit*). Of the client's CPU (perf, 64 in flight) holdfast's own code takes three tenths, Node and V8 (promises,
microtasks, garbage) three, the kernel three and the C library one.

With 8 in flight a fast client has sent all eight requests before a server that slept has read the first: again they take turns.
ioredis needs as long for one request as the server needs to wake, so the two work at the same time, at more CPU of the client. A
machine whose server wakes sooner shows the opposite: the ratio to the snippet was between 0.74 and 1.67 so far. \`npm run
instructions\` counts what hardly varies.`;

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
