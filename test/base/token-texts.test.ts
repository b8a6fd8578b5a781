/**
 * Generated tokens, as the parser of this side reads them. That of the core reads the same: `src/protocol/token.rs` compares it
 * with each line of `token-texts.tsv`, whose columns are the text, its client, number, permits, limit and label.
 *
 * `HOLDFAST_WRITE=1 node scripts/test.mjs token-texts` writes that file anew, if the grammar changes.
 */

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

interface Tokens {
  labelOf(token: string): string | undefined;
  clientOf(token: string): string | null;
  numberOf(token: string, client: string): number;
  shareOf(token: string): { permits: number; limit: number | null };
  termsOf(limit: number, permits: number): string;
  limitIn(terms: string): number | null;
}

const { tokens } = require('../../../dist/internals.js') as { tokens: Tokens };

const FILE = join(__dirname, '../../../test/base/token-texts.tsv');
const SEED = 20_260_731;
const COUNT = 500;

interface Line {
  readonly text: string;
  readonly client: string;
  readonly number: string;
  readonly permits: number;
  readonly limit: string;
  readonly label: string;
}

/** Texts that look like tokens, and are none. */
const OTHERS = [
  '',
  'other',
  'hf1',
  'hf1.',
  'hf1.c',
  'hf1.c.',
  'hf1.c.x',
  'hf2.c.5',
  'hf1.c./3',
  'hf1.c.5x',
];

function lines(): Line[] {
  let state = SEED;
  const below = (count: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * count);
  };
  const pick = <T>(from: readonly T[]) => from[below(from.length)] as T;
  const digits = () =>
    pick([below(10), below(1_000_000), 2 ** 32 + below(1_000), 2 ** 53 - 1 - below(9)]);
  const word = (letters: string) =>
    Array.from({ length: 1 + below(12) }, () => pick([...letters])).join('');
  const labels = [
    () => '',
    () => word('abcXYZ019'),
    () => word('ab.-_~1'),
    () => `${word('ab')}%20${word('cd')}%F0%9F%94%92`,
    () => `@${word('order7.~')}`,
    () => `@${word('a1')}%2F${word('b')}`,
  ];
  const generated = Array.from({ length: COUNT }, () => {
    const client = pick([word('0123456789abcdef'), '019b76e0b1aa7abc8000000000000000']);
    const number = digits();
    const limit = pick([0, 1 + below(10), digits() + 1]);
    const permits = pick([1, 1, 1 + below(Math.min(limit || 1, 2 ** 31))]);
    const label = pick(labels)();
    const end = label === '' ? '' : `.${label}`;
    const text = `hf1.${client}.${number}${tokens.termsOf(limit, permits)}${end}`;
    const share = limit === 0 ? { permits: 1, limit: '' } : { permits, limit: String(limit) };
    return { text, client, number: String(number), ...share, label };
  });
  const others = OTHERS.map((text) => ({
    text,
    client: '',
    number: '',
    permits: 1,
    limit: '',
    label: '',
  }));
  return [...generated, ...others];
}

test('both parsers read the same texts', () => {
  const generated = lines();
  const rows = generated.map((line) => Object.values(line).join('\t'));
  if (process.env['HOLDFAST_WRITE'] !== undefined) writeFileSync(FILE, `${rows.join('\n')}\n`);
  assert.equal(readFileSync(FILE, 'utf8'), `${rows.join('\n')}\n`);
});

test('a token tells what it was made of', () => {
  for (const { text, client, number, permits, limit, label } of lines()) {
    assert.equal(tokens.clientOf(text) ?? '', client, text);
    assert.equal(tokens.numberOf(text, client), number === '' ? Number.NaN : Number(number), text);
    const terms = { permits, limit: limit === '' ? null : Number(limit) };
    assert.deepEqual(tokens.shareOf(text), terms, text);
    assert.equal(tokens.limitIn(tokens.termsOf(terms.limit ?? 0, permits)), terms.limit, text);
    const read = decodeURIComponent(label.replace(/^@/, ''));
    assert.equal(tokens.labelOf(text) ?? '', read, text);
  }
});
