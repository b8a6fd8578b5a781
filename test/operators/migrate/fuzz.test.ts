/** `holdfast migrate --write` on random programs: it never fails, breaks no program, keeps line ends, and is done after one run. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { blocksOf, folderOf, migrates, type Report, read, reportOf } from './support.js';

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

const APART = `import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
export class Locks {
  constructor(url) {
    this.redis = new Redis(url);
  }
  async lock(key) {
    const token = randomUUID();
    if ((await this.redis.set(key, token, 'PX', 900, 'NX')) !== 'OK') return null;
    return token;
  }
  async unlock(key, token) {
    await this.redis.eval("if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end", 1, key, token);
  }
}
`;

/** A lock whose client is in another file, which all programs have beside them. */
const IMPORTED = FORM.replace(/^.*\n.*\n/, "import { kv as redis } from './kv.mjs';\n").replace(
  'f(key',
  'g(key',
);
const CLIENT = "import { Redis } from 'ioredis';\nexport const kv = new Redis('redis://h:1');\n";

/** Whole programs, one after another, inside of each other, and with lines lost, doubled or exchanged. */
const program = fc
  .record({
    parts: fc.array(fc.oneof(fc.constantFrom(...WHOLE), fc.constantFrom(FORM, APART, IMPORTED)), {
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

/** Random programs in a folder, before anything is written. */
interface Campaign {
  readonly folder: string;
  readonly texts: ReadonlyMap<string, string>;
  readonly before: Report;
}

async function campaignOf(seed: number, count: number): Promise<Campaign> {
  const texts = new Map(
    fc
      .sample(program, { numRuns: count, seed })
      .map((text, i) => [`${i}.${['mjs', 'ts', 'cjs', 'tsx'][i % 4]}`, text]),
  );
  const manifest = '{"dependencies":{"redlock":"^5.0.0","redis-semaphore":"^5.0.0"}}';
  const folder = folderOf({
    ...Object.fromEntries(texts),
    'kv.mjs': CLIENT,
    'package.json': manifest,
  });
  return { folder, texts, before: await reportOf(folder) };
}

/** Whether a text is a program; the command itself does not parse a file again in which it finds no lock. */
async function isProgram(name: string, text: string): Promise<boolean> {
  const { parseSync } = await import('oxc-parser');
  const lang = name.endsWith('.tsx') ? 'tsx' : name.endsWith('.ts') ? 'ts' : 'jsx';
  const types = name.endsWith('.mjs')
    ? ['module']
    : name.endsWith('.cjs')
      ? ['commonjs', 'script', 'module']
      : ['module', 'script'];
  return types.some(
    (type) => parseSync(name, text, { lang, sourceType: type as 'module' }).errors.length === 0,
  );
}

/** What must hold after a run with `--write`. */
async function check({ folder, texts, before }: Campaign): Promise<void> {
  for (const [name, text] of texts) {
    const written = read(folder, name);
    if (!before.changes.includes(name)) assert.equal(written, text, `${name} has changed`);
    else assert.equal(/\r\n/.test(text), /\r\n/.test(written), `${name} has other line ends`);
    if (/\r\n/.test(text) && !/[^\r]\n/.test(text))
      assert.doesNotMatch(written, /[^\r]\n/, `${name} has other line ends`);
    if (!before.changes.includes(name)) continue;
    assert.ok(await isProgram(name, text), `${name} was no program`);
    assert.ok(await isProgram(name, written), `${name} cannot be parsed`);
  }
  const { changes } = await reportOf(folder, '--write');
  assert.deepEqual(changes, [], 'a second run changes files');
}

test('random programs', async () => {
  const { HOLDFAST_SEED: given = '1' } = process.env;
  const seed = Number(given);
  const campaign = await campaignOf(seed, PROGRAMS);
  const { folder, before } = campaign;
  const first = await migrates(folder, '--write');
  assert.equal(first.code, 0, `seed ${seed}: ${first.stderr}`);
  assert.ok(before.changes.length > 10, `seed ${seed}: only ${before.changes.length} files change`);
  await check(campaign).catch((error) => {
    throw new Error(`seed ${seed}: ${error.message}`, { cause: error });
  });
});

/** What a wrong rewriter could do to a file, and what the check says of it. */
const DAMAGES: readonly (readonly [told: RegExp, damage: (text: string) => string])[] = [
  [/0\.mjs cannot be parsed/, (text) => `${text}\n}}`],
  [/has other line ends/, (text) => text.replaceAll('\n', '\r\n')],
  [/a second run changes files/, () => FORM],
];

test('the check of random programs notices what a wrong rewriter would do', async () => {
  for (const [told, damage] of DAMAGES) {
    const folder = folderOf({ '0.mjs': FORM, '1.mjs': 'export {};\n' });
    const campaign = {
      folder,
      texts: new Map([
        ['0.mjs', FORM],
        ['1.mjs', 'export {};\n'],
      ]),
      before: await reportOf(folder),
    };
    await migrates(folder, '--write');
    await check(campaign);
    writeFileSync(join(folder, '0.mjs'), damage(read(folder, '0.mjs')));
    await assert.rejects(check(campaign), told);
  }
  const other = await campaignOf(1, 4);
  writeFileSync(join(other.folder, '0.mjs'), 'changed();\n');
  await assert.rejects(
    check({ ...other, before: { ...other.before, changes: [] } }),
    /0\.mjs has changed/,
  );
});
