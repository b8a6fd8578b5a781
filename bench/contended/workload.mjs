// Many who want one lock: how often it changes hands.

import { CONTENDERS } from '../contenders.mjs';
import { charts, report } from './report.mjs';
import { endAll, openTeams, PROCESSES, runRounds, WAITERS } from './rounds.mjs';

const ROUNDS = 3;
const IDS = ['holdfast', 'redis-semaphore', 'redlock', 'redlock, 10 ms retry'];

const ABOUT = `This section shows the value of handoffs. In the *loop* each waiter asks again as soon as it has released. This favours the other
libraries: without a queue the process that releases a lock takes it again while the others sleep (see the longest wait). In the
*burst*, as in a service, every waiter wants the lock once. The targets of the loops assumed that in the loop, too, the other
libraries rarely pass the lock from one waiter to the next; this assumption was wrong.`;

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
