/** What a screen draws in place, for each height and width, and how it leaves the terminal. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';

interface Screen {
  show(lines: readonly string[]): void;
  close(): void;
}

interface Internals {
  readonly Screen: new (quit: () => void) => Screen;
}

// It is internal: it is reached by path, past the package's exports.
const { Screen } = require('../../../../dist/internals.js') as Internals;

const { stdout, stdin, env } = process;
const given = { isTTY: stdout.isTTY, rows: stdout.rows, columns: stdout.columns };
const { NO_COLOR, TERM } = env;

let quits: number;
let screen: Screen;
let written: string[];
let real: typeof stdout.write;

/** What is written while `act` runs: the runner of the tests writes to stdout as well. */
function during(act: () => void): string {
  written = [];
  stdout.write = ((text: string) => written.push(text) > 0) as typeof stdout.write;
  try {
    act();
  } finally {
    stdout.write = real;
  }
  return written.join('');
}

/** The lines that are drawn, without the codes at their ends. */
function drawn(act: () => void): string[] {
  const text = during(act);
  assert.ok(text.startsWith('\x1b[H') && text.endsWith('\x1b[K\x1b[J'), JSON.stringify(text));
  const lines = text.slice('\x1b[H'.length, -'\x1b[J'.length).split('\r\n');
  assert.ok(lines.every((line) => line.endsWith('\x1b[K')));
  return lines.map((line) => line.slice(0, -'\x1b[K'.length));
}

beforeEach(() => {
  real = stdout.write;
  quits = 0;
  delete env['NO_COLOR'];
  env['TERM'] = 'xterm';
  Object.assign(stdout, { isTTY: true, rows: 4, columns: 10 });
  const entered = during(() => {
    screen = new Screen(() => {
      quits += 1;
    });
  });
  assert.equal(entered, '\x1b[?1049h\x1b[?25l');
});

afterEach(() => {
  during(() => screen.close());
  mock.restoreAll();
  Object.assign(stdout, given);
  Object.assign(env, { NO_COLOR, TERM });
  for (const [name, value] of Object.entries({ NO_COLOR, TERM }))
    if (value === undefined) delete env[name];
});

const BOLD = '\x1b[1m';

test('what fits is drawn whole, with the head of the table in bold', () => {
  assert.deepEqual(
    drawn(() => screen.show(['a', '', 'HEAD', 'b'])),
    ['a', '', `${BOLD}HEAD\x1b[0m`, 'b'],
  );
  assert.deepEqual(
    drawn(() => screen.show(['a', ''])),
    ['a', ''],
  );
});

test('of more lines than fit the last one tells how many are left out', () => {
  const lines = ['a', '', 'HEAD', 'b', 'c'];
  assert.equal(drawn(() => screen.show(lines))[3], '… and 2 mo');
  Object.assign(stdout, { columns: 40 });
  assert.deepEqual(drawn(() => screen.show([...lines, 'd'])).slice(3), ['… and 3 more']);
});

test('lines are cut by letters as people see them', () => {
  const [line] = drawn(() => screen.show([`${'🚀'.repeat(9)}abc`]));
  assert.equal(line, `${'🚀'.repeat(9)}a`);
});

test('another size draws the same lines again, until the end', () => {
  during(() => screen.show(['a', 'b', 'c']));
  Object.assign(stdout, { rows: 2 });
  assert.deepEqual(
    drawn(() => stdout.emit('resize')),
    ['a', '… and 2 mo'],
  );
  const [resizes, exits] = [stdout.listenerCount('resize'), process.listenerCount('exit')];
  assert.equal(
    during(() => screen.close()),
    '\x1b[?25h\x1b[?1049l',
  );
  assert.equal(stdout.listenerCount('resize'), resizes - 1);
  assert.equal(process.listenerCount('exit'), exits - 1);
  assert.equal(
    during(() => stdout.emit('resize')),
    '',
  );
});

test('q and Ctrl-C end it, and no other key, at a terminal alone', () => {
  const { isTTY } = stdin;
  const raws: boolean[] = [];
  const setRawMode = (raw: boolean) => {
    raws.push(raw);
    return stdin;
  };
  const before = stdin.listenerCount('data');
  assert.equal(before, 0, 'no key is read without a terminal');
  const had = Object.getOwnPropertyDescriptor(stdin, 'setRawMode');
  Object.assign(stdin, { isTTY: true, setRawMode });
  try {
    let own = screen;
    during(() => {
      own = new Screen(() => {
        quits += 1;
      });
    });
    for (const key of ['q', 'Q', '\x03']) stdin.emit('data', Buffer.from(key));
    assert.equal(quits, 3);
    for (const key of ['x', 'qq', '\x1b', '']) stdin.emit('data', Buffer.from(key));
    assert.equal(quits, 3);
    during(() => own.close());
    assert.deepEqual([raws, stdin.listenerCount('data')], [[true, false], 0]);
    assert.ok(stdin.isPaused());
  } finally {
    Object.assign(stdin, { isTTY });
    if (had === undefined) delete (stdin as { setRawMode?: unknown }).setRawMode;
    else Object.defineProperty(stdin, 'setRawMode', had);
  }
});
