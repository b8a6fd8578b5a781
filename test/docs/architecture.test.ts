/** docs/architecture.md: the files and functions that it names exist. */

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from '../support/child.js';

const page = readFileSync(join(ROOT, 'docs', 'architecture.md'), 'utf8');

test('the files that docs/architecture.md names exist', () => {
  const paths = [...page.matchAll(/`((?:src|js|scripts)\/[\w./-]+)`/g)].map(
    ([, path]) => path ?? '',
  );
  assert.ok(paths.length > 40, `${paths.length} paths`);
  assert.deepEqual(
    paths.filter((path) => !existsSync(join(ROOT, path))),
    [],
  );
});

test('the functions that docs/architecture.md names beside their files exist', () => {
  const named = [
    ...page.matchAll(/`(?<path>(?:src|js)\/[\w./-]+)`,\s+`(?<name>#?\w+)`/g),
    ...page.matchAll(/`(?<name>\w+)` in\s+`(?<path>(?:src|js)\/[\w./-]+)`/g),
  ];
  assert.ok(named.length >= 20, `${named.length} functions`);
  for (const { groups: { path = '', name = '' } = {} } of named) {
    const text = readFileSync(join(ROOT, path), 'utf8');
    const begin = path.endsWith('.ts')
      ? '^\\s*(?:export |async )*(?:function )?'
      : '\\b(?:fn|function) ';
    assert.match(text, new RegExp(`${begin}${name}\\b`, 'm'), path);
  }
});
