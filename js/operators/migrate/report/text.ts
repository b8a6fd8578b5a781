/** The report for people. */

import type { Report } from '../migrate.js';
import { docsOf, LEVELS, type Level, RULES, type RuleName } from '../rules.js';

/** Colours a text by what it says. */
export type Tint = (how: Level | 'title' | 'aside', text: string) => string;

/** Writes each lock with what is wrong with it, and then the rules that were broken. */
export function asText({ files, found, unread }: Report, tint: Tint): string {
  const lines = found.flatMap(({ path, locks }) =>
    locks.flatMap(({ line, column, by, key, findings, advice }) => [
      `${tint('title', `${path}:${line}:${column}`)} ${by}${key === null ? '' : ` ${key}`}`,
      ...findings.map(({ rule, line, column }) => {
        const { level, sentence } = RULES[rule];
        return `  ${tint(level, rule)} ${tint('aside', `${line}:${column}`)} ${sentence}`;
      }),
      `  ${tint('aside', advice)}`,
      '',
    ]),
  );
  return [
    ...lines,
    ...unread.map((path) => `${path}: this is no program that can be read`),
    ...summary(found, files, tint),
  ].join('\n');
}

function summary(found: Report['found'], files: number, tint: Tint): string[] {
  const locks = found.flatMap((each) => each.locks);
  const head = `${count(locks.length, 'lock')} in ${count(found.length, 'file')} of ${files}`;
  const counts = new Map<RuleName, number>();
  for (const { rule } of locks.flatMap(({ findings }) => findings))
    counts.set(rule, (counts.get(rule) ?? 0) + 1);
  const rules = [...counts].sort(
    ([a, m], [b, n]) => LEVELS.indexOf(RULES[a].level) - LEVELS.indexOf(RULES[b].level) || n - m,
  );
  const wide = Math.max(0, ...rules.map(([rule]) => rule.length));
  return [
    tint('title', head),
    ...rules.map(
      ([rule, times]) =>
        `${`${times}`.padStart(5)}  ${tint(RULES[rule].level, rule.padEnd(wide))}  ${tint('aside', docsOf(rule))}`,
    ),
  ];
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
