/** What runs the pages notices when a page is wrong. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Block } from './blocks.js';
import { runProgram } from './programs.js';

function run(language: string, code: string): Promise<void> {
  const block: Block = { page: 'docs/page.md', line: 7, language, code };
  const env = { GREETING: 'hello' };
  return runProgram(block, { env, instead: { 'example.com': 'localhost' } });
}

test('a block that runs passes, with types, imports, await using and what it is given', async () => {
  await run(
    'ts',
    "import { join } from 'node:path'\nconst a: string = join('a', 'b')\nconsole.log(a) // a/b",
  );
  await run('ts', 'await using nothing = null\nconsole.log(process.env.GREETING) // hel…');
  await run(
    'js',
    "const { connect } = require('holdfast')\nconsole.log(typeof connect) // function",
  );
  await run('ts', "console.log('example.com'.length) // 9");
  await run('sh', 'test "$GREETING" = hello');
});

test('a block that throws, fails or ends before its end does not pass', async () => {
  await assert.rejects(run('ts', "throw new Error('no')"), /docs\/page\.md:7: ended with 1\n.*no/s);
  await assert.rejects(run('ts', 'const ='), /ended with 1/);
  await assert.rejects(run('ts', 'await new Promise(() => {})'), /ended with 13/);
  await assert.rejects(run('sh', 'false; true'), /ended with 1/);
});

test('a block that prints something else than it says does not pass', async () => {
  await assert.rejects(run('ts', 'console.log(1) // 2'), /docs\/page\.md:7 prints/);
  await assert.rejects(run('ts', 'if (0) console.log(1) // 1'), /prints/);
  await assert.rejects(run('ts', "console.log('a.b') // a-b"), /prints/);
});
