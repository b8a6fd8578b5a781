/** The examples: they work, and docs/testing.md shows them as they are. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from '../support/child.js';
import { blocksOf } from './blocks.js';

const FOLDER = join(ROOT, 'examples', 'testing');

/** The part of Vitest's report that is read here. */
interface VitestReport {
  readonly numPassedTests: number;
  readonly testResults: readonly {
    readonly assertionResults: readonly { readonly duration: number }[];
  }[];
}

function run(...args: string[]): string {
  // A runner that is started by another would report to it instead of running.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const ended = spawnSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8', env });
  assert.equal(ended.status, 0, `${ended.stdout}${ended.stderr}`);
  return `${ended.stdout}${ended.stderr}`;
}

test("the example for node:test passes with Node's runner", () => {
  const file = join(FOLDER, 'shop.test.mjs');
  const said = run('--test', '--test-reporter=tap', file);
  assert.match(said, /^# pass 2$/m);
});

test('the example for Jest passes with Jest, which then ends by itself', () => {
  const jest = join(ROOT, 'node_modules', 'jest', 'bin', 'jest.js');
  const said = run(jest, '--rootDir', FOLDER, '--runInBand', 'shop.jest.test.js');
  assert.match(said, /^Tests: +2 passed, 2 total$/m);
  assert.doesNotMatch(said, /did not exit/);
});

test('the examples that move the clock pass with Jest and Vitest, a day in less than a minute', () => {
  const jest = join(ROOT, 'node_modules', 'jest', 'bin', 'jest.js');
  const inJest = run(jest, '--rootDir', FOLDER, '--runInBand', 'hourly.jest.test.js');
  assert.match(inJest, /of each hour of a day once(?: \([\d.]+ m?s\))?$/m, 'no whole minute');
  assert.match(inJest, /^Tests: +1 passed, 1 total$/m);
  assert.doesNotMatch(inJest, /did not exit/);
  const vitest = join(ROOT, 'node_modules', 'vitest', 'vitest.mjs');
  const quiet = ['--root', FOLDER, '--no-color', '--cache=false', '--reporter=json'];
  const inVitest = run(vitest, 'run', ...quiet, 'hourly.vitest.test.mjs');
  const report = JSON.parse(inVitest.slice(inVitest.indexOf('{'))) as VitestReport;
  assert.equal(report.numPassedTests, 2);
  const [day] = report.testResults.flatMap(({ assertionResults }) => assertionResults);
  assert.ok(day !== undefined && day.duration < 60_000, `${day?.duration} ms`);
});

test('the page on testing shows the files of the examples, word for word', () => {
  const blocks = blocksOf('docs/testing.md').filter(({ language }) => language === 'js');
  const shown = blocks.map(({ code }) => /^\/\/ (\S+)\n(.*)$/s.exec(code) ?? []);
  const files = shown.map(([, file]) => file);
  assert.deepEqual(files, ['shop.js', 'shop.test.mjs']);
  for (const [, file = '', code] of shown) {
    assert.equal(code, readFileSync(join(FOLDER, file), 'utf8'), file);
  }
});
