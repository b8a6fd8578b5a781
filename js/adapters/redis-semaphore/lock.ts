import { LockLostError as Lost } from '../../base/errors.js';
import { Connection } from '../redlock/connection.js';
import type { Client } from '../redlock/votes.js';
import { LostLockError, TimeoutError } from './errors.js';
import { Name } from './name.js';
import {
  type Checked,
  checkOptions,
  type HolderOptions,
  newIdentifier,
  type Share,
} from './options.js';
import { type Acts, Possession } from './possession.js';
import { Taking, type Terms } from './taking.js';
import { Turns } from './turns.js';

/** Called when a renewed lock was lost. */
export type LockLostCallback = (this: Lock, error: LostLockError) => void;

/** Options of a lock. */
export interface LockOptions extends HolderOptions {
  /**
   * Called with a `LostLockError` when the lock was lost, if it is renewed. By default the error is an unhandled
   * rejection, which ends the process unless it listens to `unhandledRejection`; so is what the callback throws.
   *
   * @default an unhandled rejection
   */
  readonly onLockLost?: LockLostCallback | undefined;
}

/** The choices of a class for all its locks. @internal */
export interface Kind {
  readonly kind: string;
  readonly key: string;
  /** What the caller has named it. `key` is that behind a prefix. */
  readonly name?: string;
  /** How many permits all objects have, and how many of them each takes; only of a semaphore. */
  readonly limit?: number;
  readonly permits?: number;
}

/** The kind of a service's own subclass, until that sets `_kind` and `_key`. */
const OWN_KIND: Kind = { kind: 'lock', key: '' };

/** The callback of a lock without one. */
function throwIt(error: LostLockError): never {
  throw error;
}

/** What an attempt answers its caller. */
type Answer<T> = (lock: Lock, acquired: boolean) => T;

const AS_IT_IS: Answer<boolean> = (_lock, acquired) => acquired;

/** Set by the class, whose private parts they use. */
let OR_THROW: Answer<void>;
let ACTS: Acts<Lock>;

/**
 * The common part of all locks of redis-semaphore. As there, a subclass may set `_key`, and replace `_acquire`,
 * `_refresh` and `_release`.
 */
export abstract class Lock {
  /** The word for the kind of lock in its errors. */
  protected _kind: string;
  /** The key in Redis. */
  protected _key: string;
  readonly #kind: Kind;
  /** How much of the lock this object wants. */
  readonly #share: Share;
  readonly #options: Checked;
  readonly #onLockLost: LockLostCallback;
  readonly #name: Name;
  readonly #possession: Possession<Lock>;
  readonly #taking: Taking;
  /** The turns of a semaphore; a mutex has none. */
  readonly #turns: Turns | undefined;
  /** How long the acquire has waited for its turn, in ms. */
  #spent = 0;

  /** For a class of its own, with its own `_kind`, `_key`, `_acquire`, `_refresh` and `_release`. */
  protected constructor(options?: LockOptions);
  /** @internal */
  protected constructor(clients: readonly Client[], kind: Kind, options: LockOptions | undefined);
  protected constructor(
    given: readonly Client[] | LockOptions | undefined,
    kind: Kind = OWN_KIND,
    own?: LockOptions,
  ) {
    const clients = Array.isArray(given) ? (given as readonly Client[]) : [];
    const options = Array.isArray(given) ? own : (given as LockOptions | undefined);
    this._kind = kind.kind;
    this._key = kind.key;
    const { limit, permits } = kind;
    const share: Share = { limit, permits };
    const checked = checkOptions(options);
    const connection = Connection.of(clients);
    const { identifier, identifierSuffix: suffix } = checked;
    // Code that gives a suffix, or its own `getIdentifier`, looks for that name in Redis, not for a token of the manager.
    const isOwn = suffix !== '' || this.getIdentifier !== Lock.prototype.getIdentifier;
    const name = new Name(share, identifier ?? (isOwn ? this.getIdentifier(suffix) : undefined));
    const possession = new Possession(checked.acquiredExternally, this, ACTS, checked);
    this.#kind = kind;
    this.#share = share;
    this.#options = checked;
    this.#onLockLost = options?.onLockLost ?? throwIt;
    this.#name = name;
    this.#possession = possession;
    this.#taking = new Taking({ clients, connection, options: checked, share, name, possession });
    this.#turns = limit === undefined ? undefined : new Turns();
  }

  /** The name of the holder. With `acquiredExternally` another process can take over the lock by it. */
  get identifier(): string {
    return this.#name.tell(this._key, this.#possession.hold);
  }

  /** A new name for a holder, which a subclass may replace: the constructor calls it then. */
  getIdentifier(identifierSuffix?: string): string {
    return newIdentifier(identifierSuffix);
  }

  /** The same as `identifier`, for subclasses. */
  protected get _identifier(): string {
    return this.identifier;
  }

  protected set _identifier(identifier: string) {
    this.#name.set(identifier);
  }

  /** Whether the lock is held now. */
  get isAcquired(): boolean {
    return this.#possession.isAcquired;
  }

  /**
   * Acquires the lock, and waits in the queue while others hold it.
   *
   * @param abortSignal - Ends the wait; the promise then rejects with its reason.
   * @throws TimeoutError if others held it for `acquireTimeout`, or for `acquireAttemptsLimit` attempts.
   */
  acquire(abortSignal?: AbortSignal): Promise<void> {
    // Without a `tryAcquire` of a subclass no promise of its answer is needed.
    const isOwn = this.tryAcquire !== Lock.prototype.tryAcquire;
    return isOwn ? this.#mustTry(abortSignal) : this.#attempt(abortSignal, OR_THROW);
  }

  /** Acquires the lock as `acquire` does. Answers `false` in place of a `TimeoutError`. */
  tryAcquire(abortSignal?: AbortSignal): Promise<boolean> {
    return this.#attempt(abortSignal, AS_IT_IS);
  }

  async #mustTry(abortSignal: AbortSignal | undefined): Promise<void> {
    if (!(await this.tryAcquire(abortSignal))) throw this.#timeout();
  }

  #timeout(): TimeoutError {
    const { cause } = this.#taking;
    return new TimeoutError(
      `Acquire ${this._kind} ${this._key} timeout`,
      cause === undefined ? {} : { cause },
    );
  }

  async #attempt<T>(abortSignal: AbortSignal | undefined, answer: Answer<T>): Promise<T> {
    const turns = this.#turns;
    // The cause of an attempt before stays: its caller may not have read it yet.
    let spent = 0;
    if (turns !== undefined && !turns.take()) {
      const began = performance.now();
      await turns.wait(abortSignal);
      spent = performance.now() - began;
    }
    try {
      abortSignal?.throwIfAborted();
      if (turns !== undefined && this.isAcquired) return answer(this, true);
      this.#spent = spent;
      if (this.#possession.isExternal && !this.#isReplaced()) {
        await this.#taking.open(this._key, abortSignal);
        abortSignal?.throwIfAborted();
      }
      const { isExternal } = this.#possession;
      const acquired = isExternal ? await this._refresh() : await this._acquire(abortSignal);
      if (acquired) this.#possession.settle();
      return answer(this, acquired);
    } finally {
      turns?.pass();
    }
  }

  /** Ends the renewal: the lock stays held until it is released or `lockTimeout` is over. */
  async stopRefresh(): Promise<void> {
    await this.#possession.stopRefresh();
  }

  /** Releases the lock if it is held, even if another process has acquired it under `identifier`. */
  async release(): Promise<void> {
    const { isBelieved, isExternal, hold } = this.#possession;
    this.#possession.giveUp();
    try {
      // Only one that is to be taken over is released by its identifier. One that was lost may be that of another by now.
      if (isExternal && !this.#isReplaced()) await this.#taking.takeOver(this.#terms());
      if (isBelieved || isExternal) await this._release();
    } catch (error) {
      if (isExternal) this.#possession.expect();
      throw error;
    }
    // That of a subclass may not have ended it.
    this.#possession.leave(hold);
  }

  /** Acquires the lock, for subclasses: `tryAcquire` calls it unless the lock is taken over. */
  protected _acquire(abortSignal?: AbortSignal): Promise<boolean> {
    const mistake = this.#mistake();
    if (mistake !== undefined) return Promise.resolve(this.#taking.fail(new Error(mistake)));
    return this.#taking.acquire(this.#terms(), this.#spent, abortSignal);
  }

  /** Why no attempt can succeed. */
  #mistake(): string | undefined {
    if (!this.#options.tries) {
      return 'no attempt was made: acquireTimeout or acquireAttemptsLimit is 0';
    }
    const { limit = 1, permits = 1 } = this.#share;
    return permits > limit ? `${permits} permits are more than the limit, ${limit}` : undefined;
  }

  /**
   * Makes the lock last for `lockTimeout` from now, or takes it over by the identifier, for subclasses. If a subclass has
   * its own, it is called every `refreshInterval` ms, and decides alone whether the lock is still held.
   */
  protected async _refresh(): Promise<boolean> {
    const { hold } = this.#possession;
    if (hold === undefined) {
      const failure = await this.#taking.takeOver(this.#terms());
      return failure === undefined || this.#taking.fail(failure);
    }
    try {
      await hold.lock.extend(this.#options.lockTimeout);
      return true;
    } catch (error) {
      if (error instanceof Lost) return this.#taking.fail(error);
      throw error;
    }
  }

  /** Releases the lock, for subclasses: `release` calls it if the lock is held, or was to be taken over. */
  protected _release(): Promise<void> {
    return this.#possession.release() as Promise<void>;
  }

  static {
    OR_THROW = (lock, acquired) => {
      if (!acquired) throw lock.#timeout();
    };
    ACTS = {
      isReplaced: (lock) => lock.#isReplaced(),
      onLost: (lock, cause) => lock.#report(cause),
      async refresh(lock) {
        if ((await lock._refresh()) || !lock.#possession.isBelieved) return;
        lock.#possession.lose(lock.#taking.cause);
      },
    };
  }

  #report(cause: Error | undefined): void {
    const error = new LostLockError(
      `Lost ${this._kind} for key ${this._key}`,
      cause === undefined ? {} : { cause },
    );
    // The routine of redis-semaphore that calls it is async: what it throws rejects a promise that nobody handles.
    void (async () => this.#onLockLost.call(this, error))();
  }

  /** Whether a subclass, or this object, has its own way to acquire or to refresh the lock. */
  #isReplaced(): boolean {
    const own = Lock.prototype;
    return this._acquire !== own._acquire || this._refresh !== own._refresh;
  }

  #terms(): Terms {
    const { key, name } = this.#kind;
    const renew = this.#options.renew && !this.#isReplaced();
    return { key: this._key, name: this._key === key ? name : undefined, renew };
  }
}
