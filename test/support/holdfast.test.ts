/** A test that fails leaves the next one what it needs. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { removeFolder } from './folders.js';

const FILE = `
const { before, after, test } = require('node:test');
const { connect } = require(${JSON.stringify(join(__dirname, 'holdfast.js'))});
let locks;
before(async () => { locks = await connect('memory:'); });
after(() => locks.close());
test('fails', async () => {
  await locks.acquire('held');
  locks.acquire('held', { wait: 60_000 }).catch(() => {});
  await locks.acquire('shared', { mode: 'shared' });
  throw new Error('on purpose');
});
test('passes', async () => {
  for (const name of ['held', 'shared']) await (await locks.acquire(name, { wait: 0 })).release();
  await locks.acquire('kept');
});
test('passes, too', async () => {
  if ((await locks.query({ name: 'kept' })).held.length !== 1) throw new Error('it was released');
});
`;

test('what a failed test holds is released, and what a test holds that passed is not', () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-failed-'));
  try {
    const file = join(folder, 'failing.test.js');
    writeFileSync(file, FILE);
    const { NODE_TEST_CONTEXT, ...env } = process.env;
    const args = ['--test', '--test-reporter=tap', file];
    const { stdout } = spawnSync(process.execPath, args, { env, encoding: 'utf8' });
    const results = Array.from(
      stdout.matchAll(/^ *(ok|not ok) \d+ - (\w.*)$/gm),
      ([, is, what]) => [what, is],
    );
    const expected = { fails: 'not ok', passes: 'ok', 'passes, too': 'ok' };
    assert.deepEqual(
      Object.fromEntries(results.filter(([what = '']) => what in expected)),
      expected,
      stdout,
    );
  } finally {
    removeFolder(folder);
  }
});
