/** docs/fencing.md, and the files that it shows. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ROOT } from '../../support/child.js';
import { type Block, blocksOf } from '../blocks.js';

export const FOLDER = join(ROOT, 'examples', 'fencing');

/** Every block of code of the guide. */
export function blocks(): Block[] {
  return blocksOf('docs/fencing.md');
}

/** The files of the examples to which the guide links. */
export function links(): string[] {
  const guide = readFileSync(join(ROOT, 'docs', 'fencing.md'), 'utf8');
  return [...guide.matchAll(/\]\(\.\.\/(examples\/fencing\/[^)]+)\)/g)].map(
    ([, file = '']) => file,
  );
}

/** A file of the examples, as it is. */
export function source(file: string): string {
  return readFileSync(join(FOLDER, file), 'utf8');
}

/** What a module of the examples exports. They have no types, being plain JavaScript. */
// biome-ignore lint/suspicious/noExplicitAny: the compiler cannot know more of them.
export async function load(file: string): Promise<any> {
  return import(pathToFileURL(join(FOLDER, file)).href);
}
