/** Several locks that are acquired and released as one. */

import { noticing } from '../base/abort.js';
import type { Duration } from '../base/time.js';
import type { Lock, LockJson, LockMode, SharedHandle } from './lock.js';

// Not distributive: then a manager could not stand in for the `navigator.locks` of the DOM's types.
/**
 * The type that an acquire resolves with: a `Lock` for one name, a `LockSet` for a list.
 *
 * @example
 * ```ts
 * import type { LockFor } from 'holdfast'
 *
 * const lock: LockFor<string> = await locks.acquire('item:42')
 * const both: LockFor<string[]> = await locks.acquire(['account:1', 'account:2'])
 * ```
 */
export type LockFor<N extends string | readonly string[]> = [N] extends [string]
  ? Lock
  : [N] extends [readonly string[]]
    ? LockSet
    : Lock | LockSet;

/**
 * Several locks that were acquired together, and are held and released as one.
 *
 * @example
 * ```ts
 * await using both = await locks.acquire(['account:1', 'account:2'])
 * await transfer(both.fences['account:1'], both.fences['account:2'])
 * ```
 */
export class LockSet implements AsyncDisposable {
  /** The names, in the order in which they were given. */
  readonly names: readonly string[];
  /** @internal */
  readonly locks: readonly SharedHandle[];
  #abort: AbortController | undefined;

  /** @internal */
  constructor(locks: readonly SharedHandle[]) {
    this.names = locks.map(({ name }) => name);
    this.locks = locks;
  }

  /** `'shared'` if all locks are shared. */
  get mode(): LockMode {
    return this.locks.every(({ mode }) => mode === 'shared') ? 'shared' : 'exclusive';
  }

  /** The fencing token of each lock, by its name. */
  get fences(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.locks.map(({ name, fence }) => [name, fence]));
  }

  /** Whether all locks are still held. */
  get held(): boolean {
    return this.locks.every(({ held }) => held);
  }

  /** How long all locks are still held without another `extend`, in ms; 0 if one is not held. */
  get remaining(): number {
    return Math.min(...this.locks.map(({ remaining }) => remaining));
  }

  /**
   * Aborted, with a `LockLostError` as its reason, the moment one of the locks is lost; never by a
   * release. The other locks stay held until `release`.
   */
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      const abort = new AbortController();
      this.#abort = abort;
      noticing(abort.signal, () => this.#notice());
      for (const { signal } of this.locks) {
        const lost = () => abort.abort(signal.reason);
        if (signal.aborted) lost();
        else signal.addEventListener('abort', lost, { once: true });
      }
    }
    this.#notice();
    return this.#abort.signal;
  }

  /** A loss aborts the signal at once. */
  #notice(): void {
    for (const lock of this.locks) void lock.signal;
  }

  /**
   * Does nothing while all locks are held.
   *
   * @throws LockLostError if one is not held.
   *
   * @example
   * ```ts
   * await using both = await locks.acquire(['account:1', 'account:2'])
   * await settle()
   * both.assertHeld()
   * ```
   */
  assertHeld(): void {
    for (const lock of this.locks) lock.assertHeld();
  }

  /**
   * Makes the lease of each lock last at least `ttl` ms from now, once and within `maxHold`, as the `extend` of a lock
   * does. Never shortens one.
   *
   * @param ttl - From 50 to 9e15 ms; by default the locks' own `ttl`.
   * @throws as the `extend` of a lock does, for the first that fails; the others are extended all the same.
   *
   * @example
   * ```ts
   * await using both = await locks.acquire(['account:1', 'account:2'], { renew: false })
   * await both.extend(60_000)
   * ```
   */
  async extend(ttl?: Duration): Promise<void> {
    await all(this.locks, (lock) => lock.extend(ttl));
  }

  /**
   * Renews the locks no more, and leaves them to expire, see `stopRenewing` of a lock.
   *
   * @returns `true` if the rest of each lease is left.
   *
   * @example
   * ```ts
   * const both = await locks.acquire(['account:1', 'account:2'])
   * console.log(await both.stopRenewing(), both.held) // true true
   * ```
   */
  async stopRenewing(): Promise<boolean> {
    return (await all(this.locks, (lock) => lock.stopRenewing())).every(Boolean);
  }

  /**
   * Turns each lock into a shared one, see `downgrade` of a lock.
   *
   * @returns `true` if all locks are shared now.
   *
   * @example
   * ```ts
   * await using both = await locks.acquire(['account:1', 'account:2'])
   * await both.downgrade()
   * console.log(both.mode) // shared
   * ```
   */
  async downgrade(): Promise<boolean> {
    return (await all(this.locks, (lock) => lock.downgrade())).every(Boolean);
  }

  /**
   * Releases all locks.
   *
   * @returns `true` if this call freed each of them.
   * @throws LockConnectionError as the `release` of a lock does; all locks are tried.
   *
   * @example
   * ```ts
   * const both = await locks.acquire(['account:1', 'account:2'])
   * console.log(await both.release()) // true
   * ```
   */
  async release(): Promise<boolean> {
    return (await all(this.locks, (lock) => lock.release())).every(Boolean);
  }

  /**
   * The form in which another process adopts the locks, one by one, with `adopt`.
   *
   * @example
   * ```ts
   * const both = await locks.acquire(['account:1', 'account:2'])
   * const adopted = await Promise.all(both.toJSON().map((lock) => others.adopt(lock)))
   * console.log(adopted.every(({ held }) => held)) // true
   * ```
   */
  toJSON(): LockJson[] {
    return this.locks.map((lock) => lock.toJSON());
  }

  /**
   * Releases all locks at the end of an `await using` scope.
   *
   * @example
   * ```ts
   * {
   *   await using both = await locks.acquire(['account:1', 'account:2'])
   * }
   * console.log((await locks.query()).held.length) // 0
   * ```
   */
  async [Symbol.asyncDispose](): Promise<void> {
    await all(this.locks, (lock) => lock.exit());
  }
}

/**
 * Calls `action` with each lock, waits for all of them, and then throws the error of the first that failed.
 *
 * @internal
 */
export async function all<T>(
  locks: readonly SharedHandle[],
  action: (lock: SharedHandle) => Promise<T>,
): Promise<T[]> {
  // The common case: a request for one lock.
  if (locks.length === 1) return [await action(locks[0] as SharedHandle)];
  const ended = await Promise.allSettled(locks.map(action));
  return ended.map((each) => {
    if (each.status === 'rejected') throw each.reason;
    return each.value;
  });
}
