/** The exit codes of the command line, and its reports of errors. */

import { CommanderError } from 'commander';
import {
  LockConnectionError,
  LockLoadError,
  LockLostError,
  LockQuorumError,
  LockServerError,
  LockTimeoutError,
  LockUnmarkedError,
} from '../../base/errors.js';
import { printable } from '../../base/printable.js';
import { asJson, paint } from './terminal.js';

/**
 * Exit codes, from sysexits where it has one, so that they differ from those of a command that runs under a
 * lock.
 */
export const Exit = {
  Done: 0,
  /** The answer is no: the lock is free, or `doctor` or `migrate` found something to fix. */
  No: 1,
  Usage: 64,
  /** No server could be reached, or it refused. */
  Unavailable: 69,
  /** A defect of holdfast. */
  Internal: 70,
  /** A file could not be written. */
  NotWritten: 73,
  /** Another client holds the lock. */
  Conflict: 75,
  /** The lock was lost while the command ran, so the command was stopped. */
  Lost: 76,
  NotExecutable: 126,
  NotFound: 127,
  /** 128 plus the number of the signal that ended the command. */
  Signal: 128,
} as const;

/** The exit codes in the help. */
export const EXIT_CODES = `Exit codes:
  0    done
  1    the answer is no: the lock is free, or there is something to fix (doctor, also if it reaches no server;
       migrate --fail-on)
  64   wrong usage; nothing was sent
  69   the servers cannot be reached, or refused; ui cannot listen; migrate has no parser
  70   a defect of holdfast
  73   a file could not be written (migrate --write)
`;

/** An error of the command line itself. */
export class CliError extends Error {
  constructor(
    readonly code: string,
    readonly exitCode: number,
    message: string,
    /** The lock's name, if the error is about one. */
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

/** The exit code for an error that ended the command. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? Exit.Done : Exit.Usage;
  if (error instanceof CliError) return error.exitCode;
  if (error instanceof LockTimeoutError) return Exit.Conflict;
  if (error instanceof LockLostError) return Exit.Lost;
  if (error instanceof LockUnmarkedError) return exitCodeOf(error.cause);
  const unavailable = [LockConnectionError, LockQuorumError, LockServerError, LockLoadError];
  if (unavailable.some((kind) => error instanceof kind)) return Exit.Unavailable;
  return isArgumentError(error) ? Exit.Usage : Exit.Internal;
}

/** Writes an error to stderr: a line for people, or a JSON document. */
export function report(error: unknown, json: boolean): void {
  const { message, code = 'ERR_INTERNAL', lock, stack } = ours(error);
  if (json) {
    process.stderr.write(`${asJson({ error: { code, message, lock } })}\n`);
    return;
  }
  say(exitCodeOf(error) === Exit.Internal ? (stack ?? message) : message);
}

/** Removes logins from the parser's errors: they show the wrong word, which may be a URL after a mistyped option. */
function ours(error: unknown): Error & Partial<CliError> {
  if (!(error instanceof CommanderError)) return error as Error;
  return new UsageError(withoutLogin(error.message.replace(/^error: /, '')));
}

/** Cuts what may be a login out of a text, and all that follows it. */
export function withoutLogin(text: string): string {
  return text.replace(/(:\/\/|=).*(@|pass=).*/s, '$1***');
}

/** Writes lines for people to stderr. What others have written is escaped. */
export function say(text: string): void {
  const lines = text.split('\n').map(printable).join('\n');
  process.stderr.write(`${paint(process.stderr, 'red', 'holdfast:')} ${lines}\n`);
}

function isArgumentError(error: unknown): boolean {
  const { code = '' } = error as { code?: string };
  return /^ERR_(INVALID_ARG_(TYPE|VALUE)|OUT_OF_RANGE)$/.test(code);
}
