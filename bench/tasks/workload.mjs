// A thousand tasks of one process that want one lock: the time until all have had it.

import { Child } from '../child.mjs';
import { CONTENDERS } from '../contenders.mjs';
import { showRound } from '../progress.mjs';
import { shuffled } from '../samples.mjs';
import { report } from './report.mjs';

const ROUNDS = 3;
const TASKS = 1000;

const ABOUT = `Many tasks of one process want one lock. The times of the other libraries are extrapolated from one second. holdfast hands the
lock off in the process. It spends its time on turns of JavaScript, and on a request for every eight tasks, whose answer says
that no other process waits. Each process has done the same with a few tasks before, for a third of a second; the first thousand
tasks after that are slower than those that follow.`;

export const TASKS_WORKLOAD = { id: 'tasks', about: ABOUT, run };

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
  const lines = [
    `TASKS  ${TASKS} tasks of one process, one lock, once each, nothing done while it is held, again and again`,
    `rounds: ${rounds} of ${sliceMs} ms, each in a new process; who needs longer for ${TASKS} tasks is extrapolated`,
    ...report(
      CONTENDERS.map(({ id }) => id),
      TASKS,
      runs,
    ),
  ];
  return { lines, charts: [] };
}
