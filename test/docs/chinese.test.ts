/** The Chinese README and guide say what the English ones do: the same sections, code, figures and links. */

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from '../support/child.js';
import { blocksOf } from './blocks.js';

const read = (page: string) => readFileSync(join(ROOT, page), 'utf8');
const [english, chinese] = [read('README.md'), read('README.zh-CN.md')];

const CHANGED = 'when the English README changes, change README.zh-CN.md, too';

test('the README has the sections of the English one, in their order', () => {
  const levels = (text: string) => Array.from(text.matchAll(/^(#+) \S/gm), ([, level]) => level);
  assert.deepEqual(levels(chinese), levels(english), CHANGED);
});

test('its code is that of the English one, but for what is said to people who install', () => {
  const [theirs, ours] = ['README.md', 'README.zh-CN.md'].map((page) =>
    blocksOf(page).map(({ language, code }) => {
      return `${language}\n${language === 'sh' ? code.replaceAll(/ *#.*$/gm, '') : code}`;
    }),
  );
  assert.deepEqual(ours, theirs, CHANGED);
});

test('its figures and calls are those of the English one', () => {
  const rows = (text: string) =>
    Array.from(text.matchAll(/^\| .*\| (\**[\d.]+\**) \| (\**[\d.]+\**) \|$/gm), ([, a, b]) => [
      a,
      b,
    ]);
  assert.ok(rows(english).length > 3);
  assert.deepEqual(rows(chinese), rows(english), CHANGED);
  const calls = (text: string) =>
    new Set(Array.from(text.matchAll(/^- `(loc[^`]+|\{[^`]+)`/gm), ([, call]) => call));
  assert.deepEqual(calls(chinese), calls(english), CHANGED);
});

test('its links lead to what exists', () => {
  const links = Array.from(chinese.matchAll(/\]\(([^)\s#]+)[^)]*\)/g), ([, to = '']) => to);
  assert.ok(links.length > 20);
  for (const link of links) {
    assert.ok(/^https:/.test(link) || existsSync(join(ROOT, link)), link);
  }
});

test('the guide has the code of the first sections of the English one, section by section', () => {
  const sectionsOf = (page: string) =>
    read(page)
      .split(/^## /m)
      .map((section) => Array.from(section.matchAll(/^```.*?^```$/gms), ([block]) => block));
  const [theirs, ours] = ['docs/guide.md', 'docs/guide.zh-CN.md'].map(sectionsOf) as [
    string[][],
    string[][],
  ];
  assert.ok(ours.length > 7);
  assert.deepEqual(
    ours,
    theirs.slice(0, ours.length),
    'when docs/guide.md changes, change docs/guide.zh-CN.md, too',
  );
});
