/** Lines of a text, as the file writes them. */

import type { Node, Source } from '../find/source.js';
import type { Edit } from './edits.js';

/** The removal of a statement with its line, if it stands alone on it. */
export function wholeLine(source: Source, { start, end }: Node): Edit {
  const { text } = source;
  const lineStart = text.lastIndexOf('\n', start - 1) + 1;
  const rest = /^[ \t]*\r?\n/.exec(text.slice(end))?.[0];
  if (text.slice(lineStart, start).trim() !== '') return { start, end, text: '' };
  if (rest !== undefined) {
    const after = end + rest.length;
    // The rest has one empty line where two would meet.
    const blank = /(^|\n)[ \t]*\r?\n$/.test(text.slice(0, lineStart))
      ? /^[ \t]*\r?\n/.exec(text.slice(after))?.[0]
      : undefined;
    return { start: lineStart, end: after + (blank?.length ?? 0), text: '' };
  }
  // A file whose last line has no end keeps it so.
  const before = /\r?\n$/.exec(text.slice(0, lineStart))?.[0] ?? '';
  return text.slice(end).trim() === ''
    ? { start: lineStart - before.length, end, text: '' }
    : { start, end, text: '' };
}

export function indentOf(source: Source, offset: number): string {
  const lineStart = source.text.lastIndexOf('\n', offset - 1) + 1;
  return /^[ \t]*/.exec(source.text.slice(lineStart, offset))?.[0] ?? '';
}

/** A semicolon if the file has them. */
export function semicolonOf({ program, text }: Source): string {
  return program.body.some((each) => text[each.end - 1] === ';') ? ';' : '';
}

/** The quote of the file. */
export function quoteOf({ text }: Source): string {
  return /["']/.exec(text)?.[0] ?? "'";
}
