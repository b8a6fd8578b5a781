/** Calls across the boundary that may throw, and calls of listeners that must not disturb others. */

const NOW = Promise.resolve();

/** Calls `job` at the end of this microtask. `queueMicrotask` will not do: fake timers of a test replace it. @internal */
export function soon(job: () => void): void {
  void NOW.then(job);
}

/** The timer of the process: the fake one that a test puts in its place may never call. */
const { setImmediate } = globalThis;

/** Resolves when the event loop has turned once, and all promises that can be settled are. @internal */
export function nextTurn(): Promise<void> {
  return new Promise((turned) => {
    setImmediate(turned);
  });
}

/** Calls into the core once more if it throws: a call that panics there has done nothing. @internal */
export function retryOnce<T>(call: () => T): T {
  try {
    return call();
  } catch {
    return call();
  }
}

/** Does the same, and answers `otherwise` if the core throws each time. @internal */
export function orFallback<T>(call: () => T, otherwise: T): T {
  try {
    return retryOnce(call);
  } catch {
    return otherwise;
  }
}

/** Calls listeners. An error of a listener becomes an uncaught error, as with an EventTarget. @internal */
export function callListeners(listeners: () => void): void {
  try {
    listeners();
  } catch (error) {
    process.nextTick(() => {
      throw error;
    });
  }
}
