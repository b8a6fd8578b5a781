/** The files of the page. They are read once. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The folder `ui` of the package. */
const FOLDER = join(__dirname, '..', '..', 'ui');

const TYPES: Readonly<Record<string, string>> = {
  css: 'text/css; charset=utf-8',
  html: 'text/html; charset=utf-8',
  mjs: 'text/javascript; charset=utf-8',
};

const FILES = ['app.mjs', 'details.mjs', 'format.mjs', 'page.html', 'style.css', 'table.mjs'];

/** A file, ready to be sent. @internal */
export interface StaticFile {
  readonly type: string;
  readonly bytes: Buffer;
}

const read = new Map<string, StaticFile>();

/** The file of that name; undefined if the page has none. @internal */
export function fileOf(name: string): StaticFile | undefined {
  if (!FILES.includes(name)) return undefined;
  const known = read.get(name);
  if (known !== undefined) return known;
  const type = TYPES[name.slice(name.lastIndexOf('.') + 1)] ?? 'application/octet-stream';
  const file = { type, bytes: readFileSync(join(FOLDER, name)) };
  read.set(name, file);
  return file;
}
