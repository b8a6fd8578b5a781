/** Lengths of time, and text of others, for people. */

/**
 * Text that anybody may have written, such as names, labels and the words of servers: characters that move the cursor,
 * change the direction of text or are not seen are written as escapes.
 */
export function printable(text: string): string {
  return text.replace(/\p{C}/gu, (letter) => {
    const code = letter.codePointAt(0) as number;
    return `\\u{${code.toString(16)}}`;
  });
}

/** A length of time in ms for people: `850ms`, `8.2s`, `3m20s`, `2h05m`. */
export function human(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)}ms`;
  const seconds = ms / 1_000;
  if (seconds < 59.95) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  if (whole < 3_600) return `${Math.floor(whole / 60)}m${pad(whole % 60)}s`;
  const minutes = Math.round(seconds / 60);
  return `${Math.floor(minutes / 60)}h${pad(minutes % 60)}m`;
}

function pad(number: number): string {
  return String(number).padStart(2, '0');
}
