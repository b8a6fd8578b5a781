/** Output for people: colours, tables, documents. */

import { printable } from '../../base/printable.js';

const CODES = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33 } as const;

/** A colour or weight of text. */
export type Paint = keyof typeof CODES;

/** Colours text for a terminal; other output, and all output with `NO_COLOR`, stays plain. */
export function paint(stream: NodeJS.WriteStream, how: Paint, text: string): string {
  const { NO_COLOR, TERM } = process.env;
  // https://no-color.org: any value that is not empty.
  if (!stream.isTTY || NO_COLOR || TERM === 'dumb') return text;
  return `\x1b[${CODES[how]}m${text}\x1b[0m`;
}

/** Writes a document or a page to stdout. */
export function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Writes a JSON document to stdout; what a terminal could obey in it is escaped, also where JSON need not. */
export function printJson(document: unknown): void {
  print(asJson(document));
}

/** A JSON document in ASCII where letters are not printable: control characters of C1, and marks of direction. */
export function asJson(document: unknown): string {
  const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return JSON.stringify(document).replace(/\p{C}/gu, (letter) =>
    letter.split('').map(escaped).join(''),
  );
}

/** Rows under their heads, each column as wide as its widest cell. What others have written is escaped. */
export function table(heads: readonly string[], cells: readonly (readonly string[])[]): string[] {
  const rows = cells.map((row) => row.map(printable));
  const widths = heads.map((_, i) => Math.max(...[heads, ...rows].map((row) => length(row[i]))));
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, i) => cell + ' '.repeat((widths[i] ?? 0) - length(cell)))
      .join('  ')
      .trimEnd();
  return [heads, ...rows].map(line);
}

function length(text = ''): number {
  return [...text].length;
}
