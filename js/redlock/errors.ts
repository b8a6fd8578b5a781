/** The errors of node-redlock 5, with its names and messages. */

import type { ExecutionStats } from './votes.js';

/**
 * A resource is locked by somebody else, on one server or, of a quorum, on too many. What the event
 * `error` tells for it, and why a client votes against.
 */
export class ResourceLockedError extends Error {
  override readonly message: string;

  /** @param message - How many of the resources could be had. */
  constructor(message: string) {
    super(message);
    this.message = message;
    this.name = 'ResourceLockedError';
  }
}

/**
 * An operation did not come to its end. `attempts` tells what each client said each time, and `cause`
 * the error of holdfast behind it: what happened, to which lock, on which server, and what to do.
 *
 * @example
 * ```ts
 * try {
 *   await redlock.using(['item:42'], 5_000, sell)
 * } catch (error) {
 *   if (error instanceof ExecutionError) log.warn(error.cause)
 * }
 * ```
 */
export class ExecutionError extends Error {
  override readonly message: string;
  /** What each client said, at each attempt. */
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
  /** Of `using` whose lock was lost, or could not be released: what the routine returned all the same. */
  readonly result: unknown;

  constructor(
    message: string,
    attempts: ReadonlyArray<Promise<ExecutionStats>>,
    { cause, result }: { readonly cause?: unknown; readonly result?: unknown } = {},
  ) {
    super(message, cause === undefined ? undefined : { cause });
    this.message = message;
    this.attempts = attempts;
    this.result = result;
    this.name = 'ExecutionError';
  }
}

/** The one message for whatever did not succeed. @internal */
export const NO_QUORUM = 'The operation was unable to achieve a quorum during its retry window.';

/** What is told of a resource that somebody else has. @internal */
export function locked(had: number, wanted: number): ResourceLockedError {
  return new ResourceLockedError(
    `The operation was applied to: ${had} of the ${wanted} requested resources.`,
  );
}
