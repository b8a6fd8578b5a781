/** The tests and seeded defects that docs/protocol.md names: they exist. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from '../support/child.js';

test('the tests and defects that docs/protocol.md names are in the files to which it links', () => {
  const page = readFileSync(join(ROOT, 'docs', 'protocol.md'), 'utf8');
  const named = [...page.matchAll(/\[`(?<name>[^`]+)`\]\(\.\.\/(?<path>(?:src|test)\/[^)]+)\)/g)];
  assert.ok(named.length > 50, `${named.length} names`);
  for (const { groups: { name = '', path = '' } = {} } of named) {
    assert.ok(readFileSync(join(ROOT, path), 'utf8').includes(name), `${path} has no "${name}"`);
  }
});
