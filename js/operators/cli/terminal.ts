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

/** How a table becomes as narrow as a terminal. */
export interface Fit {
  /** The columns whose cells may be shortened in their middle. */
  readonly shorten: readonly string[];
  /** The columns that leave where the others do not fit, in this order. */
  readonly leave: readonly string[];
  /** The colour of a cell in its row, for a terminal that has colours. */
  readonly colour?: (head: string, cell: string, row: readonly string[]) => Paint | undefined;
}

const WHOLE: Fit = { shorten: [], leave: [] };

/** The fewest letters that a shortened column keeps. */
const SHORTENED_MIN = 14;
const GAP = 2;

/** The columns of the terminal; other output has no end. */
export function width(): number {
  return process.stdout.isTTY ? process.stdout.columns || 80 : Number.POSITIVE_INFINITY;
}

/** Rows under their heads, each column as wide as its widest cell. What others have written is escaped. */
export function table(
  heads: readonly string[],
  cells: readonly (readonly string[])[],
  fit = WHOLE,
): string[] {
  const columns = heads.map((head, i) => {
    const own = cells.map((row) => printable(row[i] ?? ''));
    return { head, cells: own, width: Math.max(...[head, ...own].map(length)) };
  });
  const shown = fitted(columns, fit);
  const line = (texts: readonly string[], row?: readonly string[]) =>
    texts
      .map((text, i) => {
        const { head, width } = shown[i] as Column;
        const short = shortened(text, width);
        const colour = row === undefined ? undefined : fit.colour?.(head, text, row);
        const painted = colour === undefined ? short : paint(process.stdout, colour, short);
        return painted + ' '.repeat(width - length(short));
      })
      .join(' '.repeat(GAP))
      .trimEnd();
  const rows = cells.map((row, i) => {
    const texts = shown.map((column) => column.cells[i] ?? '');
    return line(texts, row);
  });
  return [line(shown.map(({ head }) => head)), ...rows];
}

interface Column {
  readonly head: string;
  readonly cells: readonly string[];
  readonly width: number;
}

/** The columns that fit, the wide ones among them as narrow as need be. */
function fitted(all: readonly Column[], { shorten, leave }: Fit): Column[] {
  const room = width();
  const least = ({ head, width }: Column) =>
    shorten.includes(head) ? Math.min(width, Math.max(SHORTENED_MIN, head.length)) : width;
  const total = (columns: readonly Column[], of: (column: Column) => number) =>
    columns.reduce((sum, column) => sum + of(column) + GAP, -GAP);
  let shown = [...all];
  for (const head of leave) {
    if (total(shown, least) <= room) break;
    shown = shown.filter((column) => column.head !== head);
  }
  // The widest gives a letter at a time, so that the others keep theirs.
  const widths = new Map(shown.map((column) => [column, column.width]));
  const widthOf = (column: Column) => widths.get(column) as number;
  for (let over = total(shown, widthOf) - room; over > 0; over -= 1) {
    const able = shown.filter((column) => widthOf(column) > least(column));
    const [widest] = able.sort((a, b) => widthOf(b) - widthOf(a));
    if (widest === undefined) break;
    widths.set(widest, widthOf(widest) - 1);
  }
  return shown.map((column) => ({ ...column, width: widthOf(column) }));
}

/** A text without its middle: names often differ at their ends. */
function shortened(text: string, most: number): string {
  const letters = [...text];
  if (letters.length <= most) return text;
  const end = Math.floor((most - 1) / 2);
  return [...letters.slice(0, most - 1 - end), '…', ...letters.slice(letters.length - end)].join(
    '',
  );
}

/** Breaks a text at words, to lines of the terminal; `indent` is that of its lines but the first. */
export function wrapped(text: string, indent = 0, most = width()): string {
  const lines = [''];
  for (const word of text.split(/(?<=\S)(?= )/)) {
    const last = lines.at(-1) ?? '';
    if (last.trim() === '' || length(last + word) <= most) lines[lines.length - 1] = last + word;
    else lines.push(' '.repeat(indent) + word.trimStart());
  }
  return lines.join('\n');
}

/** A text of the help: its paragraphs and the items of its lists are joined, and broken anew; an example is a line. */
export function helpText(text: string): () => string {
  return () => {
    // As wide as what Commander prints above it, also through a pipe.
    const room = process.stdout.columns || 80;
    const paragraphs = text.replaceAll(/(?<=\n[^\s\n][^\n]*[^:\n])\n(?=[^\s\n])/g, ' ');
    const items = paragraphs.replaceAll(/(?<=\n +\S[^\n]* {2,}\S[^\n]*)\n {5,}(?=\S)/g, ' ');
    return items
      .split('\n')
      .map((line) => wrapped(line, indentOf(line, room), room))
      .join('\n');
  };
}

/** Where the lines of an item go on: under its meaning, if that leaves them half of the room. */
function indentOf(line: string, room: number): number {
  const [start = '', term = ''] = /^( *)(?:\S+(?: \S+)* {2,})?/.exec(line) ?? [];
  return start.length <= room / 2 ? start.length : term.length + 2;
}

function length(text = ''): number {
  return [...text].length;
}
