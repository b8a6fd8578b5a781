/** Labels: any text stands in a token, within bounds, and is read as it was given. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import os from 'node:os';
import { test } from 'node:test';
import fc from 'fast-check';

interface Internals {
  adviceOnGone(label: string | undefined): string | undefined;
  readonly tokens: { labelOf(token: string): string | undefined };
  writeLabel(text: string): string;
  readLabel(written: string): string;
  printable(text: string): string;
}

const { adviceOnGone, tokens, writeLabel, readLabel, printable } =
  require('../../../dist/internals.js') as Internals;

const WRITTEN = /^(?:[A-Za-z0-9._~-]|%[0-9A-F]{2}){0,240}$/;
const shown = (text: string) => readLabel(writeLabel(text));

test('a label is read as it was given', () => {
  const build = 'deploy by anna@example.com (build 4711)';
  assert.equal(
    writeLabel(build),
    'deploy%20by%20anna%40example.com%20%28build%204711%29',
    'a token has no space, which ends it in the marker of a slot, and no +',
  );
  for (const text of [build, '', 'web-1.4711', '100 %', '%41', '=value', 'a+', 'Zoë · 北京 🚀']) {
    assert.equal(shown(text), text);
    assert.match(writeLabel(text), WRITTEN, text);
  }
});

test('a label of before stands for itself, also one that is no escape', () => {
  for (const old of ['web-1.4711', 'a~b_c', 'x'.repeat(80), '%', '100%', '%ff', '%c3']) {
    assert.equal(tokens.labelOf(`hf1.c.5.${old}`), old);
  }
});

test('what is too long is cut between characters as people see them', () => {
  assert.equal(shown('x y'.repeat(40)), 'x y'.repeat(40).slice(0, 80));
  const family = '👨‍👩‍👧‍👦';
  const written = writeLabel(family.repeat(9));
  assert.ok(written.length <= 240, `${written.length}`);
  assert.equal(readLabel(written), family.repeat(3));
  assert.equal(shown('🇩🇪'.repeat(30)), '🇩🇪'.repeat(10));
  assert.equal(shown('é'.normalize('NFD').repeat(40)), 'é'.normalize('NFD').repeat(34));
});

test('control characters, ends of lines and what turns text round are in no label', () => {
  assert.equal(shown('a\nb\tc\x1b[2J\u202ed\u2028e\x9b'), 'a-b-c-[2J-d-e-');
});

test('an emoji of several is shown as one, and a joiner elsewhere as an escape', () => {
  assert.equal(printable('👩🏽‍🚀 🏳️‍🌈'), '👩🏽‍🚀 🏳️‍🌈');
  assert.equal(printable('a\u200db\u200d'), 'a\\u{200d}b\\u{200d}');
});

test('any text: bounded, of the characters of a token, and the start of what was given', () => {
  const text = fc.string({ unit: 'grapheme', maxLength: 200 });
  fc.assert(
    fc.property(text, (given) => {
      assert.match(writeLabel(given), WRITTEN);
      const plain = given.replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, '-');
      assert.ok(plain.startsWith(shown(given)));
      assert.equal(tokens.labelOf(`hf1.c.5.${writeLabel(given)} done`) ?? '', shown(given));
    }),
  );
});

test('only the default label of a process of this machine that is gone has an advice', () => {
  const { pid } = spawnSync(process.execPath, ['--version']);
  const machine = os.hostname().slice(0, 63);
  const advice = adviceOnGone(`${machine}.${pid}`);
  assert.match(`${advice}`, new RegExp(`^no process ${pid} is seen .* locks\\.close\\(\\)`));
  const others = [
    `${machine}.${process.pid}`,
    `${machine}.1`,
    `other-${machine}.${pid}`,
    `${machine}.${pid} `,
    `${machine}.0${pid}`,
    `${machine}.${pid}.x`,
    `${machine}.12345678901`,
    `${machine}`,
    '',
    undefined,
  ];
  for (const label of others) assert.equal(adviceOnGone(label), undefined, label);
});

test('a process that may not ask for the name of the machine calls it pid', (t) => {
  const { pid } = spawnSync(process.execPath, ['--version']);
  t.mock.method(os, 'hostname', () => {
    throw new Error('no permission');
  });
  assert.match(`${adviceOnGone(`pid.${pid}`)}`, /^no process/);
  assert.equal(adviceOnGone(`undefined.${pid}`), undefined);
});
