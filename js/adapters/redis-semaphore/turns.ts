import { untilAborted } from '../../base/abort.js';

/**
 * Calls of one semaphore, one after the other. Under its identifier it has one permit, however often it is acquired, so
 * each of several calls at the same time looks what the one before has got.
 *
 * @internal
 */
export class Turns {
  /** Ends with the last call, and never rejects. */
  #last: Promise<unknown> = Promise.resolve();

  /** Runs `call` after those before it. It gets the time that it has waited, in ms. */
  next<T>(call: (waited: number) => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    const began = performance.now();
    const before = this.#last;
    // The signal ends the wait for its turn. Later the call itself looks at it, so that it does not reject a caller who
    // has got the permit.
    const turn = signal === undefined ? before : untilAborted(before, signal);
    const ended = turn.then(() => call(performance.now() - began));
    this.#last = Promise.allSettled([before, ended]);
    return ended;
  }
}
