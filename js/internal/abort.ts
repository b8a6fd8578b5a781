/** Who waits with which signal. */

const waiting = new WeakMap<AbortSignal, Waiting>();

/** Those who wait with one signal. */
class Waiting {
  readonly #jobs = new Set<() => void>();
  readonly #signal: AbortSignal;
  readonly #aborted = () => {
    for (const job of this.#jobs) job();
  };

  constructor(signal: AbortSignal) {
    this.#signal = signal;
    signal.addEventListener('abort', this.#aborted, { once: true });
    waiting.set(signal, this);
  }

  add(job: () => void): () => void {
    this.#jobs.add(job);
    return () => {
      this.#jobs.delete(job);
      if (this.#jobs.size > 0) return;
      this.#signal.removeEventListener('abort', this.#aborted);
      waiting.delete(this.#signal);
    };
  }
}

/**
 * Has `job` called when `signal` is aborted, until the function that it returns is called. Many may wait with
 * one signal, which gets one listener: Node takes the eleventh for a leak.
 *
 * @internal
 */
export function onAbort(signal: AbortSignal, job: () => void): () => void {
  return (waiting.get(signal) ?? new Waiting(signal)).add(job);
}
