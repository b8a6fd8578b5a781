// Rounds of all participants, one at a time, each in a new order: other work of the machine affects
// all of them alike.

import { Child } from './child.mjs';
import { showRound } from './progress.mjs';
import { Samples, shuffled } from './samples.mjs';

/**
 * Starts the workload's `worker` for each of `ids`, asks it to open what `target` answers for it, and then once
 * per round and level for the work of `run`: by default to run for `ms` with `level` in flight. A first round
 * warms up. A participant that fails is reported, and left out from then on.
 */
export async function interleaved({
  workload,
  ids,
  target,
  levels,
  rounds,
  ms,
  run = plain,
  fail,
}) {
  const children = ids.map((id) => new Child(`${workload}/worker.mjs`, id));
  const failed = new Set();
  const runs = [];
  const attempt = async (child, task) => {
    if (failed.has(child)) return undefined;
    try {
      return await task();
    } catch (error) {
      failed.add(child);
      fail(child.id, 'misbehaved', error.message);
      return undefined;
    }
  };
  try {
    for (const child of children) {
      await attempt(child, () => child.ask('open', target(child.id)));
    }
    for (let round = 0; round <= rounds; round++) {
      showRound(workload, round, rounds);
      for (const level of levels) {
        for (const child of shuffled(children)) {
          const result = await attempt(child, () => run(child, level, ms));
          if (result !== undefined && round > 0)
            runs.push({ id: child.id, round, level, ...result });
        }
      }
    }
  } finally {
    for (const child of children) child.end();
  }
  return new Samples(runs);
}

const plain = (child, level, ms) => child.ask('run', { level, ms }, ms);
