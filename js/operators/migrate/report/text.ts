/** The report for people. */

import type { FoundLock } from '../find/lock.js';
import type { Report } from '../migrate.js';
import { docsOf, LEVELS, type Level, RULES, type RuleName } from '../rules.js';

/** Colours a text by what it says. */
export type Tint = (how: Level | 'title' | 'aside', text: string) => string;

/** Writes each lock with what is wrong with it, and then the rules that were broken. */
export function asText(report: Report, tint: Tint): string {
  const locks = report.found.flatMap(({ path, locks }) =>
    locks.flatMap((lock) => [...linesOf(path, lock, report.changed.includes(path), tint), '']),
  );
  const unread = report.unread.map(({ path, reason }) => `${path}: not read: ${reason}`);
  return [...locks, ...unread, ...summary(report, tint)].join('\n');
}

function linesOf(path: string, lock: FoundLock, isChanged: boolean, tint: Tint): string[] {
  const { line, column, by, key, findings, advice, code, rewritten } = lock;
  const change = rewritten ? (isChanged ? 'changed to: ' : '--write: ') : '';
  return [
    `${tint('title', `${path}:${line}:${column}`)} ${by}${key === null ? '' : ` ${key}`}`,
    ...findings.map(({ rule, line, column }) => {
      const { level, sentence } = RULES[rule];
      return `  ${tint(level, rule)} ${tint('aside', `${line}:${column}`)} ${sentence}`;
    }),
    `  ${tint('aside', `→ ${change}${advice}`)}`,
    ...(code === undefined ? [] : [`    ${tint('aside', code)}`]),
  ];
}

function summary(report: Report, tint: Tint): string[] {
  const { files, found } = report;
  const locks = found.flatMap((each) => each.locks);
  const head = `${count(locks.length, 'lock')} in ${count(found.length, 'file')} of ${files}`;
  const counts = new Map<RuleName, number>();
  for (const { rule } of locks.flatMap(({ findings }) => findings))
    counts.set(rule, (counts.get(rule) ?? 0) + 1);
  const order = (rule: RuleName) => LEVELS.indexOf(RULES[rule].level);
  const rules = [...counts].sort(([a, m], [b, n]) => order(a) - order(b) || n - m);
  const wide = Math.max(0, ...rules.map(([rule]) => rule.length));
  const rows = rules.map(
    ([rule, times]) =>
      `${`${times}`.padStart(5)}  ${tint(RULES[rule].level, rule.padEnd(wide))}  ${tint('aside', docsOf(rule))}`,
  );
  return [tint('title', head), ...rows, ...changesOf(report)];
}

function changesOf({ changes, changed, unchanged }: Report): string[] {
  const filesOf = (paths: readonly string[]) =>
    `${count(paths.length, 'file')}: ${paths.join(', ')}`;
  const failed = unchanged.map(({ path, reason }) => `${path}: not changed: ${reason}`);
  if (changed.length > 0)
    return [...failed, `Changed ${filesOf(changed)}.`, 'Run npm install holdfast, and your tests.'];
  if (failed.length > 0) return [...failed, 'No file is changed.'];
  return changes.length === 0 ? [] : [`--write changes ${filesOf(changes)}.`];
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
