// The cost of waiters, and the comparison with the targets.

import { OWN } from '../contenders.mjs';
import { judge } from '../outcome.mjs';
import { Samples } from '../samples.mjs';
import { figure, markdown } from '../table.mjs';

const COLUMNS = [
  { head: 'read idle µs', value: 'idle' },
  { head: 'meanwhile µs', value: 'busy' },
  { head: 'ratio', value: 'slowdown', digits: 2 },
  { head: 'RSS B/waiter', value: 'rss' },
  { head: 'JS B/waiter', value: 'js' },
];
const NAME_WIDTH = 24;
const WIDTH = 14;

/** The short table. */
export function record(ids, count, runs) {
  const samples = new Samples(runs);
  const value = (id, metric, digits) => figure(samples.median(id, count, metric), digits);
  return markdown(
    ['', 'a read', 'RSS per waiter, bytes', 'JavaScript per waiter, bytes'],
    ids
      .filter((id) => samples.has(id, count))
      .map((id) => [id, value(id, 'slowdown', 2), value(id, 'rss'), value(id, 'js')]),
  );
}

export function report(ids, count, runs) {
  const samples = new Samples(runs);
  const rows = ids
    .filter((id) => samples.has(id, count))
    .map((id) => {
      const cells = COLUMNS.map(({ value, digits = 0 }) =>
        samples.median(id, count, value).toFixed(digits).padStart(WIDTH),
      );
      return id.padEnd(NAME_WIDTH) + cells.join('');
    });
  const own = (metric) => samples.median(OWN, count, metric);
  return [
    '',
    ' '.repeat(NAME_WIDTH) + COLUMNS.map(({ head }) => head.padStart(WIDTH)).join(''),
    ...rows,
    '',
    'Targets (medians of the rounds)',
    judge('reading a file meanwhile, p50, to idle', own('slowdown'), { atMost: 1.2, unit: ' x' }),
    judge('memory per waiter, RSS', own('rss'), { atMost: 1024, unit: ' B' }, 0),
    judge('memory per waiter, JS heap and external', own('js'), { atMost: 1024, unit: ' B' }, 0),
  ];
}
