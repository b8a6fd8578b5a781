/** Copies of the package that a development server loads anew, again and again, in one process. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

test('copies of the package that were loaded anew leave one listener, and no memory', async () => {
  const program = ['--expose-gc', join(__dirname, 'reloading.js')];
  const { stdout, stderr } = await promisify(execFile)(process.execPath, program);
  assert.equal(stderr, '');
  const { listeners, alive, works } = JSON.parse(stdout);
  assert.equal(listeners, 1);
  assert.ok(alive <= 2, `${alive} copies are alive`);
  assert.ok(works);
});
