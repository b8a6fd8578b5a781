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
  return labelOfProcess(process.pid);
}

function labelOfProcess(pid: number): string {
  return fitLabel(`${machine().slice(0, HOST_MAX)}.${pid}`);
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
    // That of another user runs, but may not be signalled.
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
