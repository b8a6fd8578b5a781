import { LockError, LockLostError } from '../base/errors.js';
import type { Duration } from '../base/time.js';
import type { LockJson, LockMode, SharedHandle } from './lock.js';

/**
 * The lock of an outer `request`, as a nested request gets it: the same lease, with a release of its own.
 *
 * @internal
 */
export class NestedLock implements SharedHandle {
  readonly name: string;
  readonly fence: number;
  readonly #owner: SharedHandle;
  #released = false;

  constructor(owner: SharedHandle) {
    this.name = owner.name;
    this.fence = owner.fence;
    this.#owner = owner;
  }

  get mode(): LockMode {
    return this.#owner.mode;
  }

  get permits(): number {
    return this.#owner.permits;
  }

  get token(): string {
    return this.#owner.token;
  }

  get held(): boolean {
    return !this.#released && this.#owner.held;
  }

  get remaining(): number {
    return this.#released ? 0 : this.#owner.remaining;
  }

  get signal(): AbortSignal {
    return this.#owner.signal;
  }

  assertHeld(): void {
    this.#assertNotReleased();
    this.#owner.assertHeld();
  }

  async extend(ttl?: Duration): Promise<void> {
    this.#assertNotReleased();
    return this.#owner.extend(ttl);
  }

  /** Refuses: the outer request relies on the renewal. */
  async stopRenewing(): Promise<boolean> {
    if (!this.held) return false;
    throw this.#onlyOuter('left to expire');
  }

  /** Refuses: the outer request relies on the mode that it asked for. */
  async downgrade(): Promise<boolean> {
    if (!this.held) return false;
    if (this.mode === 'shared') return true;
    throw this.#onlyOuter('downgraded');
  }

  release(): Promise<boolean> {
    return this.exit(true);
  }

  toJSON(): LockJson {
    return this.#owner.toJSON();
  }

  enter(): SharedHandle {
    return this.#owner.enter();
  }

  async exit(awaited?: boolean): Promise<boolean> {
    if (this.#released) return false;
    const { held } = this;
    this.#released = true;
    return (await this.#owner.exit(awaited)) && held;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.exit();
  }

  #onlyOuter(what: string): LockError {
    const message = `lock "${this.name}" cannot be ${what} by a nested request: only the request that acquired it can do so`;
    return new LockError('ERR_LOCK_NESTED', message, this.name);
  }

  #assertNotReleased(): void {
    if (!this.#released) return;
    throw new LockLostError(`lock "${this.name}" was released`, this.name, 'released');
  }
}
