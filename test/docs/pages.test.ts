/** No page without a test that runs its code, and no link that leads nowhere. */

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from '../support/child.js';
import { blocksOf, pages } from './blocks.js';

const SELF = 'docs/pages.test.ts';

/** Pages that have links already, and are on their way. */
const TO_COME = ['benchmarks', 'cli', 'migration', 'redlock'].map((name) => `docs/${name}.md`);

/** The sources of the tests, by their path in `test`. */
const sources = new Map(
  readdirSync(join(ROOT, 'test'), { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.m?ts$/.test(file) && file !== SELF)
    .map((file) => [file, readFileSync(join(ROOT, 'test', file), 'utf8')]),
);

/** The tests that run a page: they take its blocks through `runPage` or `blocksOf`. */
function runnersOf(page: string): string[] {
  const takes = new RegExp(`\\b(?:runPage|blocksOf)\\(\\s*'${page.replaceAll('.', '\\.')}'`);
  return [...sources].filter(([, text]) => takes.test(text)).map(([file]) => file);
}

for (const page of pages()) {
  const code = blocksOf(page).filter(({ language }) => language !== 'text');
  const runners = runnersOf(page);

  if (code.length > 0) {
    test(`${page} is run by ${runners.map((file) => `test/${file}`).join(' and ') || 'nothing'}`, () => {
      assert.notEqual(runners.length, 0, `no test calls runPage('${page}') or blocksOf('${page}')`);
    });
  }

  test(`${page} links to what exists`, () => {
    const text = readFileSync(join(ROOT, page), 'utf8').replace(/^```.*?^```$/gms, '');
    const targets = Array.from(
      text.matchAll(/\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"/g),
      (found) => {
        return found[1] ?? found[2] ?? '';
      },
    );
    for (const target of targets) {
      if (/^https?:/.test(target)) continue;
      const [path = '', anchor] = target.split('#');
      const file = path === '' ? page : join(dirname(page), path);
      if (TO_COME.includes(file) && !existsSync(join(ROOT, file))) continue;
      assert.ok(existsSync(join(ROOT, file)), `${page} links to ${target}`);
      if (anchor !== undefined)
        assert.ok(anchorsOf(file).has(anchor), `${page} links to ${target}`);
    }
  });
}

/** The headings of a page, as GitHub names them. */
function anchorsOf(file: string): Set<string> {
  const text = readFileSync(join(ROOT, file), 'utf8').replace(/^```.*?^```$/gms, '');
  const headings = Array.from(text.matchAll(/^#+ (.+)$/gm), ([, heading = '']) => heading);
  return new Set(
    headings.map((heading) =>
      heading
        .toLowerCase()
        .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
        .replace(/[^\p{L}\p{N}\s_-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );
}
