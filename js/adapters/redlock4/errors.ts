/** The error of redlock 4. */

/**
 * A lock could not be acquired, released or extended. `cause` says what happened, to which lock, on which server, and
 * what to do.
 */
export class LockError extends Error {
  override readonly name = 'LockError';
  /** The number of attempts; undefined for a release. */
  readonly attempts: number | undefined;

  /** @param message - What failed. */
  constructor(
    message = 'Failed to lock the resource.',
    attempts?: number,
    options?: { readonly cause?: unknown },
  ) {
    super(message, options);
    this.attempts = attempts;
  }
}
