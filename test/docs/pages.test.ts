/** No page without a test that runs its code, and no link that leads nowhere. */

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from '../support/child.js';
import { blocksOf, pages } from './blocks.js';

const SELF = 'docs/pages.test.ts';

/** The sources of the tests, by their path in `test`. */
const sources = new Map(
  readdirSync(join(ROOT, 'test'), { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.m?ts$/.test(file) && file !== SELF)
    .map((file) => [file, readFileSync(join(ROOT, 'test', file), 'utf8')]),
);

/** The tests that run a page: they take its blocks by `runPage` or `blocksOf`, or read it by themselves. */
function runnersOf(page: string): string[] {
  const file = page.replaceAll('.', '\\.');
  const [folder, name] = file.split('/');
  const takes = new RegExp(`\\b(?:runPage|blocksOf)\\(\\s*'${file}'|'${folder}', '${name}'`);
  return [...sources].filter(([, text]) => takes.test(text)).map(([source]) => source);
}

for (const page of pages()) {
  const code = blocksOf(page).filter(({ language }) => language !== 'text');
  const runners = runnersOf(page);

  if (code.length > 0) {
    test(`${page} is run by ${runners.map((file) => `test/${file}`).join(' and ') || 'nothing'}`, () => {
      assert.notEqual(runners.length, 0, `no test calls runPage('${page}') or blocksOf('${page}')`);
    });
  }
}

/** Pages whose first example a reader copies by itself. */
for (const page of pages().filter((each) => each.startsWith('docs/'))) {
  const example = blocksOf(page).find(({ language }) => /^(ts|js)\b/.test(language));
  if (example === undefined || !/(?<!\.)\blocks\b/.test(example.code)) continue;
  test(`the first example of ${page} makes or takes the manager that it uses`, () => {
    assert.match(example.code, /const locks = await connect\(|\(locks\b|\blocks: LockManager\b/);
    if (/\bconnect\(/.test(example.code))
      assert.match(example.code, /import \{[^}]*\bconnect\b[^}]*\} from 'holdfast'/);
  });
}

test('the README links to every page, but for those in Chinese, which its translation names', () => {
  for (const readme of ['README.md', 'README.zh-CN.md']) {
    const linked = new Set(targetsOf(readme).map((target) => target.split('#')[0]));
    const ours = pages().filter((page) => page.includes('zh-CN') === readme.includes('zh-CN'));
    const missing = ours.filter((page) => page !== readme && !linked.has(page));
    assert.deepEqual(missing, [], readme);
  }
});

/** What else has links: pages whose code is shown, not taught. */
const others = ['CONTRIBUTING.md'].concat(
  readdirSync(join(ROOT, 'examples'), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.md'))
    .map((file) => `examples/${file}`),
);

for (const page of [...pages(), ...others]) {
  test(`${page} links to what exists`, () => {
    for (const target of targetsOf(page)) {
      if (/^https?:/.test(target)) continue;
      const [path = '', anchor] = target.split('#');
      const file = path === '' ? page : join(dirname(page), path);
      assert.ok(existsSync(join(ROOT, file)), `${page} links to ${target}`);
      if (anchor !== undefined)
        assert.ok(anchorsOf(file).has(anchor), `${page} links to ${target}`);
    }
  });
}

/** What a page says besides its code. */
function proseOf(page: string): string {
  return readFileSync(join(ROOT, page), 'utf8').replace(/^```.*?^```$/gms, '');
}

function targetsOf(page: string): string[] {
  const found = proseOf(page).matchAll(/\]\(([^)\s]+)\)|src="([^"]+)"/g);
  return Array.from(found, ([, link, picture]) => link ?? picture ?? '');
}

/** The headings of a page, as GitHub names them: the second of a name gets a number. */
function anchorsOf(page: string): Set<string> {
  const text = proseOf(page);
  const anchors = new Set(Array.from(text.matchAll(/<a id="([^"]+)">/g), ([, id = '']) => id));
  for (const [, heading = ''] of text.matchAll(/^#+ (.+)$/gm)) {
    const name = heading
      .toLowerCase()
      .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-');
    let anchor = name;
    for (let count = 1; anchors.has(anchor); count++) anchor = `${name}-${count}`;
    anchors.add(anchor);
  }
  return anchors;
}

test('the figures of the README are those of docs/benchmarks.md', () => {
  const [readme, benchmarks] = ['README.md', 'docs/benchmarks.md'].map((page) =>
    readFileSync(join(ROOT, page), 'utf8'),
  ) as [string, string];
  const section = /^## Figures\n(.*?)^## /ms.exec(readme)?.[1] ?? '';
  // Ratios, and times in ms.
  const figures = section.match(/\b\d+\.\d\d\b|\b\d+(?= ms[ ;])/g) ?? [];
  assert.ok(figures.length > 10, `${figures}`);
  const known = new Set(benchmarks.match(/\d+(?:\.\d+)?/g));
  assert.deepEqual(
    figures.filter((figure) => !known.has(figure)),
    [],
  );
});
