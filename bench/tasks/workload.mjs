// A thousand tasks of one process that want one lock: the time until all have had it.

import { Child } from '../child.mjs';
import { CONTENDERS } from '../contenders.mjs';
import { showRound } from '../progress.mjs';
import { shuffled } from '../samples.mjs';
import { record, report } from './report.mjs';

const ROUNDS = 3;
const TASKS = 1000;

const ABOUT = `${TASKS} tasks of one process want one lock once each. Times above a second are extrapolated.`;

const QUESTION = 'How fast does a lock change hands within a process?';

export const TASKS_WORKLOAD = { id: 'tasks', question: QUESTION, about: ABOUT, run };

async function run({ url, flags: { rounds = ROUNDS, sliceMs }, fail }) {
  const runs = [];
  const failed = new Set();
  for (let round = 1; round <= rounds; round++) {
    showRound('tasks', round, rounds);
    for (const { id } of shuffled(CONTENDERS).filter((contender) => !failed.has(contender.id))) {
      // A process of its own for each run: tasks that are left over end with it.
      const child = new Child('tasks/worker.mjs', id);
      try {
        await child.ask('open', url);
        const result = await child.ask('run', { tasks: TASKS, ms: sliceMs }, sliceMs);
        if (result.done === 0) throw new Error('nobody got the lock');
        runs.push({ id, round, level: TASKS, ...result, allMs: (result.ms / result.done) * TASKS });
      } catch (error) {
        failed.add(id);
        fail(id, 'misbehaved', error.message);
      }
      child.end();
    }
  }
  const ids = CONTENDERS.map(({ id }) => id);
  const lines = [
    `TASKS  ${TASKS} tasks of one process, one lock, once each, nothing done while it is held, again and again`,
    `rounds: ${rounds} of ${sliceMs} ms, each in a new process; who needs longer for ${TASKS} tasks is extrapolated`,
    ...report(ids, TASKS, runs),
  ];
  return { lines, table: record(ids, TASKS, runs), charts: [] };
}
