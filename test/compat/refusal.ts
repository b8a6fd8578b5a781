/** For clients that throw when a lock is held, or is not theirs any more. */

type ErrorClass = new (...args: never[]) => Error;

/** The result of `attempt`, or `refused` if it rejects with an `expected` error. */
export async function orIfRefused<T, R>(
  attempt: Promise<T>,
  expected: ErrorClass,
  refused: R,
): Promise<T | R> {
  try {
    return await attempt;
  } catch (error) {
    if (error instanceof expected) return refused;
    throw error;
  }
}

/** Whether `attempt` was allowed: it rejects with an `expected` error if not. */
export async function allowed(attempt: Promise<unknown>, expected: ErrorClass): Promise<boolean> {
  return orIfRefused(
    attempt.then(() => true),
    expected,
    false,
  );
}
