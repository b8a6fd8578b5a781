/** The promises of redlock 4, which are those of Bluebird: the methods that callers of a lock use. */

/** A callback in the style of Node. */
export type Callback<T> = (error: unknown, result?: T) => void;

type ErrorClass = abstract new (...args: never[]) => unknown;

/** The errors that a `catch` is for: those of a class, those that a function accepts, or those with these properties. */
type Filter = ErrorClass | ((error: never) => unknown) | object;

/** The disposers of promises that Bluebird's `using` takes. */
const disposers = new WeakMap<object, object>();

/**
 * A promise that also takes a callback, with the methods of Bluebird that its callers use most.
 *
 * @example
 * ```ts
 * redlock.lock('item:42', 1_000).catch(Redlock.LockError, () => null).done((lock) => sell(lock))
 * ```
 */
export class Answer<T> extends Promise<T> {
  static {
    // `await` takes a promise whose constructor is Promise as it is; any other costs a second promise, made by `then`.
    Object.defineProperty(Answer.prototype, 'constructor', { value: Promise });
  }

  /** Gives a promise the methods of this class: one more promise around it would cost as much as the lock. @internal */
  static of<T>(promise: Promise<T>): Answer<T> {
    return Object.setPrototypeOf(promise, Answer.prototype);
  }

  /** As the `then` of every promise. */
  // biome-ignore lint/suspicious/noThenProperty: it is a promise, which answers one of its own class
  override then<A = T, B = never>(
    fulfilled?: ((result: T) => A | PromiseLike<A>) | null,
    rejected?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Answer<A | B> {
    return Answer.of(super.then(fulfilled, rejected));
  }

  /** As the `finally` of every promise. */
  override finally(callback?: (() => void) | null): Answer<T> {
    return Answer.of(super.finally(callback));
  }

  /** Calls `callback` with the error or the result, if it is a function. */
  nodeify(callback?: Callback<T> | null): this {
    if (typeof callback !== 'function') return this;
    // Later: what the callback throws must reach the process, not this promise.
    const call = (...args: [unknown, T?]) => process.nextTick(callback, ...args);
    this.then(
      (result) => (result === undefined ? call(null) : call(null, result)),
      (error: unknown) => call(error),
    );
    return this;
  }

  /** The same as `nodeify`. */
  asCallback(callback?: Callback<T> | null): this {
    return this.nodeify(callback);
  }

  /** As `then`, at the end of a chain: an unhandled error ends the process. */
  done(
    fulfilled?: ((result: T) => unknown) | null,
    rejected?: ((error: unknown) => unknown) | null,
  ) {
    const thrown = (error: unknown) => {
      process.nextTick(() => {
        throw error;
      });
    };
    this.then(fulfilled, rejected).then(undefined, thrown);
  }

  /** Handles every error, or with two arguments those of one class, or those that a function or an object describes. */
  override catch<R = never>(
    rejected?: ((error: unknown) => R | PromiseLike<R>) | null,
  ): Answer<T | R>;
  override catch<R>(
    filter: Filter,
    rejected: (error: unknown) => R | PromiseLike<R>,
  ): Answer<T | R>;
  override catch<R>(...args: readonly unknown[]): Answer<T | R> {
    const rejected = args.at(-1) as ((error: unknown) => R) | null | undefined;
    if (args.length < 2) return this.then(undefined, rejected);
    const filters = args.slice(0, -1) as Filter[];
    return this.then(undefined, (error: unknown) => {
      if (filters.some((filter) => matches(error, filter))) return rejected?.(error) as R;
      throw error;
    });
  }

  /** Calls `callback` with the result, waits for it, and goes on with the result. */
  tap(callback: (result: T) => unknown): Answer<T> {
    return this.then(async (result) => {
      await callback(result);
      return result;
    });
  }

  /** Goes on with `value`. */
  return<R>(value: R): Answer<R> {
    return this.then(() => value);
  }

  // The method that `Promise.using` of Bluebird, whichever copy a service has, calls on a promise with a disposer.

  /** @internal */
  _setDisposable(disposer: object): void {
    disposers.set(this, disposer);
  }

  /** @internal */
  _isDisposable(): boolean {
    return disposers.has(this);
  }

  /** @internal */
  _getDisposer(): object | undefined {
    return disposers.get(this);
  }
}

function matches(error: unknown, filter: Filter): boolean {
  if (typeof filter !== 'function') {
    const had = error as Readonly<Record<string, unknown>>;
    return Object.entries(filter).every(([name, value]) => had[name] === value);
  }
  if (filter === Error || filter.prototype instanceof Error) return error instanceof filter;
  return Boolean((filter as (error: unknown) => unknown)(error));
}

/**
 * A lock for `using` of Bluebird, which releases it when its callback has ended.
 *
 * @example
 * ```ts
 * await Bluebird.using(redlock.disposer('item:42', 1_000), (lock) => sell(lock))
 * ```
 */
export class Disposer<T> {
  readonly #lock: Answer<T>;
  readonly #dispose: (lock: T) => PromiseLike<unknown>;
  #resource: T | null = null;

  /** @internal */
  constructor(lock: Answer<T>, dispose: (lock: T) => PromiseLike<unknown>) {
    this.#lock = lock.tap((resource) => {
      this.#resource = resource;
    });
    this.#dispose = dispose;
  }

  /** The promise of the lock. */
  promise(): Answer<T> {
    return this.#lock;
  }

  /** The lock, once it is acquired. */
  resource(): T | null {
    return this.#resource;
  }

  /** Releases the lock, if it was acquired. */
  tryDispose(): PromiseLike<unknown> | null {
    return this.#resource === null ? null : this.#dispose(this.#resource);
  }
}
