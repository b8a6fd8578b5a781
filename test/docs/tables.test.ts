/** What the pages list is what there is: options, errors, warnings, events, metrics, and the command line. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { ROOT } from '../support/child.js';
import { membersOf, read, sources, textsOf } from './declarations.js';

/** The words in code that a text has, also those of its blocks. */
function wordsOf(text: string): Set<string> {
  const blocks = Array.from(text.matchAll(/^```.*?\n(.*?)^```$/gms), ([, code = '']) => code);
  const prose = text.replaceAll(/^```.*?^```$/gms, '');
  const spans = Array.from(prose.matchAll(/`([^`]+)`/g), ([, code = '']) => code);
  return new Set([...blocks, ...spans].flatMap((code) => [code, ...code.split(/[^\w$.-]+/)]));
}

/** The words in code in the first cells of the tables whose heads begin so. */
function firstCells(text: string, head: string): string[] {
  const found: string[] = [];
  let isIn = false;
  for (const line of text.split('\n')) {
    if (!line.startsWith('|')) isIn = false;
    else if (line.startsWith(`| ${head} |`)) isIn = true;
    else if (isIn) {
      const [, first = ''] = line.split(/(?<!\\)\|/);
      found.push(...Array.from(first.matchAll(/`([^`]+)`/g), ([, code = '']) => code));
    }
  }
  return found;
}

/** The part of a page from one heading to the next of its level. */
function sectionOf(page: string, heading: RegExp): string {
  const parts = read(page).split(/^(?=## )/m);
  const found = parts.find((part) => heading.test(part.split('\n')[0] ?? ''));
  if (found === undefined) throw new Error(`${page} has no section ${heading}`);
  return found;
}

function same(listed: Iterable<string>, real: Iterable<string>, where: string): void {
  const [said, is] = [new Set(listed), new Set(real)];
  const missing = [...is].filter((each) => !said.has(each));
  const surplus = [...said].filter((each) => !is.has(each));
  assert.deepEqual({ missing, surplus }, { missing: [], surplus: [] }, where);
}

test('docs/reference.md lists the options of acquire, tryAcquire and request', () => {
  const listed = firstCells(sectionOf('docs/reference.md', /^## acquire/), 'option');
  same(listed, membersOf('js/lock/options.ts', 'RequestOptions'), 'docs/reference.md');
});

test('docs/reference.md lists the options of runOnce', () => {
  const listed = firstCells(sectionOf('docs/reference.md', /^## runOnce/), 'option');
  const ofLock = membersOf('js/lock/options.ts', 'AcquireOptions');
  const own = membersOf('js/once/options.ts', 'OnceOptions').filter(
    (name) => name === 'wait' || !ofLock.includes(name),
  );
  same(listed, own, 'docs/reference.md');
});

test('docs/connecting.md lists the options of connect, and those of tls', () => {
  const page = read('docs/connecting.md');
  same(firstCells(page, 'option'), membersOf('js/connect/options.ts', 'ConnectOptions'), 'connect');
  same(firstCells(page, 'option of `tls`'), membersOf('js/connect/tls.ts', 'TlsOptions'), 'tls');
});

for (const [page, file, type] of [
  ['docs/idempotency.md', 'js/adapters/idempotency/options.ts', 'IdempotencyOptions'],
  ['docs/ui.md', 'js/operators/page/options.ts', 'LockUiOptions'],
  ['docs/nest.md', 'js/adapters/nest/module.ts', 'HoldfastModuleOptions'],
  ['docs/nest.md', 'js/adapters/nest/health.ts', 'LockHealthOptions'],
  ['docs/observability.md', 'js/metrics/prometheus.ts', 'MeasureOptions'],
  ['docs/reference.md', 'js/lock/options.ts', 'AdoptOptions'],
  ['docs/reference.md', 'js/lock/options.ts', 'ForceReleaseOptions'],
  ['docs/reference.md', 'js/lock/options.ts', 'QueryOptions'],
  ['docs/fencing.md', 'js/fence/http.ts', 'HttpFenceOptions'],
] as const) {
  test(`${page} names each option of ${type}`, () => {
    // What connect and acquire have, their own pages list.
    const known =
      type === 'HoldfastModuleOptions' ? membersOf('js/connect/options.ts', 'ConnectOptions') : [];
    const words = wordsOf(read(page));
    const options = membersOf(file, type).filter((name) => !known.includes(name));
    assert.deepEqual(
      options.filter((name) => !words.has(name)),
      [],
    );
  });
}

/** The codes of errors that the source names, but for those of Node that only its own arguments have. */
const codes = new Set(
  sources.flatMap((file) =>
    Array.from(read(file).matchAll(/'(ERR_[A-Z_]+)'/g), ([, code = '']) => code),
  ),
);

test('docs/reference.md and docs/operations.md have every code of an error', () => {
  const reference = wordsOf(read('docs/reference.md') + read('docs/cli.md'));
  const reactions = wordsOf(sectionOf('docs/operations.md', /^## How to handle each error/));
  const missing = [...codes].filter((code) => !reference.has(code));
  assert.deepEqual(missing, [], 'docs/reference.md or docs/cli.md');
  const unhandled = [...codes].filter((code) => !reactions.has(code));
  assert.deepEqual(unhandled, [], 'docs/operations.md');
});

test('docs/operations.md lists the warnings', () => {
  const listed = firstCells(
    sectionOf('docs/operations.md', /^## How to handle each warning/),
    'code',
  );
  const locks = textsOf('js/manager/events.ts', 'LockWarningCode');
  const others = sources.flatMap((file) =>
    Array.from(read(file).matchAll(/'(WARN_[A-Z_]+)'/g), ([, code = '']) => code),
  );
  same(listed, new Set([...locks, ...others]), 'docs/operations.md');
});

test('docs/reference.md lists the events', () => {
  const section = sectionOf('docs/reference.md', /^## Events/);
  const ofManager = firstCells(section, 'event of a manager');
  same(ofManager, membersOf('js/manager/events.ts', 'LockManagerEvents'), 'events of a manager');
});

test('docs/reference.md lists the statistics', () => {
  const section = sectionOf('docs/reference.md', /^## stats/);
  const listed = section.match(/^\| `[^|]+\|/gm)?.flatMap((cell) => cell.match(/\w+(?=`)/g) ?? []);
  same(listed ?? [], membersOf('js/manager/stats.ts', 'LockStats'), 'docs/reference.md');
});

test('docs/observability.md names every metric', () => {
  const words = wordsOf(read('docs/observability.md'));
  const names = ['measures', 'prometheus', 'opentelemetry'].flatMap((file) =>
    Array.from(
      read(`js/metrics/${file}.ts`).matchAll(
        /(?:name|prometheus|opentelemetry): '(holdfast[._][\w.]+)'/g,
      ),
      ([, name = '']) => name,
    ),
  );
  assert.ok(names.length > 20);
  // A histogram's buckets bear its name.
  const missing = names.filter((name) => !words.has(name));
  assert.deepEqual(missing, []);
});

test('docs/cli.md names every command, option, exit code and environment variable', () => {
  const help = (...words: string[]) =>
    execFileSync(process.execPath, ['dist/operators/cli/main.js', ...words, '--help'], {
      cwd: ROOT,
      encoding: 'utf8',
    });
  const commands = Array.from(help().matchAll(/^ {2}([a-z]+)(?: |$)/gm), ([, name = '']) => name);
  const listed = [...new Set(commands)].filter((name) => !['holdfast', 'help'].includes(name));
  assert.ok(listed.length > 6, `${listed}`);
  const pages = read('docs/cli.md') + read('docs/ui.md');
  const words = wordsOf(pages);
  const missing = listed.flatMap((command) => {
    const options = Array.from(
      help(command).matchAll(/^ +(?:-\w, )?(--[a-z-]+)/gm),
      ([, it = '']) => it,
    );
    return [command, ...options.filter((it) => it !== '--help')].filter((it) => !words.has(it));
  });
  assert.deepEqual([...new Set(missing)], []);
  const exits = Array.from(
    read('js/operators/cli/exit.ts').matchAll(/^ {2}\w+: (\d+),$/gm),
    ([, it = '']) => it,
  );
  assert.ok(exits.length > 8);
  assert.deepEqual(
    exits.filter((it) => !new RegExp(`^\\| ${it}\\b|\\b${it}\\b`, 'm').test(pages)),
    [],
  );
  const variables = sources.flatMap((file) =>
    Array.from(
      read(file).matchAll(/env(?:\['|\.)((?:HOLDFAST|NO|FORCE)_[A-Z_]+)/g),
      ([, it = '']) => it,
    ),
  );
  const all = [
    'docs/cli.md',
    'docs/ui.md',
    'docs/connecting.md',
    'docs/operations.md',
    'docs/reference.md',
  ];
  const text = all.map(read).join('\n');
  assert.deepEqual(
    [...new Set([...variables, 'NO_COLOR'])].filter((name) => !text.includes(name)),
    [],
  );
});
