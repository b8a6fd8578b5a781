// Many who want one lock: how often it changes hands.

import { CONTENDERS } from '../contenders.mjs';
import { report } from './report.mjs';
import { endAll, openTeams, PROCESSES, runRounds, WAITERS } from './rounds.mjs';

const ROUNDS = 3;
const IDS = ['holdfast', 'redis-semaphore', 'redlock', 'redlock, 10 ms retry'];

export const CONTENDED = { id: 'contended', run };

async function run({ url, admin, flags: { rounds = ROUNDS, sliceMs }, fail }) {
  const contenders = CONTENDERS.filter(({ id }) => IDS.includes(id));
  const teams = await openTeams(contenders, { url, fail });
  try {
    const runs = await runRounds(teams, { rounds, ms: sliceMs, admin, fail });
    return [
      `CONTENDED  ${PROCESSES} processes of ${WAITERS} waiters, one lock, nothing done while it is held`,
      `rounds: ${rounds} after a warm-up, ${sliceMs} ms per loop`,
      ...report(IDS, runs),
    ];
  } finally {
    for (const { children } of teams) endAll(children);
  }
}
