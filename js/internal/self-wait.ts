/** Finds the calls that wait for themselves: under a request, for a lock that this request holds. */

import { LockError } from '../api/errors.js';
import type { SharedHandle } from '../api/lock.js';
import type { AcquireRequest } from '../api/options.js';
import { SHARE_EXCLUSIVE } from '../native/records.js';
import { onAbort } from './abort.js';
import { heldAround } from './nesting.js';
import { WatchedPromise } from './watched-promise.js';

/**
 * A call under a request. It may wait for a lock of that request as long as nothing under the request waits for the
 * call: then the request ends first. As soon as something does, neither can end, so the call is refused.
 *
 * @internal
 */
export class NestedCall {
  readonly #owner: object;
  readonly #names: readonly string[];
  /** Ends the wait; undefined if the call does not wait for a lock of the request. */
  #refusal: AbortController | undefined;
  #error: LockError | undefined;
  #forget = () => {};

  constructor(owner: object, names: string | readonly string[]) {
    this.#owner = owner;
    this.#names = Array.isArray(names) ? names : [names];
  }

  /** The request of this call, which a refusal ends. To be called before the first `await`. */
  guard(request: AcquireRequest): AcquireRequest {
    const lock = this.#names.map((name) => heldAround(this.#owner, name)).find(blocks(request));
    if (lock === undefined) return request;
    const refusal = new AbortController();
    this.#refusal = refusal;
    // Made here, so that its stack names the caller.
    this.#error = selfWaitError(lock.name);
    const { signal } = request;
    if (signal?.aborted) return request;
    if (signal) this.#forget = onAbort(signal, () => refusal.abort(signal.reason));
    return { ...request, signal: refusal.signal };
  }

  /** The result of the call, which is refused if something under the request waits for it. */
  watch<T>(result: Promise<T>): Promise<T> {
    if (this.#refusal === undefined) return result;
    const ended = result.finally(this.#forget);
    return new WatchedPromise(ended, () => {
      // Code outside the request may wait for the call, and so may code that outlives the request.
      const inside = this.#names.some((name) => heldAround(this.#owner, name) !== undefined);
      if (inside) this.#refusal?.abort(this.#error);
    });
  }
}

/** Whether a lock of a request around this one keeps the caller waiting. */
function blocks({ wait, share, reentrant }: AcquireRequest) {
  return (lock: SharedHandle | undefined): lock is SharedHandle => {
    if (lock === undefined || reentrant !== undefined || wait <= 0) return false;
    return lock.mode === 'exclusive' || share === SHARE_EXCLUSIVE;
  };
}

function selfWaitError(name: string): LockError {
  const message =
    `lock "${name}" is held by a request around this call, which waits for the call: neither could end; share the ` +
    'lock by request with { reentrant: true }, or pass the lock as an argument; with { reentrant: false } a request ' +
    'waits all the same, for code for which nothing under the request waits';
  return new LockError('ERR_LOCK_NESTED', message, name);
}
