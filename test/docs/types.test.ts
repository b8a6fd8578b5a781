/** What the pages show as TypeScript compiles with `strict`, so it can be copied. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blocksOf, pages } from './blocks.js';
import { problemsOf } from './compile.js';

test('every block of TypeScript compiles, strictly', () => {
  const typed = pages()
    .flatMap(blocksOf)
    .filter(({ language }) => language === 'ts');
  assert.ok(typed.length > 30);
  assert.deepEqual(problemsOf(typed), []);
});

test('a block that does not compile is told, with its page and line', () => {
  const wrong = { page: 'docs/page.md', line: 7, language: 'ts', code: 'locks.aquire(1)\n' };
  assert.match(problemsOf([wrong]).join(), /^docs\/page\.md:8: .*aquire/);
});
