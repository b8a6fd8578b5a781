const UNSEEN =
  /(?!(?<=\p{Extended_Pictographic}|\p{Emoji_Modifier}|\ufe0f)\u200d\p{Extended_Pictographic})\p{C}/gu;

/**
 * Text that anybody may have written, such as names, labels and the words of servers, for people: characters that move the
 * cursor, change the direction of text or are not seen are written as escapes, but not what joins two emojis to one.
 *
 * @internal
 */
export function printable(text: string): string {
  return text.replace(UNSEEN, (letter) => `\\u{${letter.codePointAt(0)?.toString(16)}}`);
}
