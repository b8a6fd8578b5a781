// The targets of holdfast, and whether this run reached them.

import { outcome } from '../outcome.mjs';
import { median } from '../samples.mjs';
import { BASELINE, LINGERING, PEERS, UNAWAITED, YARDSTICK } from './peers.mjs';

const OWN = PEERS.find(({ role }) => role === 'own').id;
const idsOf = (...roles) => PEERS.filter(({ role }) => roles.includes(role)).map(({ id }) => id);
const SNIPPETS = idsOf('snippet');
const LIBRARIES = idsOf('library');
const LABELS = {
  throughput: 'pairs/s',
  p50: 'p50',
  clientCpu: 'client CPU',
  serverCpu: 'server CPU',
};

const RIVALS = idsOf('snippet', 'library', 'other');

/** holdfast's `metric` divided by that of the best of `rivals`. Without a bound it is only reported. */
const TARGETS = [
  { levels: [1], metric: 'p50', rivals: SNIPPETS, atMost: 1 },
  { levels: [1], metric: 'clientCpu', rivals: SNIPPETS, atMost: 1 },
  { levels: [8], metric: 'throughput', rivals: SNIPPETS, atLeast: 1.1 },
  { levels: [64], metric: 'throughput', rivals: SNIPPETS, atLeast: 1.5 },
  { levels: [1000], metric: 'throughput', rivals: SNIPPETS, atLeast: 2 },
  { levels: [64], metric: 'clientCpu', rivals: SNIPPETS, atMost: 0.4 },
  { levels: [1000], metric: 'clientCpu', rivals: SNIPPETS, atMost: 0.35 },
  { levels: [64, 1000], metric: 'throughput', rivals: [YARDSTICK], atLeast: 0.9 },
  { levels: [64, 1000], metric: 'clientCpu', rivals: [YARDSTICK], atMost: 0.8 },
  ...LIBRARIES.map((id) => ({
    levels: [64, 1000],
    metric: 'throughput',
    rivals: [id],
    atLeast: 2,
  })),
  { levels: [64, 1000], metric: 'clientCpu', rivals: RIVALS },
  { levels: [64, 1000], metric: 'serverCpu', rivals: [BASELINE], atMost: 1.7 },
];

/** The targets behind a network. */
export const DELAY_TARGETS = [
  { levels: [64], metric: 'throughput', rivals: [BASELINE], atLeast: 1.2 },
  { levels: [64], metric: 'throughput', rivals: [YARDSTICK], atLeast: 1 },
  { of: UNAWAITED, levels: [1], metric: 'p50', rivals: [BASELINE], atMost: 0.55 },
  { of: UNAWAITED, levels: [64], metric: 'throughput', rivals: [BASELINE], atLeast: 1.9 },
  { of: LINGERING, levels: [1], metric: 'throughput', rivals: [BASELINE], atLeast: 100 },
];

/** One line per target and level. */
export function verdict(samples, targets = TARGETS) {
  const lines = [
    'Targets (medians of the ratios of each round; in brackets the range of the rounds)',
  ];
  for (const target of targets) {
    for (const level of target.levels) lines.push(`  ${judge(target, level, samples)}`);
  }
  return lines;
}

function judge(target, level, samples) {
  const { metric, rivals, of = OWN } = target;
  const whose = of === OWN ? '' : `${of}  `;
  const what = `${String(level).padStart(4)} in flight  ${whose}${LABELS[metric].padEnd(10)}`;
  const rival = best(rivals, level, metric, samples);
  const ratios = rival === undefined ? [] : samples.ratios(of, rival, level, metric);
  if (ratios.length === 0) return `${'-'.padEnd(7)} ${what}  not measured (${rivals.join(', ')})`;
  const ratio = median(ratios);
  const range = `[${Math.min(...ratios).toFixed(2)}–${Math.max(...ratios).toFixed(2)}]`;
  const { word, text } = outcome(target, ratio, 'the best of all; no target');
  const absent = rivals.filter((id) => !samples.has(id, level));
  const note =
    absent.length === 0 ? '' : `; ${absent.length} of ${rivals.length} rivals not measured`;
  return `${word.padEnd(7)} ${what} ${ratio.toFixed(2).padStart(6)} x ${rival} ${range}  ${text}${note}`;
}

/** The strongest rival that was measured, by its median. */
function best(rivals, level, metric, samples) {
  const sign = metric === 'throughput' ? -1 : 1;
  return rivals
    .filter((id) => samples.has(id, level))
    .sort(
      (a, b) => sign * (samples.median(a, level, metric) - samples.median(b, level, metric)),
    )[0];
}
