/** The files of the page. They are read once. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const PACKAGE = join(__dirname, '..', '..');
/** The folder of the page's files, by their names; that of the module which is compiled is another. */
const FOLDERS: Readonly<Record<string, string>> = {
  'app.mjs': 'ui',
  'details.mjs': 'ui',
  'format.mjs': 'ui',
  'page.html': 'ui',
  'people.mjs': 'dist/ui',
  'style.css': 'ui',
  'table.mjs': 'ui',
};

const TYPES: Readonly<Record<string, string>> = {
  css: 'text/css; charset=utf-8',
  html: 'text/html; charset=utf-8',
  mjs: 'text/javascript; charset=utf-8',
};

/** A file, ready to be sent. @internal */
export interface StaticFile {
  readonly type: string;
  readonly bytes: Buffer;
}

const read = new Map<string, StaticFile>();

/** The file of that name; undefined if the page has none. @internal */
export function fileOf(name: string): StaticFile | undefined {
  const folder = Object.hasOwn(FOLDERS, name) ? FOLDERS[name] : undefined;
  if (folder === undefined) return undefined;
  const known = read.get(name);
  if (known !== undefined) return known;
  const type = TYPES[name.slice(name.lastIndexOf('.') + 1)] ?? 'application/octet-stream';
  const file = { type, bytes: readFileSync(join(PACKAGE, folder, name)) };
  read.set(name, file);
  return file;
}
