/**
 * The client that docs/protocol.md shows: it and holdfast exclude each other, and wait in one queue. And the tests and
 * seeded defects that the page names: they exist.
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { ROOT } from '../support/child.js';
import { RedisServer } from '../support/server.js';
import { runPage } from './run-page.js';

let server: RedisServer;

before(async () => {
  server = await RedisServer.start();
});

after(() => server?.stop());

runPage('docs/protocol.md', {
  surroundings: () => ({
    env: { REDIS_URL: server.url },
    instead: {
      'redis://127.0.0.1:6379': server.url,
      '`src/protocol/lua/': `\`${join(ROOT, 'src', 'protocol', 'lua')}/`,
    },
    stage: 'test/docs/stage.mjs',
  }),
});

test('the tests and defects that docs/protocol.md names are in the files to which it links', () => {
  const page = readFileSync(join(ROOT, 'docs', 'protocol.md'), 'utf8');
  const named = [...page.matchAll(/\[`(?<name>[^`]+)`\]\(\.\.\/(?<path>(?:src|test)\/[^)]+)\)/g)];
  assert.ok(named.length > 50, `${named.length} names`);
  for (const { groups: { name = '', path = '' } = {} } of named) {
    assert.ok(readFileSync(join(ROOT, path), 'utf8').includes(name), `${path} has no "${name}"`);
  }
});
