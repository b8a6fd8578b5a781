/** Lines of a text, as the file writes them. */

import type { Node, Source } from '../find/source.js';
import type { Edit } from './edits.js';

/** The removal of a statement with its line, if it stands alone on it. */
export function wholeLine({ text }: Source, { start, end }: Node): Edit {
  const [head, tail] = [text.slice(0, start), text.slice(end)];
  if (!/(^|\n)[ \t]*$/.test(head) || !/^[ \t]*(\r?\n|$)/.test(tail))
    return { start, end, text: '' };
  const above = head.replace(/[ \t]*$/, '');
  // A file whose last line has no end keeps it so.
  if (!tail.includes('\n')) return { start: above.replace(/\r?\n$/, '').length, end, text: '' };
  // One empty line is left where two would meet.
  const blank = /(^|\n)[ \t]*\r?\n$/.test(above);
  const below = tail.replace(blank ? /^[ \t]*\r?\n([ \t]*\r?\n)?/ : /^[ \t]*\r?\n/, '');
  return { start: above.length, end: text.length - below.length, text: '' };
}

export function indentOf({ text }: Source, offset: number): string {
  const lineStart = text.lastIndexOf('\n', offset) + 1;
  return text.slice(lineStart, offset).replace(/\S[\s\S]*$/, '');
}

/** A semicolon if the file has them. */
export function semicolonOf({ program, text }: Source): string {
  return program.body.some((each) => text[each.end - 1] === ';') ? ';' : '';
}

/** The quote of the file. */
export function quoteOf({ text }: Source): string {
  return /^[^']*"/.test(text) ? '"' : "'";
}
