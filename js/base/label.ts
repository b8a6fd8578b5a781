/** Labels: the names of holders and waiters, for people. They are the ends of tokens. */

import { hostname } from 'node:os';

/** Room for the name of a pod in Kubernetes, which has up to 63 characters, and a process id. */
const CHARACTERS_MAX = 80;
/** A token is in every request and in several keys. The core knows this limit, too. */
const WRITTEN_MAX = 240;
const HOST_MAX = 63;
/** A label with these characters alone stands in a token unescaped. */
const PLAIN = /^[A-Za-z0-9._~-]{0,80}$/;
/** Characters that move the cursor, end a line or change the direction of text. No label has one. */
const NOT_PRINTED = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu;

/**
 * Writes a text as the label in a token: bytes of UTF-8 that may not stand there as `%` and two digits. `-` stands for
 * each control character. What is too long is cut between two characters as people see them.
 *
 * @internal
 */
export function writeLabel(text: string): string {
  if (PLAIN.test(text)) return text;
  let written = '';
  let count = 0;
  for (const { segment } of new Intl.Segmenter().segment(text.replace(NOT_PRINTED, '-'))) {
    const more = escaped(segment);
    count += 1;
    if (count > CHARACTERS_MAX || written.length + more.length > WRITTEN_MAX) break;
    written += more;
  }
  return written;
}

/** Reads the label in a token, as its caller has given it. Anybody may have written the token. @internal */
export function readLabel(written: string): string {
  try {
    return decodeURIComponent(written);
  } catch {
    return written;
  }
}

/** A text with its bytes of UTF-8 that may not stand in a token as `%` and two digits. @internal */
export function escaped(text: string): string {
  const code = (letter: string) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(text).replace(/[!'()*]/g, code);
}

/** The label of who does not choose one: the machine and the process. @internal */
export function defaultLabel(): string {
  return labelOfProcess(process.pid);
}

function labelOfProcess(pid: number): string {
  return `${machine().slice(0, HOST_MAX)}.${pid}`;
}

/**
 * The advice about a holder whose label is the default one of a process of this machine that is gone: a waiter is the only
 * one who sees what a signal without a handler costs. Undefined for any other label.
 *
 * @internal
 */
export function adviceOnGone(label: string | undefined): string | undefined {
  const [, pid = ''] = /\.(\d{1,10})$/.exec(label ?? '') ?? [];
  if (pid === '' || label !== labelOfProcess(Number(pid)) || runs(Number(pid))) return undefined;
  return `no process ${pid} is seen on this machine any more: if SIGTERM or SIGINT (Ctrl-C) has ended it, let a handler of these await locks.close(), which releases its locks`;
}

function runs(pid: number): boolean {
  // Deno would ask for a permission.
  if (process.versions['deno'] !== undefined) return true;
  try {
    return process.kill(pid, 0);
  } catch (error) {
    // A process of another user runs, but may not be signalled.
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

/** Deno lets code ask for the machine's name only if it is permitted. */
function machine(): string {
  try {
    return hostname();
  } catch {
    return 'pid';
  }
}
