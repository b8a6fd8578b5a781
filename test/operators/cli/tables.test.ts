/** Tables, lines and colours as the command line writes them, for each width of a terminal. */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';

interface Fit {
  readonly shorten: readonly string[];
  readonly leave: readonly string[];
  readonly colour?: (head: string, cell: string, row: readonly string[]) => string | undefined;
}

interface Internals {
  paint(stream: object, how: string, text: string): string;
  table(heads: readonly string[], cells: readonly (readonly string[])[], fit?: Fit): string[];
  wrapped(text: string, indent?: number, most?: number): string;
}

// They are internal: they are reached by path, past the package's exports.
const { paint, table, wrapped } = require('../../../../dist/internals.js') as Internals;

const { stdout, env } = process;
const { isTTY, columns } = stdout;
const { NO_COLOR, TERM } = env;

afterEach(() => {
  Object.assign(stdout, { isTTY, columns });
  Object.assign(env, { NO_COLOR, TERM });
  for (const [name, value] of Object.entries({ NO_COLOR, TERM }))
    if (value === undefined) delete env[name];
});

/** Makes stdout a terminal of so many columns; one that does not tell has 0. */
function onTerminal(columns: number): void {
  delete env['NO_COLOR'];
  env['TERM'] = 'xterm';
  Object.assign(stdout, { isTTY: true, columns });
}

const HEADS = ['NAME', 'HOLDER', 'FENCE', 'LEASE'];
const NAME = 'abcdefghijklmnopqrst';
const HOLDER = '0123456789012345';
const ROWS = [[NAME, HOLDER, '7', '9.5s']];
const FIT: Fit = { shorten: ['NAME', 'HOLDER'], leave: ['FENCE', 'LEASE'] };

/** The table at a terminal of so many columns. */
function at(columns: number, fit: Fit = FIT): string[] {
  onTerminal(columns);
  return table(HEADS, ROWS, fit);
}

test('each column is as wide as its widest cell, its head among them, with two spaces between', () => {
  assert.deepEqual(
    table(
      ['A', 'LONG', 'C'],
      [
        ['abc', 'x', 'last'],
        ['', 'longer', ''],
      ],
    ),
    ['A    LONG    C', 'abc  x       last', '     longer'],
  );
  assert.deepEqual(table(['A', 'B'], [['a']]), ['A  B', 'a'], 'a cell that is missing is empty');
  assert.deepEqual(table(['A', 'B'], []), ['A  B']);
});

test('a letter of two units counts as one, and what a terminal would obey is escaped', () => {
  assert.deepEqual(table(['A', 'B'], [['😀', 'b']]), ['A  B', '😀  b']);
  assert.deepEqual(table(['A', 'B'], [['\x1b', 'b']]), ['A       B', '\\u{1b}  b']);
});

test('where there is room for all, nothing is shortened and no column leaves', () => {
  const whole = [`${'NAME'.padEnd(22)}${'HOLDER'.padEnd(18)}FENCE  LEASE`];
  whole.push(`${NAME}  ${HOLDER}  7      9.5s`);
  assert.deepEqual(at(52), whole);
  Object.assign(stdout, { isTTY: false, columns: 10 });
  assert.deepEqual(table(HEADS, ROWS, FIT), whole, 'a file has no end');
  assert.deepEqual(at(0), whole, 'a terminal that does not tell has 80 columns');
});

test('the widest cell gives its middle first, a letter for each column that lacks', () => {
  const cells = (columns: number) => at(columns)[1]?.split(/ {2,}/);
  assert.deepEqual(cells(51), ['abcdefghi…lmnopqrst', HOLDER, '7', '9.5s']);
  assert.deepEqual(cells(48), ['abcdefgh…nopqrst', HOLDER, '7', '9.5s']);
  // Then both in turn, to fourteen letters.
  assert.deepEqual(cells(47), ['abcdefg…nopqrst', HOLDER, '7', '9.5s']);
  assert.deepEqual(cells(44), ['abcdefg…opqrst', '0123456…012345', '7', '9.5s']);
  onTerminal(37);
  const late = table(['A', 'B'], [[HOLDER, NAME]], { shorten: ['A', 'B'], leave: [] });
  assert.equal(late[1], `${HOLDER}  abcdefghi…lmnopqrst`, 'wherever the widest stands');
});

test('columns leave in their order where the shortest form of the others does not fit', () => {
  const heads = (columns: number) => at(columns)[0]?.split(/ {2,}/);
  assert.deepEqual(heads(44), HEADS);
  assert.deepEqual(heads(43), ['NAME', 'HOLDER', 'LEASE']);
  assert.deepEqual(heads(37), ['NAME', 'HOLDER', 'LEASE']);
  assert.deepEqual(heads(36), ['NAME', 'HOLDER']);
  // Below that nothing gives way any more.
  assert.deepEqual(at(5)[1]?.split(/ {2,}/), ['abcdefg…opqrst', '0123456…012345']);
});

test('no column is shortened below its head, nor one that is short already', () => {
  onTerminal(10);
  const head = 'A HEAD OF 20 LETTERS';
  const fit: Fit = { shorten: [head, 'B'], leave: [] };
  assert.deepEqual(table([head, 'B'], [['x'.repeat(30), 'short']], fit), [
    `${head}  B`,
    `${'x'.repeat(10)}…${'x'.repeat(9)}  short`,
  ]);
});

test('a cell has the colour of its row at a terminal, and keeps its width', () => {
  const asked: unknown[] = [];
  const colour: Fit['colour'] = (head, cell, row) => {
    asked.push([head, cell, row]);
    return cell === 'free' ? 'dim' : undefined;
  };
  const rows = [
    ['a', 'free', 'x'],
    ['b', 'taken', 'y'],
  ];
  const fit: Fit = { shorten: [], leave: [], colour };
  onTerminal(80);
  assert.deepEqual(table(['N', 'STATE', 'L'], rows, fit), [
    'N  STATE  L',
    'a  \x1b[2mfree\x1b[0m   x',
    'b  taken  y',
  ]);
  assert.deepEqual(asked.slice(0, 2), [
    ['N', 'a', rows[0]],
    ['STATE', 'free', rows[0]],
  ]);
  assert.equal(asked.length, 6, 'heads have none');
});

test('colours are for a terminal that has them, unless NO_COLOR has a value', () => {
  const [terminal, file] = [{ isTTY: true }, { isTTY: false }];
  onTerminal(80);
  for (const [how, code] of [
    ['bold', 1],
    ['dim', 2],
    ['red', 31],
    ['green', 32],
    ['yellow', 33],
  ] as const)
    assert.equal(paint(terminal, how, 'x'), `\x1b[${code}mx\x1b[0m`);
  assert.equal(paint(file, 'bold', 'x'), 'x');
  env['NO_COLOR'] = '';
  assert.notEqual(paint(terminal, 'bold', 'x'), 'x');
  env['NO_COLOR'] = '1';
  assert.equal(paint(terminal, 'bold', 'x'), 'x');
  delete env['NO_COLOR'];
  env['TERM'] = 'dumb';
  assert.equal(paint(terminal, 'bold', 'x'), 'x');
});

test('a text breaks at words, and its later lines are indented', () => {
  assert.equal(wrapped('one two three', 0, 13), 'one two three');
  assert.equal(wrapped('one two three', 0, 12), 'one two\nthree');
  assert.equal(wrapped('one two three', 0, 7), 'one two\nthree');
  assert.equal(wrapped('one two three', 0, 6), 'one\ntwo\nthree');
  assert.equal(wrapped('one two three', 2, 9), 'one two\n  three');
  assert.equal(wrapped('  one two', 4, 6), '  one\n    two', 'its own indentation stays');
  assert.equal(wrapped('endless-word x', 0, 5), 'endless-word\nx', 'no word is broken');
  assert.equal(wrapped('😀😀 😀', 0, 4), '😀😀 😀', 'by its letters');
  onTerminal(6);
  assert.equal(wrapped('one two'), 'one\ntwo');
  onTerminal(0);
  assert.equal(wrapped(`${'x'.repeat(40)} ${'y'.repeat(39)}`).includes('\n'), false);
  assert.equal(wrapped(`${'x'.repeat(40)} ${'y'.repeat(40)}`).includes('\n'), true);
  Object.assign(stdout, { isTTY: false, columns: 6 });
  assert.equal(wrapped('one two'), 'one two', 'a file has no end');
});
