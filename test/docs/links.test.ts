/** Links that leave the repository with a page. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { ROOT } from '../support/child.js';

interface Links {
  portable(text: string, where: Where): string;
}

interface Where {
  readonly home?: string;
  readonly ref: string;
  readonly folder?: string;
  comes(path: string): boolean;
}

let portable: Links['portable'];

before(async () => {
  const file = pathToFileURL(join(ROOT, 'scripts', 'links.mjs')).href;
  ({ portable } = (await import(file)) as Links);
});

const comes = (path: string) => path === 'docs/servers.md';
const hosted: Where = { home: 'https://example.com/a/b', ref: 'v1', comes };

test('a link leads to the place where the repository is hosted', () => {
  const at = 'https://example.com/a/b/blob/v1';
  assert.equal(portable('[`x`](docs/a.md#b)', hosted), `[\`x\`](${at}/docs/a.md#b)`);
  assert.equal(
    portable('[x](../README.md)', { ...hosted, folder: 'docs/' }),
    `[x](${at}/README.md)`,
  );
  assert.equal(
    portable('![x](docs/a.svg)', hosted),
    '![x](https://example.com/a/b/raw/v1/docs/a.svg)',
  );
  assert.equal(
    portable('[![x](a.svg)](b.md)', hosted),
    `[![x](https://example.com/a/b/raw/v1/a.svg)](${at}/b.md)`,
  );
});

test('a link elsewhere or within the page stays', () => {
  for (const link of ['[x](https://example.org)', '[x](#part)', '[x](mailto:a@b.c)']) {
    assert.equal(portable(link, hosted), link);
  }
});

test('without such a place, a link to what does not come along is its text', () => {
  const alone = { ref: 'v1', comes };
  assert.equal(
    portable('[x](docs/servers.md#b) [y](docs/a.md)![z](a.svg)', alone),
    '[x](docs/servers.md#b) y',
  );
});
