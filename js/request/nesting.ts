/**
 * The locks of the `request`s around the code that runs now, by its asynchronous context. Until the first
 * `request` of the process all of this costs nothing.
 *
 * Source: <https://nodejs.org/api/async_context.html#class-asynclocalstorage>
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import type { SharedHandle } from '../lock/lock.js';

/** The locks that a `request` holds while its callback runs. @internal */
export class Scope {
  #locks: readonly SharedHandle[] | undefined;
  readonly #owner: object;
  #outer: Scope | undefined;

  constructor(owner: object, locks: readonly SharedHandle[]) {
    this.#owner = owner;
    this.#locks = locks;
    this.#outer = currentScope();
    running.add(this);
  }

  /** Calls `callback` in this scope. */
  run<T>(callback: () => T): T {
    scopes ??= new AsyncLocalStorage();
    return scopes.run(this, callback);
  }

  get open(): boolean {
    return this.#locks !== undefined;
  }

  /** The next scope around this one that has not ended. Drops those that have. */
  get outer(): Scope | undefined {
    while (this.#outer?.open === false) this.#outer = this.#outer.#outer;
    return this.#outer;
  }

  /** The lock `name` of the manager `owner`, if this scope or one around it holds it. */
  find(owner: object, name: string): SharedHandle | undefined {
    for (let scope: Scope | undefined = this; scope !== undefined; scope = scope.outer) {
      if (owner !== scope.#owner) continue;
      const lock = scope.#locks?.find((each) => each.name === name && each.held);
      if (lock !== undefined) return lock;
    }
    return undefined;
  }

  /** Ends the scope: its locks are found no more, also by code that still runs in its context. */
  close(): void {
    this.#locks = undefined;
    running.delete(this);
  }
}

/** The open scopes. Their locks stay referenced, even if a callback never ends. */
const running = new Set<Scope>();

/** Created with the first scope. */
let scopes: AsyncLocalStorage<Scope> | undefined;

/** The innermost scope around the caller that has not ended. @internal */
export function currentScope(): Scope | undefined {
  const scope = scopes?.getStore();
  return scope?.open === false ? scope.outer : scope;
}
