// Many who want one lock: how often it changes hands.

import { CONTENDERS } from '../contenders.mjs';
import { charts, report } from './report.mjs';
import { endAll, openTeams, PROCESSES, runRounds, WAITERS } from './rounds.mjs';

const ROUNDS = 3;
const IDS = ['holdfast', 'redis-semaphore', 'redlock', 'redlock, 10 ms retry'];

const ABOUT = `What hand-off is worth. In the loop who asks again at once shows the others at their best: without a line the
process that releases takes the lock again while the rest sleeps (see the longest wait). The burst is what a service sees: all want
the lock once. The targets of the loops took the others to hand a lock on as seldom there as in a burst, which they do not.`;

export const CONTENDED = { id: 'contended', about: ABOUT, run };

async function run({ url, admin, flags: { rounds = ROUNDS, sliceMs }, fail }) {
  const contenders = CONTENDERS.filter(({ id }) => IDS.includes(id));
  const teams = await openTeams(contenders, { url, fail });
  try {
    const runs = await runRounds(teams, { rounds, ms: sliceMs, admin, fail });
    const lines = [
      `CONTENDED  ${PROCESSES} processes of ${WAITERS} waiters, one lock, nothing done while it is held`,
      `rounds: ${rounds} after a warm-up, ${sliceMs} ms per loop`,
      ...report(IDS, runs),
    ];
    return { lines, charts: charts(IDS, runs) };
  } finally {
    for (const { children } of teams) endAll(children);
  }
}
