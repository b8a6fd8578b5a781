/** How the command line ends, and what it says of errors. */

import { CommanderError } from 'commander';
import {
  LockConnectionError,
  LockLoadError,
  LockLostError,
  LockQuorumError,
  LockServerError,
  LockTimeoutError,
} from '../api/errors.js';
import { paint } from './terminal.js';

/**
 * Exit codes, from sysexits where it has one, so that they can be told from those of a command that
 * runs under a lock.
 */
export const Exit = {
  Done: 0,
  /** The answer is no: nobody holds the lock, or the doctor found something that must be mended. */
  No: 1,
  Usage: 64,
  /** No server could be reached, or it refused. */
  Unavailable: 69,
  /** A defect of holdfast. */
  Internal: 70,
  /** Somebody else holds the lock. */
  Conflict: 75,
  /** The lock was lost while the command ran, so the command was stopped. */
  Lost: 76,
  NotExecutable: 126,
  NotFound: 127,
  /** 128 and the number of the signal that ended the command. */
  Signal: 128,
} as const;

/** What they mean, for the help. */
export const EXIT_CODES = `Exit codes:
  0    done
  1    the answer is no: nobody holds the lock, or something must be mended (doctor)
  64   wrong usage; nothing was sent
  69   the servers cannot be reached, or refused
  70   a defect of holdfast
`;

/** An error of the command line itself. */
export class CliError extends Error {
  constructor(
    readonly code: string,
    readonly exitCode: number,
    message: string,
    /** The lock's name, if it is about one. */
    readonly lock?: string,
  ) {
    super(message);
  }
}

/** A wrong argument of the command line. */
export class UsageError extends CliError {
  constructor(message: string) {
    super('ERR_USAGE', Exit.Usage, message);
  }
}

/** The exit code for an error that ended everything. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? Exit.Done : Exit.Usage;
  if (error instanceof CliError) return error.exitCode;
  if (error instanceof LockTimeoutError) return Exit.Conflict;
  if (error instanceof LockLostError) return Exit.Lost;
  const unavailable = [LockConnectionError, LockQuorumError, LockServerError, LockLoadError];
  if (unavailable.some((kind) => error instanceof kind)) return Exit.Unavailable;
  return isArgumentError(error) ? Exit.Usage : Exit.Internal;
}

/** Says on stderr what went wrong: a line for people, or a document. */
export function report(error: unknown, json: boolean): void {
  const { message, code = 'ERR_INTERNAL', lock, stack } = ours(error);
  if (json) {
    process.stderr.write(`${JSON.stringify({ error: { code, message, lock } })}\n`);
    return;
  }
  say(exitCodeOf(error) === Exit.Internal ? (stack ?? message) : message);
}

/** The parser's errors show the word that is wrong, which may be a URL behind a mistyped option. */
function ours(error: unknown): Error & Partial<CliError> {
  if (!(error instanceof CommanderError)) return error as Error;
  return new UsageError(withoutLogin(error.message.replace(/^error: /, '')));
}

/** A text without what may be a login in it, and what follows that. */
export function withoutLogin(text: string): string {
  return text.replace(/(:\/\/|=).*(@|pass=).*/s, '$1***');
}

/** Says something to people, on stderr. */
export function say(text: string): void {
  process.stderr.write(`${paint(process.stderr, 'red', 'holdfast:')} ${text}\n`);
}

function isArgumentError(error: unknown): boolean {
  const { code = '' } = error as { code?: string };
  return /^ERR_(INVALID_ARG_(TYPE|VALUE)|OUT_OF_RANGE)$/.test(code);
}
