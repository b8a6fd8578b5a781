/** Managed services fail over by DNS: the name of the primary gets another address. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { NO_NAMES, runWithNames } from '../support/names.js';

test('failovers in which the name of the primary gets another address', {
  skip: NO_NAMES,
}, async (t) => {
  const { code, stdout, stderr } = await runWithNames(join(__dirname, 'dns.js'));
  assert.equal(code, 0, `${stdout}${stderr}`);
  const passed = stdout.match(/^ok .*$|✔ .*$/gm) ?? [];
  assert.ok(passed.length > 0, stdout);
  t.diagnostic(passed.join('\n'));
});
