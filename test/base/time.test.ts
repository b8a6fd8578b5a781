/** Lengths of time for people, by the module that the page loads and the command line is made of. */

import assert from 'node:assert/strict';
import { before, test } from 'node:test';

interface Internals {
  fileOf(name: string): { readonly text: string } | undefined;
}

const { fileOf } = require('../../../dist/internals.js') as Internals;

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5 };
const DAY_MS = 864e5;

let human: (ms: number) => string;

before(async () => {
  const text = fileOf('shared.mjs')?.text ?? '';
  ({ human } = await import(`data:text/javascript,${encodeURIComponent(text)}`));
});

test('each length of time is shown to half of the unit that is shown last', () => {
  const lengths = [
    ...range(0, 120_000, 1),
    ...range(120_000, 3 * DAY_MS, 997),
    ...range(3 * DAY_MS, 400 * DAY_MS, 654_321),
  ];
  for (const ms of lengths) {
    const shown = human(ms);
    const { value, last } = read(shown);
    assert.ok(Math.abs(value - ms) <= last / 2 + 1e-6, `${ms} ms: ${shown}`);
  }
});

test('whole minutes, hours and days with their parts are shown as they are', () => {
  for (const seconds of range(60, 3_600, 1)) {
    assert.equal(human(seconds * 1e3), two(seconds, 60, 'm', 's'));
  }
  for (const minutes of range(60, 24 * 60, 1)) {
    assert.equal(human(minutes * 6e4), two(minutes, 60, 'h', 'm'));
  }
  for (const hours of range(24, 24 * 400, 1)) {
    assert.equal(human(hours * 36e5), two(hours, 24, 'd', 'h'));
  }
});

test('the limits between units', () => {
  const shown = [0, 850, 999.4, 999.5, 59_949, 59_950, 3_599_499, 3_599_500, DAY_MS - 3e4 - 1, -5];
  const texts = [
    '0ms',
    '850ms',
    '999ms',
    '1.0s',
    '59.9s',
    '1m00s',
    '59m59s',
    '1h00m',
    '23h59m',
    '0ms',
  ];
  assert.deepEqual(shown.map(human), texts);
  assert.equal(human(DAY_MS - 3e4), '1d00h');
});

function range(from: number, to: number, step: number): number[] {
  return Array.from({ length: Math.ceil((to - from) / step) }, (_, i) => from + i * step);
}

function two(total: number, parts: number, large: string, small: string): string {
  return `${Math.floor(total / parts)}${large}${String(total % parts).padStart(2, '0')}${small}`;
}

/** What a text says, in ms, and how much the last digit of it is. */
function read(text: string): { value: number; last: number } {
  const parts = [...text.matchAll(/([\d.]+)(ms|[smhd])/g)];
  assert.equal(parts.map(([part]) => part).join(''), text);
  const value = parts.reduce((sum, [, digits, unit]) => sum + Number(digits) * unitOf(unit), 0);
  const [, digits = '', unit] = parts.at(-1) ?? [];
  return { value, last: unitOf(unit) / (digits.includes('.') ? 10 : 1) };
}

function unitOf(unit = ''): number {
  return UNITS[unit] ?? Number.NaN;
}
