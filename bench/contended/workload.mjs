// Many who want one lock: how often it changes hands.

import { CONTENDERS } from '../contenders.mjs';
import { charts, record, report } from './report.mjs';
import { endAll, openTeams, PROCESSES, runRounds, WAITERS } from './rounds.mjs';

const ROUNDS = 3;
const IDS = ['holdfast', 'redis-semaphore', 'redlock', 'redlock, 10 ms retry'];

const ABOUT = `${PROCESSES} processes of ${WAITERS} waiters want one lock, and do nothing while they hold it. In the *burst*, as in a service, each wants it once.
In the *loop* each asks again after its release, which favours libraries without a queue: while others sleep, the releaser takes it again.`;

const QUESTION = 'How fast does a contended lock change hands?';

export const CONTENDED = { id: 'contended', question: QUESTION, about: ABOUT, run };

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
    return { lines, table: record(IDS, runs), charts: charts(IDS, runs) };
  } finally {
    for (const { children } of teams) endAll(children);
  }
}
