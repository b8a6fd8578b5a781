/** The errors of node-redlock 5, with its names and messages. */

import type { ExecutionStats } from './votes.js';

/**
 * A resource is locked by another client: on one server, or on too many of a quorum. The event `error` gets it,
 * and it is the reason of a vote against.
 */
export class ResourceLockedError extends Error {
  override readonly message: string;

  /** @param message - How many of the resources were free. */
  constructor(message: string) {
    super(message);
    this.message = message;
    this.name = 'ResourceLockedError';
  }
}

/**
 * An operation failed. `attempts` has the votes of each client at each attempt, and `cause` the error of
 * holdfast: what happened, to which lock, on which server, and what to do.
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
  /** The votes of each client, at each attempt. */
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
  /** The result of the routine of `using`, if its lock was lost or could not be released. */
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

/** The message of every `ExecutionError`. @internal */
export const NO_QUORUM = 'The operation was unable to achieve a quorum during its retry window.';

/** The error for resources that another client has locked. @internal */
export function locked(had: number, wanted: number): ResourceLockedError {
  return new ResourceLockedError(
    `The operation was applied to: ${had} of the ${wanted} requested resources.`,
  );
}
