/** The site of the documentation: every page is in its navigation, and a link that leads nowhere is found. */

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { ROOT } from '../support/child.js';
import { removeFolder } from '../support/folders.js';
import { pages } from './blocks.js';

interface Navigation {
  readonly SECTIONS: readonly { readonly pages: readonly (readonly [string, string])[] }[];
}

interface Links {
  deadLinks(folder: string, base: string): string[];
}

let folder: string;

before(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-site-'));
  mkdirSync(join(folder, 'api'));
});

after(() => removeFolder(folder));

test('every page of docs is in the navigation', async () => {
  const { SECTIONS } = await load<Navigation>('navigation.mjs');
  const named = SECTIONS.flatMap((section) => section.pages.map(([, file]) => file));
  const missing = pages().filter((page) => page !== 'README.md' && !named.includes(page));
  assert.deepEqual(missing, [], 'add them to site/navigation.mjs');
});

test('a link that leads to no page, picture or heading is found', async () => {
  const { deadLinks } = await load<Links>('links.mjs');
  write(
    'index.html',
    '<h2 id="a">A</h2><a href="/x/guide">1</a><a href="#a">2</a><a href="/x/api/#b">3</a><img src="/x/a.svg">',
  );
  write('guide.html', '<a href="https://example.com/#z">1</a><a href="/x/api/">2</a>');
  write('api/index.html', '<h2 id="b">B</h2><a href="../guide">1</a><a href="/x/#a">2</a>');
  write('a.svg', '<svg/>');
  assert.deepEqual(deadLinks(folder, '/x/'), []);

  write('guide.html', '<a href="/x/guid">1</a><a href="/x/#c">2</a><img src="/x/b.svg">');
  write('api/index.html', '<h2 id="b">B</h2><a href="/guide">1</a>');
  assert.deepEqual(deadLinks(folder, '/x/').sort(), [
    'api/index.html: /guide',
    'guide.html: /x/#c',
    'guide.html: /x/b.svg',
    'guide.html: /x/guid',
  ]);
});

function load<Module>(file: string): Promise<Module> {
  return import(pathToFileURL(join(ROOT, 'site', file)).href);
}

function write(file: string, html: string): void {
  writeFileSync(join(folder, file), html);
}
