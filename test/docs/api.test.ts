/** The API that is made from the docstrings: no public item is without one, and its examples compile and run. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { ReflectionKind } from 'typedoc';
import { ROOT } from '../support/child.js';
import { removeFolder } from '../support/folders.js';
import { blocksOf } from './blocks.js';
import { problemsOf } from './compile.js';
import { Places } from './places.js';
import { runPage } from './run-page.js';
import { Shop } from './shop.js';

const FOLDER = 'build/docs/api';
const JSON_FILE = `${FOLDER}.json`;

/** What TypeDoc tells of an item. */
interface Item {
  readonly name: string;
  readonly kind: number;
  readonly flags?: { readonly isOptional?: boolean };
  readonly comment?: { readonly blockTags?: readonly { readonly tag: string }[] };
  readonly children?: readonly Item[];
  readonly signatures?: readonly Item[];
}

removeFolder(join(ROOT, FOLDER));
// It fails if a public item has no docstring. The blocks of its pages become tests, so it runs before all of them.
execFileSync(
  join(ROOT, 'node_modules', '.bin', 'typedoc'),
  ['--out', FOLDER, '--json', JSON_FILE],
  { cwd: ROOT, encoding: 'utf8', stdio: 'pipe' },
);
const api: Item = JSON.parse(readFileSync(join(ROOT, JSON_FILE), 'utf8'));
const pages = readdirSync(join(ROOT, FOLDER), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.md'))
  .sort()
  .map((file) => `${FOLDER}/${file}`);

let shop: Shop;
let places: Places;

before(async () => {
  [shop, places] = [await Shop.open(), await Places.open()];
});

after(() => Promise.all([shop?.close(), places?.close()]));

beforeEach(() => shop.reset());

/** Whether an item, or one of its signatures, has a tag. */
function has(item: Item, tag: string): boolean {
  const comments = [item, ...(item.signatures ?? [])].map(({ comment }) => comment);
  return comments.some((comment) => comment?.blockTags?.some((each) => each.tag === tag) ?? false);
}

test('every type, function and method has an example', () => {
  const without = (api.children ?? []).flatMap((item) => {
    const methods = (item.children ?? []).filter(({ kind }) => kind === ReflectionKind.Method);
    const lacking = methods.filter((method) => !has(method, '@example'));
    const names = lacking.map(({ name }) => `${item.name}.${name}`);
    return has(item, '@example') ? names : [item.name, ...names];
  });
  assert.deepEqual(without, []);
});

test('every option has a default', () => {
  const without = (api.children ?? []).flatMap(({ name, children = [] }) => {
    const optional = children.filter(({ flags }) => flags?.isOptional);
    const lacking = optional.filter((option) => !has(option, '@default'));
    return lacking.map((option) => `${name}.${option.name}`);
  });
  assert.deepEqual(without, []);
});

test('every example compiles, strictly', () => {
  const blocks = pages.flatMap(blocksOf).filter(({ language }) => language === 'ts');
  assert.ok(blocks.length > 50);
  assert.deepEqual(problemsOf(blocks), []);
});

for (const page of pages) {
  runPage(page, {
    surroundings: () => ({
      env: { ...shop.surroundings.env, ...places.surroundings.env },
      instead: { ...shop.surroundings.instead, ...places.surroundings.instead },
      stage: 'test/docs/stage.mjs',
    }),
  });
}
