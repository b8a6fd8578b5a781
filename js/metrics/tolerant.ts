/** Keeps the errors of those who look on from the work that they look at. */

/**
 * Runs calls of a tracer, a meter or a registry. What they throw would be an uncaught error, which ends the process: the
 * first becomes a warning of the process, and the others are dropped.
 *
 * @param what - Names the caller in the warning.
 * @internal
 */
export function tolerant(what: string): (call: () => void) => void {
  let isWarned = false;
  return (call) => {
    try {
      call();
    } catch (error) {
      if (isWarned) return;
      isWarned = true;
      const message = `${what} cannot record what a lock does: ${error}; further errors of this kind are not told`;
      process.emitWarning(message, { type: 'HoldfastWarning', code: 'WARN_LOCK_TELEMETRY' });
    }
  };
}
