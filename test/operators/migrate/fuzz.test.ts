/** `holdfast migrate --write` on random programs: it never fails, breaks no program, keeps line ends, and is done after one run. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { blocksOf, folderOf, migrates, read, reportOf } from './support.js';

const WHOLE = [...blocksOf('locks.md'), ...blocksOf('silent.md')].map(({ text }) => text);
const LINES = WHOLE.flatMap((text) => text.split('\n')).filter((line) => line.trim() !== '');
const FORM = `import { Redis } from 'ioredis';
const redis = new Redis('redis://h:1');
export async function f(key, work) {
  const got = await redis.set(key, '1', 'PX', 900, 'NX');
  if (!got) return;
  try { await work(); } finally { await redis.del(key); }
}
`;

/** Whole programs, one after another, inside of each other, and with lines lost, doubled or exchanged. */
const program = fc
  .record({
    parts: fc.array(fc.oneof(fc.constantFrom(...WHOLE), fc.constant(FORM)), {
      minLength: 1,
      maxLength: 3,
    }),
    // Most stay as they are, so that enough of them change.
    wrap: fc.constantFrom(
      '',
      '',
      '',
      '',
      '',
      '',
      'if (a) {\n',
      'class A { async m() {\n',
      'export default () => {\n',
    ),
    lines: fc.array(
      fc.tuple(fc.nat(60), fc.constantFrom(...LINES), fc.constantFrom('add', 'drop', 'swap')),
      { maxLength: 2 },
    ),
    eol: fc.constantFrom('\n', '\r\n'),
    odd: fc.constantFrom('', '// é 😀 \u2028\n', '#!/usr/bin/env node\n', '\ufeff'),
  })
  .map(({ parts, wrap, lines, eol, odd }) => {
    const close = '}'.repeat((wrap.match(/\{/g) ?? []).length);
    const text = `${odd}${wrap}${parts.join('')}${close}\n`.split('\n');
    for (const [at, line, how] of lines)
      text.splice(at % text.length, how === 'add' ? 0 : 1, ...(how === 'drop' ? [] : [line]));
    return text.join(eol);
  });

const PROGRAMS = 400;

test('random programs', async () => {
  const seed = Date.now();
  const texts = fc.sample(program, { numRuns: PROGRAMS, seed });
  const folder = folderOf(
    Object.fromEntries([
      ...texts.map((text, i) => [`${i}.${['mjs', 'ts', 'cjs', 'tsx'][i % 4]}`, text]),
      ['package.json', '{"dependencies":{"redlock":"^5.0.0","redis-semaphore":"^5.0.0"}}'],
    ]),
  );
  const before = await reportOf(folder);
  const first = await migrates(folder, '--write');
  assert.equal(first.code, 0, `seed ${seed}: ${first.stderr}`);
  assert.ok(before.changes.length > 10, `seed ${seed}: only ${before.changes.length} files change`);
  const { changes, unread } = await reportOf(folder, '--write');
  assert.deepEqual(changes, [], `seed ${seed}`);
  assert.deepEqual(unread, before.unread, `seed ${seed}: a changed file cannot be parsed`);
  for (const [i, text] of texts.entries()) {
    const name = `${i}.${['mjs', 'ts', 'cjs', 'tsx'][i % 4]}`;
    const written = read(folder, name);
    if (!before.changes.includes(name)) assert.equal(written, text, `seed ${seed}: ${name}`);
    else assert.equal(/\r\n/.test(text), /\r\n/.test(written), `seed ${seed}: ${name}`);
    if (/\r\n/.test(text) && !/[^\r]\n/.test(text))
      assert.doesNotMatch(written, /[^\r]\n/, `seed ${seed}: ${name}`);
  }
});
