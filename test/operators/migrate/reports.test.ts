/**
 * `holdfast migrate`: all that it says of each lock of the corpus. `reports.txt` has it; with `HOLDFAST_REPORTS=write` this
 * test writes that file anew, for people to read the difference.
 */

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from '../../support/child.js';
import { blocksOf, folderOf, type Report, reportOf } from './support.js';

const REPORTS = join(ROOT, 'test', 'operators', 'migrate', 'reports.txt');

/** A lock in a few lines: its place, command and key, what is wrong where, and the code that replaces it. */
function linesOf({ found }: Report): string[] {
  return found.flatMap(({ path, locks }) =>
    locks.flatMap(({ line, column, by, key, findings, advice, code }) => [
      `${path}:${line}:${column} ${by} ${key ?? 'no key'}`,
      ...findings.map((each) => `  ${each.rule} ${each.line}:${each.column}`),
      `  ${code ?? advice}`,
    ]),
  );
}

test('each lock is told with its place, its key, what is wrong where, and what replaces it', async () => {
  const reports: string[] = [];
  for (const page of ['locks.md', 'conditions.md']) {
    const files = blocksOf(page).map(({ name, text }) => [name, text]);
    reports.push(page, ...linesOf(await reportOf(folderOf(Object.fromEntries(files)))), '');
  }
  if (process.env['HOLDFAST_REPORTS'] === 'write') writeFileSync(REPORTS, reports.join('\n'));
  assert.deepEqual(reports, readFileSync(REPORTS, 'utf8').split('\n'));
});
