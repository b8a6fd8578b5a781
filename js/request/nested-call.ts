/** Calls under a request that ask for a lock which this request holds: they share it, or wait for it. */

import { LockTimeoutError } from '../base/errors.js';
import type { SharedHandle } from '../lock/lock.js';
import { type Captured, callsOf } from '../lock/origins.js';
import type { AcquireRequest } from '../lock/request.js';
import { SHARE_EXCLUSIVE, SHARE_UNLIMITED } from '../native/records.js';
import { currentScope, type Scope } from './nesting.js';

/** A call that has waited for so long for a lock of the request around it is warned of, in ms. */
const WARN_AFTER_MS = 1_000;

/** The timers of the process: the fake ones of a test may have no `unref`. */
const { clearTimeout, setTimeout } = globalThis;

/**
 * A call under a request that holds a lock for which the call asks. If the request waits for the call, neither goes on
 * before the call times out. That cannot be known, so the call waits like any other, with a warning.
 *
 * @internal
 */
export class NestedCall implements Captured {
  readonly #owner: object;
  readonly #scope: Scope;
  readonly #share: number;
  declare readonly stack?: string;

  private constructor(owner: object, scope: Scope, share: number) {
    this.#owner = owner;
    this.#scope = scope;
    this.#share = share;
  }

  /**
   * The call of `method` for locks of the taker `owner`; undefined unless a request around it holds one of `names`. To
   * be called before the first `await`, so that the stack shows the caller.
   */
  static of(
    owner: object,
    names: string | readonly string[],
    { reentrant, share, wait }: AcquireRequest,
    method: (...args: never[]) => unknown,
  ): NestedCall | undefined {
    const scope = currentScope();
    if (scope === undefined) return undefined;
    const all = typeof names === 'string' ? [names] : names;
    const held = all.filter((name) => scope.find(owner, name) !== undefined);
    if (held.length === 0) return undefined;
    const call = new NestedCall(owner, scope, share);
    const waits = wait > 0 && !(reentrant && held.every((name) => call.shareable(name)));
    if (waits) Error.captureStackTrace(call, method);
    return call;
  }

  /** Whether a request with these options, which are not checked yet, shares all of `names` with those around it. */
  static sharesAll(owner: object, names: readonly string[], options: unknown): boolean {
    const scope = currentScope();
    const { reentrant, mode } = (options ?? {}) as { reentrant?: unknown; mode?: unknown };
    if (scope === undefined || reentrant !== true) return false;
    const share = mode === 'shared' ? SHARE_UNLIMITED : SHARE_EXCLUSIVE;
    const call = new NestedCall(owner, scope, share);
    return names.every((name) => call.shareable(name) !== undefined);
  }

  /** The lock `name` of a request around the call, if the call may share it with `reentrant`. */
  shareable(name: string): SharedHandle | undefined {
    const lock = this.#around(name);
    return lock !== undefined && this.#fits(lock) ? lock : undefined;
  }

  /**
   * Answers `taken`, the lock `name`. If that takes long, calls `warn` with what to do and the stack of the call; and adds
   * both to the error if the lock was not free in time.
   */
  async watch<T>(
    name: string,
    taken: Promise<T>,
    warn: (advice: string, calls: string) => void,
  ): Promise<T> {
    const late = () => {
      const advice = this.#advice(name);
      if (advice !== undefined) warn(advice, callsOf(this) ?? '');
    };
    const timer = setTimeout(late, WARN_AFTER_MS).unref();
    try {
      return await taken;
    } catch (error) {
      if (error instanceof LockTimeoutError) this.#explain(error, this.#advice(name));
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Has `error` say what to do, and show where the call was made: it was created where its outcome was read. */
  #explain(error: LockTimeoutError, advice: string | undefined): void {
    if (advice !== undefined) error.message += `; ${advice}`;
    const calls = callsOf(this);
    if (calls !== undefined) error.stack = `${error}\n${calls}`;
  }

  /** The advice for a call that waits for the lock `name`; undefined unless a request around the call holds it. */
  #advice(name: string): string | undefined {
    const lock = this.#around(name);
    if (lock === undefined) return undefined;
    const [shared, cure] = this.#fits(lock)
      ? ['', 'share the lock by request with { reentrant: true }, or pass it on as an argument']
      : [
          ' shared',
          'make that request exclusive, and downgrade its lock where others may share it',
        ];
    return `a request around the call holds it${shared}, and if that request awaits the call, neither can go on: ${cure}`;
  }

  #around(name: string): SharedHandle | undefined {
    return this.#scope.find(this.#owner, name);
  }

  /** An exclusive holder may share its lock in any mode; a sharer has no exclusive lock to give. */
  #fits({ mode }: SharedHandle): boolean {
    return mode === 'exclusive' || this.#share !== SHARE_EXCLUSIVE;
  }
}
