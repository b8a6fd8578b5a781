/** Lengths of time and moments: as people read them, and as they write them. */

import assert from 'node:assert/strict';
import { before, test } from 'node:test';

interface Internals {
  fileOf(name: string): { readonly text: string } | undefined;
  milliseconds(text: string, what: string): number;
  moment(time: Date): string;
  readDuration(text: string): number | undefined;
}

const { fileOf, milliseconds, moment, readDuration } =
  require('../../../dist/internals.js') as Internals;

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5 };
const DAY_MS = 864e5;

let human: (ms: number) => string;

// By the module that the page loads and the command line is made of.
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

test('a text is read with its unit, in whole ms, or not at all', () => {
  const read: [string, number | undefined][] = [
    ['5ms', 5],
    ['1.5ms', 2],
    ['0.4ms', 0],
    ['0s', 0],
    ['1.5s', 1_500],
    ['30m', 1_800_000],
    ['2h', 7_200_000],
    ['1.25d', 108_000_000],
    ['5', undefined],
    ['.5s', undefined],
    ['1.s', undefined],
    ['5 s', undefined],
    ['5s ', undefined],
    ['-5s', undefined],
    ['5S', undefined],
    ['5w', undefined],
    ['s', undefined],
    ['', undefined],
  ];
  for (const [text, ms] of read) assert.equal(readDuration(text), ms, text);
  assert.equal(milliseconds('2m', 'ttl'), 120_000);
});

test('a text without a unit is refused: a number with how to write it, a long text cut', () => {
  const long = `${'a'.repeat(59)}b`;
  const ends: [string, string][] = [
    ['5', `"5": write 5 for ms, or '5s' for seconds`],
    ['030', `"030": write 30 for ms, or '030s' for seconds`],
    ['5.5', '"5.5"'],
    ['x5', '"x5"'],
    [long, `"${long}"`],
    [`${long}c`, `"${long}…"`],
  ];
  for (const [text, shown] of ends) {
    assert.throws(
      () => milliseconds(text, 'ttl'),
      (error: Error & { code: string }) => {
        assert.equal(error.code, 'ERR_INVALID_ARG_VALUE');
        assert.ok(error.message.startsWith('ttl must be a number of ms, or a text with a unit'));
        assert.ok(error.message.endsWith(` '1h' or '1d', got ${shown}`), error.message);
        return true;
      },
    );
  }
});

test('a moment has its date unless that is today', () => {
  assert.equal(moment(new Date(2001, 1, 3, 4, 5, 6)), '2001-02-03 04:05:06');
  assert.equal(moment(new Date(2011, 10, 23, 14, 15, 16)), '2011-11-23 14:15:16');
  const noon = new Date(new Date().setHours(12, 0, 0));
  const isToday = noon.toDateString() === new Date().toDateString();
  if (isToday) assert.equal(moment(noon), '12:00:00');
  assert.match(moment(new Date(noon.getTime() - DAY_MS)), /^\d{4}-\d\d-\d\d 1[123]:00:00$/);
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
