// The tables of the contended runs, and the comparison with the targets.

import { OWN } from '../contenders.mjs';
import { judge } from '../outcome.mjs';
import { median, percentile, Samples } from '../samples.mjs';
import { figure, markdown } from '../table.mjs';

const MODES = [
  { mode: 'loop', title: 'Each waiter asks again as soon as it has released' },
  { mode: 'burst', title: 'Each waiter gets the lock once: 100 ask at one moment' },
];
const COLUMNS = [
  { head: '1/s', value: 'perSecond', digits: 0 },
  { head: 'sent', value: 'sent', digits: 2 },
  { head: 'in scripts', value: 'inside', digits: 2 },
  { head: 'wait p50 ms', value: 'waitP50', digits: 1 },
  { head: 'max ms', value: 'waitMax', digits: 0 },
  { head: 'starved', value: 'starved', digits: 0 },
];
const NAME_WIDTH = 24;
const WIDTH = 13;

const RIVALS = [
  { id: 'redis-semaphore', atLeast: 20, note: ', default waiting' },
  { id: 'redis-semaphore', atLeast: 5, note: ', 10 ms retry (the same)' },
  { id: 'redlock', atLeast: 20, note: ', default waiting' },
  { id: 'redlock, 10 ms retry', atLeast: 5, note: '' },
];

/** Without `targets` where no target was set. */
export function report(ids, runs, { targets = true } = {}) {
  const samples = new Samples(runs);
  const measured = ids.filter((id) => samples.has(id, 'loop'));
  const tables = MODES.flatMap(({ mode, title }) => ['', title, ...table(mode, measured, samples)]);
  return [
    ...tables,
    '',
    'From one holder’s call of release to the next one’s acquire, ms (of the loops; all rounds)',
    ...measured.map((id) => gapLine(id, gapsOf(id, runs))),
    ...(targets
      ? ['', 'Targets (medians of the ratios of each round)', ...verdict(samples, runs)]
      : []),
  ];
}

/** The short table. */
export function record(ids, runs) {
  const samples = new Samples(runs);
  const value = (id, mode, metric) => figure(samples.median(id, mode, metric));
  const handoff = (id) => figure(percentile(gapsOf(id, runs).across, 0.99) / 1000, 2);
  const heads = ['burst: 1/s', 'longest wait, ms', 'loop: 1/s', 'longest wait, ms', 'starved'];
  return markdown(
    ['', ...heads, 'handoff between processes, p99, ms'],
    ids
      .filter((id) => samples.has(id, 'burst') && samples.has(id, 'loop'))
      .map((id) => [
        id,
        ...['burst', 'loop'].flatMap((mode) => [
          value(id, mode, 'perSecond'),
          value(id, mode, 'waitMax'),
        ]),
        value(id, 'loop', 'starved'),
        handoff(id),
      ]),
  );
}

/** What a chart shows. */
export function charts(ids, runs) {
  const samples = new Samples(runs);
  const bars = ids
    .filter((id) => samples.has(id, 'burst'))
    .map((id) => {
      const value = samples.median(id, 'burst', 'perSecond');
      return { label: id, value, text: `${Math.round(value).toLocaleString('en')} per second` };
    });
  return [
    { name: 'burst', title: 'One lock that a hundred callers in four processes want once', bars },
  ];
}

function table(mode, ids, samples) {
  const heads = COLUMNS.map(({ head }) => head.padStart(WIDTH)).join('');
  const ratio = (id) => {
    const ratios = samples.ratios(OWN, id, mode, 'perSecond');
    return ratios.length === 0 ? '-' : `1 : ${median(ratios).toFixed(1)}`;
  };
  const rows = ids.map((id) => {
    const cells = COLUMNS.map(({ value, digits }) =>
      samples.median(id, mode, value).toFixed(digits).padStart(WIDTH),
    );
    return id.padEnd(NAME_WIDTH) + ratio(id).padStart(WIDTH) + cells.join('');
  });
  return [' '.repeat(NAME_WIDTH) + `to ${OWN}`.padStart(WIDTH) + heads, ...rows];
}

function gapsOf(id, runs) {
  const gaps = runs.filter((run) => run.id === id && run.level === 'loop').map((run) => run.gaps);
  return {
    local: gaps.flatMap(({ local }) => local),
    across: gaps.flatMap(({ across }) => across),
  };
}

function gapLine(id, { local, across }) {
  const describe = (gaps) => {
    const [p50, p99] = [0.5, 0.99].map((share) => (percentile(gaps, share) / 1000).toFixed(3));
    return `${String(gaps.length).padStart(7)} p50 ${p50} p99 ${p99}`;
  };
  return `${id.padEnd(NAME_WIDTH)} in a process ${describe(local)}   between two ${describe(across)}`;
}

function verdict(samples, runs) {
  const rates = MODES.flatMap(({ mode }) =>
    RIVALS.map(({ id, atLeast, note }) => {
      const ratios = samples.ratios(OWN, id, mode, 'perSecond');
      return judge(`${mode}: rate, ${id}${note}`, median(ratios), { atLeast, unit: ' x' }, 1);
    }),
  );
  const { local, across } = gapsOf(OWN, runs);
  const p99 = (gaps) => percentile(gaps, 0.99) / 1000;
  const sent = samples.has(OWN, 'loop') ? samples.median(OWN, 'loop', 'sent') : Number.NaN;
  return [
    ...rates,
    judge('loop: commands sent per acquisition', sent, { atMost: 4 }),
    judge('loop: hand-off in a process, p99', p99(local), { atMost: 5, unit: ' ms' }),
    judge('loop: hand-off between processes, p99', p99(across), { atMost: 5, unit: ' ms' }),
  ];
}
