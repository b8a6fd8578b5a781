// The text of the report: ratios first, since they carry over to other machines.

import { median, Samples } from '../samples.mjs';
import { figure, markdown } from '../table.mjs';
import { BASELINE } from './peers.mjs';
import { verdict } from './verdict.mjs';

const COLUMNS = [
  { head: 'pairs/s', ratio: 'throughput' },
  { head: 'p50', ratio: 'p50' },
  { head: 'client CPU', ratio: 'clientCpu' },
  { head: 'server CPU', ratio: 'serverCpu' },
  { head: 'pairs/s', value: 'throughput', digits: 0 },
  { head: 'p50 µs', value: 'p50', digits: 0 },
  { head: 'p99 µs', value: 'p99', digits: 0 },
  { head: 'client µs', value: 'clientCpu', digits: 1 },
  { head: 'server µs', value: 'serverCpu', digits: 1 },
  { head: 'commands', value: 'commands', digits: 1 },
  { head: 'bytes', value: 'bytes', digits: 0 },
];
const NAME_WIDTH = 24;
const WIDTH = 11;

/** The tables, then the comparison with the targets. */
export function report({ peers, levels, runs, failures }) {
  const samples = new Samples(runs.filter(({ id }) => !failures.has(id)));
  const lines = [];
  for (const level of levels) lines.push('', ...table(peers, level, samples, failures));
  lines.push('', ...verdict(samples));
  return lines;
}

/** The short table: rates and the client's CPU, relative to the baseline, whose own are in the last row. */
export function record({ peers, levels, runs, failures }) {
  const samples = new Samples(runs.filter(({ id }) => !failures.has(id)));
  // EVAL sends the script along: EVALSHA, which is faster, stands for both.
  const measured = peers.filter(
    ({ id }) => !id.endsWith(' EVAL') && levels.some((level) => samples.has(id, level)),
  );
  const ratio = (id, level, metric) => {
    const ratios = samples.ratios(id, BASELINE, level, metric);
    return figure(ratios.length === 0 ? Number.NaN : median(ratios), 2);
  };
  const row = (id) =>
    levels.flatMap((level) => [ratio(id, level, 'throughput'), ratio(id, level, 'clientCpu')]);
  const absolute = levels.flatMap((level) => [
    `${figure(samples.median(BASELINE, level, 'throughput'))}/s`,
    `${figure(samples.median(BASELINE, level, 'clientCpu'), 1)} µs`,
  ]);
  return markdown(
    ['', ...levels.flatMap((level) => [`pairs/s, ${level}`, `CPU, ${level}`])],
    [...measured.map(({ id }) => [id, ...row(id)]), [`${BASELINE}, absolute`, ...absolute]],
  );
}

const CHARTED = 64;

/** The data of a chart: the rates and the client's costs, relative to those of the baseline. */
export function charts({ peers, levels, runs, failures }) {
  if (!levels.includes(CHARTED)) return [];
  const samples = new Samples(runs.filter(({ id }) => !failures.has(id)));
  const measured = peers.filter(({ id }) => samples.has(id, CHARTED));
  const bars = (metric) =>
    measured.map(({ id }) => {
      const value = median(samples.ratios(id, BASELINE, CHARTED, metric));
      return { label: id, value, text: `${value.toFixed(2)} ×` };
    });
  const to = `relative to ${BASELINE}, ${CHARTED} in flight`;
  return [
    { name: 'pairs', title: `Locks per second, ${to}`, bars: bars('throughput') },
    { name: 'pairs-cpu', title: `CPU of the client per lock, ${to}`, bars: bars('clientCpu') },
  ];
}

/** The results of the peers with `level` in flight. */
export function table(peers, level, samples, failures) {
  const ratios = COLUMNS.filter(({ ratio }) => ratio).length;
  const groups =
    ' '.repeat(NAME_WIDTH) +
    `relative to ${BASELINE}`.padStart(ratios * WIDTH) +
    'median per pair'.padStart((COLUMNS.length - ratios) * WIDTH);
  const heads = COLUMNS.map(({ head }) => head.padStart(WIDTH)).join('');
  const rows = peers.map(({ id }) => {
    const failure = failures.get(id);
    const cells = failure ? [`  ${failure.how}`] : COLUMNS.map((c) => cell(c, id, level, samples));
    return id.padEnd(NAME_WIDTH) + cells.join('');
  });
  return [`${level} in flight`, groups, ' '.repeat(NAME_WIDTH) + heads, ...rows];
}

function cell({ ratio, value, digits }, id, level, samples) {
  if (ratio === undefined) return figure(samples.median(id, level, value), digits).padStart(WIDTH);
  const ratios = samples.ratios(id, BASELINE, level, ratio);
  return (ratios.length === 0 ? '-' : median(ratios).toFixed(2)).padStart(WIDTH);
}
