/**
 * Text that anybody may have written, such as names, labels and the words of servers, for people: characters that move the
 * cursor, change the direction of text or are not seen are written as escapes.
 *
 * @internal
 */
export function printable(text: string): string {
  return text.replace(/\p{C}/gu, (letter) => `\\u{${letter.codePointAt(0)?.toString(16)}}`);
}
