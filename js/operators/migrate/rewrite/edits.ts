/** Changes of a text. */

/** A part of a text, and what replaces it. */
export interface Edit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** Applies edits that do not overlap, with the line ends of the text. */
export function applyEdits(text: string, edits: readonly Edit[]): string {
  const eol = /\r\n/.test(text) ? '\r\n' : '\n';
  let result = '';
  let at = 0;
  for (const edit of [...edits].sort((a, b) => a.start - b.start || a.end - b.end)) {
    if (edit.start < at) throw new Error(`two edits overlap at ${edit.start}`);
    result += text.slice(at, edit.start) + edit.text.replace(/\r?\n/g, eol);
    at = edit.end;
  }
  return result + text.slice(at);
}
