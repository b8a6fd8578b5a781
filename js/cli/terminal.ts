/** Output for people: colours, tables, lengths of time. */

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

/** Escapes characters that could move the cursor: names of locks are arbitrary. */
export function printable(text: string): string {
  return text.replace(/\p{C}/gu, (letter) => {
    const code = letter.codePointAt(0) as number;
    return `\\u{${code.toString(16)}}`;
  });
}

/** The time of day, 24 h. */
export function clock(time: Date): string {
  return time.toTimeString().slice(0, 8);
}

/** A moment: the time of day, with its date unless that is today. */
export function moment(time: Date): string {
  const isToday = time.toDateString() === new Date().toDateString();
  return isToday ? clock(time) : `${dateOf(time)} ${clock(time)}`;
}

function dateOf(time: Date): string {
  const parts = [time.getFullYear(), time.getMonth() + 1, time.getDate()];
  return parts.map((part) => String(part).padStart(2, '0')).join('-');
}

/** Rows under their heads, each column as wide as its widest cell. */
export function table(heads: readonly string[], rows: readonly (readonly string[])[]): string[] {
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
