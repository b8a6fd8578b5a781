/** The same promises on Bun and Deno, in their own runners of tests. */

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { succeeds } from '../../package/packed.js';
import { ROOT } from '../../support/child.js';
import { fetched } from '../../support/fetched.js';
import { removeFolder } from '../../support/folders.js';
import { needs } from '../../support/tools.js';

needs('redis');

const LISTS = ['embedded', 'conformance'].map((name) =>
  join(ROOT, 'build', 'test', 'behaviour', 'conformance', `${name}.test.js`),
);
/** The places that these tests choose: a defect of a runtime shows on any server, so one of each kind is enough. */
const HOSTS = '^on (the embedded store|(Redis|Valkey) [0-9.]+)';

test('Bun does as Node does', async (t) => {
  const bun = await fetched('bun@1', 'bin/bun');
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-bun-'));
  t.after(() => removeFolder(folder));
  const file = join(folder, 'junit.xml');
  const flags = ['--timeout=60000', '--reporter=junit', `--reporter-outfile=${file}`];
  await succeeds(bun, ['test', ...LISTS, '-t', `${HOSTS} `, ...flags]);
  assertAllPassed(readFileSync(file, 'utf8'));
});

test('Deno does as Node does', async () => {
  const deno = await fetched('deno@2', 'deno');
  const flags = ['--allow-all', '--no-check', '--v8-flags=--expose-gc', '--reporter=junit'];
  assertAllPassed(await succeeds(deno, ['test', ...flags, `--filter=/${HOSTS}$/`, ...LISTS]));
});

/** The runners also exit with 0 if their filter matches no test, so the tests that ran are counted. */
function assertAllPassed(junit: string): void {
  const [all = ''] = /<testsuites [^>]*>/.exec(junit) ?? [];
  const count = (name: string) => Number(all.match(new RegExp(` ${name}="(\\d+)"`))?.[1] ?? 0);
  assert.ok(count('tests') - count('skipped') > 100, all);
  assert.equal(count('failures'), 0);
}
