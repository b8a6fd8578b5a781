/** Labels: the names of holders and waiters, for people. They are the ends of tokens. */

import { hostname } from 'node:os';

/** Room for the name of a pod in Kubernetes, which has up to 63 characters, and a process id. */
const LABEL_MAX = 80;
const HOST_MAX = 63;

/**
 * Turns any text into a label: `-` stands for each character that a label cannot have, and what is too long is cut.
 *
 * @internal
 */
export function fitLabel(text: string): string {
  return text.replace(/[^A-Za-z0-9._~-]/gu, '-').slice(0, LABEL_MAX);
}

/** The label of who does not choose one: the machine and the process. @internal */
export function defaultLabel(): string {
  return fitLabel(`${machine().slice(0, HOST_MAX)}.${process.pid}`);
}

/** Deno lets code ask for the machine's name only if it is permitted. */
function machine(): string {
  try {
    return hostname();
  } catch {
    return 'pid';
  }
}
