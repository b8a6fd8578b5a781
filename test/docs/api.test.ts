/**
 * The reference that is made from the docstrings: it is as they are now, no public item is without one,
 * and its examples run.
 */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { ReflectionKind } from 'typedoc';
import { ROOT } from '../support/child.js';
import { Places } from './places.js';
import { runPage } from './run-page.js';
import { Shop } from './shop.js';

const PAGE = 'docs/api/README.md';
const AGAIN = 'run `npm run docs`';

/** What TypeDoc tells of an item. */
interface Item {
  readonly name: string;
  readonly kind: number;
  readonly flags?: { readonly isOptional?: boolean };
  readonly comment?: { readonly blockTags?: readonly { readonly tag: string }[] };
  readonly children?: readonly Item[];
  readonly signatures?: readonly Item[];
}

let folder: string;
let api: Item;
let shop: Shop;
let places: Places;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-api-'));
  const typedoc = join(ROOT, 'node_modules', '.bin', 'typedoc');
  const to = ['--out', join(folder, 'api'), '--json', join(folder, 'api.json')];
  // It fails if a public item has no docstring.
  execFileSync(typedoc, to, { cwd: ROOT, encoding: 'utf8', stdio: 'pipe' });
  api = JSON.parse(readFileSync(join(folder, 'api.json'), 'utf8'));
  [shop, places] = [await Shop.open(), await Places.open()];
});

after(async () => {
  await Promise.all([shop?.close(), places?.close()]);
  rmSync(folder, { recursive: true, force: true });
});

beforeEach(() => shop.reset());

test('the reference is what the docstrings say now', () => {
  const made = readFileSync(join(folder, 'api', 'README.md'), 'utf8');
  assert.equal(readFileSync(join(ROOT, PAGE), 'utf8'), made, AGAIN);
});

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

runPage('docs/api/README.md', {
  surroundings: () => ({
    env: { ...shop.surroundings.env, ...places.surroundings.env },
    instead: { ...shop.surroundings.instead, ...places.surroundings.instead },
    stage: 'test/docs/stage.mjs',
  }),
});
