import { onAbort } from '../../base/abort.js';

/**
 * Calls of one semaphore, one after the other. Under its identifier it has one permit, however often it is acquired, so
 * each of several calls at the same time looks what the one before has got.
 *
 * @internal
 */
export class Turns {
  #isTaken = false;
  /** Those that wait for their turn, in order; most objects have none. */
  #waiting: (() => void)[] | undefined;

  /** Takes the turn if it is nobody's. Each turn ends with `pass`. */
  take(): boolean {
    if (this.#isTaken) return false;
    this.#isTaken = true;
    return true;
  }

  /** Takes the turn after the calls before, or rejects with the reason of `signal` if that is aborted first. */
  wait(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      let forget: (() => void) | undefined;
      const begin = () => {
        forget?.();
        resolve();
      };
      this.#waiting ??= [];
      const waiting = this.#waiting;
      waiting.push(begin);
      if (signal === undefined) return;
      forget = onAbort(signal, () => {
        forget?.();
        waiting.splice(waiting.indexOf(begin), 1);
        reject(signal.reason);
      });
    });
  }

  /** Ends a turn. */
  pass(): void {
    const next = this.#waiting?.shift();
    if (next === undefined) this.#isTaken = false;
    else next();
  }
}
