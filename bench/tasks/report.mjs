// How long the tasks took, and the comparison with the target.

import { OWN } from '../contenders.mjs';
import { judge } from '../outcome.mjs';
import { median, Samples } from '../samples.mjs';
import { figure, markdown } from '../table.mjs';

const NAME_WIDTH = 24;

export function report(ids, tasks, runs) {
  const samples = new Samples(runs);
  const measured = ids.filter((id) => samples.has(id, tasks));
  const [best] = measured
    .filter((id) => id !== OWN)
    .sort((a, b) => samples.median(a, tasks, 'allMs') - samples.median(b, tasks, 'allMs'));
  const ratios = samples.ratios(best, OWN, tasks, 'allMs');
  return [
    '',
    ...measured.map((id) => line(id, tasks, samples, runs)),
    '',
    'Target (median of the ratios of each round)',
    judge(`time until all had it, best other: ${best}`, median(ratios), {
      atLeast: 50,
      unit: ' x',
    }),
    judge('tasks served', samples.median(OWN, tasks, 'done') / samples.median(OWN, tasks, 'ms'), {
      atLeast: 100,
      unit: ' thousand/s',
    }),
  ];
}

/** The short table. */
export function record(ids, tasks, runs) {
  const samples = new Samples(runs);
  return markdown(
    ['', 'ms for all'],
    ids
      .filter((id) => samples.has(id, tasks))
      .map((id) => [id, figure(samples.median(id, tasks, 'allMs'))]),
  );
}

function line(id, tasks, samples, runs) {
  const done = samples.median(id, tasks, 'done');
  const { first, requests } = runs.find((run) => run.id === id) ?? {};
  return [
    id.padEnd(NAME_WIDTH),
    `${samples.median(id, tasks, 'allMs').toFixed(0).padStart(7)} ms`,
    first === undefined
      ? `, extrapolated from ${done.toFixed(0)} tasks`
      : `, the first ${samples.median(id, tasks, 'first').toFixed(0)} ms`,
    requests === undefined
      ? ''
      : `, ${samples.median(id, tasks, 'requests').toFixed(2)} requests to the server for each task`,
  ].join('');
}
