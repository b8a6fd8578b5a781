/** The result of a campaign, in tables for people. */

import type { RoundResult } from './round.js';

/** The number of violations of a round that are reported: the others have the same cause as a rule. */
const SHOWN = 20;

/** One line about a round that is over. */
export function line(round: RoundResult): string {
  const { plan, faults, operations, verdict, stores, problems, mishaps } = round;
  const { where, seed, seconds } = plan;
  return [
    `${where.padEnd(10)} seed ${seed}`,
    `${Math.round(seconds)} s`,
    `${operations.length} operations`,
    `${faults.length} faults`,
    `longest wait ${secondsOf(verdict.longestWait)}`,
    `gap ${secondsOf(verdict.longestGap)}`,
    `${stores.refused} accesses refused for their fence`,
    problems.length === 0 ? 'ok' : `${problems.length} VIOLATIONS`,
    ...mishaps.map((mishap) => `not brought about: ${mishap}`),
  ].join(' · ');
}

/** Everything about a round that broke a promise. */
export function story({ plan, faults, problems, folder }: RoundResult): string {
  const happened = faults.map(({ kind, from, to }) => `  [${from} … ${to}] ${kind}`);
  return [
    `Violations in a round on ${plan.where}, seed ${plan.seed}:`,
    ...problems.slice(0, SHOWN).map((problem) => `  ${problem}`),
    ...(problems.length > SHOWN ? [`  and ${problems.length - SHOWN} more`] : []),
    'What had happened meanwhile, in µs of CLOCK_MONOTONIC:',
    ...happened,
    `The journals are in ${folder}; npm run torture -- --seed ${plan.seed} --only ${plan.where} begins with this round.`,
  ].join('\n');
}

/** All rounds in sum. `left` is what they left behind, `stale` what an unfenced store accepted. */
export function table(
  rounds: readonly RoundResult[],
  left: readonly string[],
  stale: number,
): string {
  const operations = rounds.flatMap((round) => round.operations);
  const count = (keys: readonly string[]) => {
    const counts = new Map<string, number>();
    for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
    return [...counts].sort(([a], [b]) => a.localeCompare(b));
  };
  const holds = rounds.flatMap((round) => Object.entries(round.holds));
  const kinds = [...new Set(holds.map(([kind]) => kind))].sort();
  const most = (of: (round: RoundResult) => number) => Math.max(0, ...rounds.map(of));
  const sum = (of: (round: RoundResult) => number) =>
    rounds.reduce((total, round) => total + of(round), 0);
  return [
    ...section('Places', count(rounds.map(({ plan }) => plan.where))),
    ...section('Faults', count(rounds.flatMap(({ faults }) => faults.map(({ kind }) => kind)))),
    ...section('Operations', count(operations.map(({ way }) => way))),
    ...section('How they ended', count(operations.map(({ outcome }) => outcome))),
    ...section(
      'Holds',
      kinds.map((kind) => [kind, sum((round) => round.holds[kind] ?? 0)]),
    ),
    ...section('Hand-offs', [['within a process', sum(({ handedOff }) => handedOff)]]),
    ...section('Result', [
      ['longest wait, under faults', secondsOf(most(({ verdict }) => verdict.longestWait))],
      ['longest wait, after them', secondsOf(most(({ verdict }) => verdict.longestCalmWait))],
      ['longest gap after them', secondsOf(most(({ verdict }) => verdict.longestGap))],
      ['most overtaken, after them', most(({ verdict }) => verdict.mostOvertaken)],
      ['writes to the fenced stores', sum(({ stores }) => stores.accepted)],
      ['accesses they refused', sum(({ stores }) => stores.refused)],
      ['stale writes without a fence', stale],
      ['faults not brought about', sum(({ mishaps }) => mishaps.length)],
      ['violations', sum(({ problems }) => problems.length)],
      ['leftovers', left.length],
    ]),
  ].join('\n');
}

function section(title: string, rows: readonly (readonly [string, number | string])[]): string[] {
  return ['', title, ...rows.map(([what, value]) => `  ${what.padEnd(32)} ${value}`)];
}

function secondsOf(us: number): string {
  return `${(us / 1e6).toFixed(1)} s`;
}
