/** One listener for each AbortSignal, however many operations wait with it. */

const aborted = Object.getOwnPropertyDescriptor(AbortSignal.prototype, 'aborted')?.get as (
  this: AbortSignal,
) => boolean;
const listeners = new WeakMap<AbortSignal, AbortListener>();

/** The jobs to call when one signal is aborted. */
class AbortListener {
  readonly #jobs = new Set<() => void>();
  readonly #signal: AbortSignal;
  readonly #aborted = () => {
    for (const job of this.#jobs) job();
  };

  constructor(signal: AbortSignal) {
    this.#signal = signal;
    signal.addEventListener('abort', this.#aborted, { once: true });
    listeners.set(signal, this);
  }

  add(job: () => void): () => void {
    this.#jobs.add(job);
    return () => {
      this.#jobs.delete(job);
      if (this.#jobs.size > 0) return;
      this.#signal.removeEventListener('abort', this.#aborted);
      listeners.delete(this.#signal);
    };
  }
}

/**
 * Makes `signal` call `notice` before code reads its `aborted`, to find out whether it is to be aborted: the process may have
 * been stopped, or its event loop blocked, and code that has taken the signal out of its lock reads no more than that.
 *
 * @internal
 */
export function noticing(signal: AbortSignal, notice: () => void): AbortSignal {
  return Object.defineProperty(signal, 'aborted', {
    configurable: true,
    get: () => {
      notice();
      return aborted.call(signal);
    },
  });
}

/**
 * Calls `job` when `signal` is aborted, unless the function that this returns was called before. However many
 * operations wait with one signal, it gets one listener: Node takes the eleventh for a leak.
 *
 * @internal
 */
export function onAbort(signal: AbortSignal, job: () => void): () => void {
  return (listeners.get(signal) ?? new AbortListener(signal)).add(job);
}

/**
 * Rejects with the reason of `signal` when it is aborted; the work goes on.
 *
 * @internal
 */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  let forget: (() => void) | undefined;
  const aborted = new Promise<never>((_, reject) => {
    forget = onAbort(signal, () => reject(signal.reason));
  });
  return Promise.race([work, aborted]).finally(forget);
}

/**
 * Gives `work` a signal that is aborted with the first of `signals`, until the work has ended.
 *
 * @internal
 */
export async function untilEither<T>(
  signals: readonly AbortSignal[],
  work: (either: AbortSignal) => Promise<T>,
): Promise<T> {
  for (const signal of signals) signal.throwIfAborted();
  const either = new AbortController();
  const forget = signals.map((signal) => onAbort(signal, () => either.abort(signal.reason)));
  try {
    return await work(either.signal);
  } finally {
    for (const each of forget) each();
  }
}
