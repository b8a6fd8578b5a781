/** A promise that reports when another one waits for it. */

/**
 * Calls `awaited` each time that another promise takes over this one's result: by `await`, `return` of an async
 * function, `Promise.all` and the like. A handler of `then`, `catch` or `finally` alone makes nobody wait; the promise
 * that these return is watched in turn.
 *
 * @internal
 */
export class WatchedPromise<T> extends Promise<T> {
  // A plain promise is awaited without a call of `then`: only a class of its own has it called.
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  readonly #awaited: () => void;

  constructor(result: Promise<T>, awaited: () => void) {
    super((resolve, reject) => result.then(resolve, reject));
    this.#awaited = awaited;
  }

  // biome-ignore lint/suspicious/noThenProperty: this is a promise
  override then<A = T, B = never>(
    fulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    const next = super.then(fulfilled, rejected);
    if (!settlesPromise(fulfilled)) return new WatchedPromise(next, this.#awaited);
    this.#awaited();
    return next;
  }

  override finally(ended?: (() => void) | null): Promise<T> {
    return new WatchedPromise(super.then().finally(ended), this.#awaited);
  }
}

/** Whether `handler` is the function by which the runtime settles a promise: it has no name, and no source. */
function settlesPromise(handler: unknown): boolean {
  if (typeof handler !== 'function' || handler.name !== '') return false;
  return Function.prototype.toString.call(handler).includes('[native code]');
}
