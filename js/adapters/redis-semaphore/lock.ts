import { setTimeout as sleep } from 'node:timers/promises';
import { untilAborted } from '../../base/abort.js';
import { LockTimeoutError, LockLostError as Lost } from '../../base/errors.js';
import { isMock, readClients } from '../../connect/clients/read-clients.js';
import type { HeldLock } from '../../lock/held-lock.js';
import type { LockJson, SharedHandle } from '../../lock/lock.js';
import type { LockManager } from '../../manager/manager.js';
import { Connection } from '../redlock/connection.js';
import type { Client } from '../redlock/votes.js';
import { LostLockError, TimeoutError } from './errors.js';
import { Name } from './name.js';
import { type Checked, checkOptions, type HolderOptions, type Share } from './options.js';
import { Refresher } from './refresher.js';
import { type Holder, type ServerLock, SharedHold } from './shared-hold.js';
import { Turns } from './turns.js';
import { shorten, ValueHold } from './value-hold.js';

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

/** What a class of locks decides for all of them. @internal */
export interface Kind {
  readonly kind: string;
  readonly key: string;
  /** Of a semaphore: how many permits all have, and how many of them each object takes. */
  readonly limit?: number;
  readonly permits?: number;
}

/** The callback of a lock without one. */
function throwIt(error: LostLockError): never {
  throw error;
}

/** One acquire. */
interface Attempt {
  /** How long it has waited for its turn, in ms. */
  readonly spent: number;
  /** Why it failed. */
  cause?: Error;
}

/**
 * What all locks of redis-semaphore have in common. As there, a subclass may set `_key`, and replace `_acquire`,
 * `_refresh` and `_release`.
 */
export abstract class Lock {
  /** The word for the kind of lock in its errors. */
  protected _kind: string;
  /** The key in Redis. */
  protected _key: string;
  /** How much of the lock this object wants. */
  readonly #share: Share;
  readonly #clients: readonly Client[];
  readonly #connection: Connection;
  readonly #options: Checked;
  readonly #onLockLost: LockLostCallback;
  readonly #holder: Holder;
  readonly #name: Name;
  #external: boolean;
  #hold: SharedHold | undefined;
  #acquired = false;
  #isRefreshed = false;
  readonly #refresher: Refresher;
  /** Reports the loss of a lock that another object has released. */
  #lateLoss: NodeJS.Timeout | undefined;
  /** The last one; a refresh that fails says so here as well. */
  #attempt: Attempt = { spent: 0 };
  /** Of a semaphore. */
  readonly #turns: Turns | undefined;

  /** @internal */
  protected constructor(clients: readonly Client[], kind: Kind, options: LockOptions | undefined) {
    this._kind = kind.kind;
    this._key = kind.key;
    const { limit, permits } = kind;
    this.#share =
      limit === undefined ? {} : { mode: 'shared', limit, ...(permits ? { permits } : {}) };
    this.#clients = clients;
    this.#options = checkOptions(options);
    this.#onLockLost = options?.onLockLost ?? throwIt;
    this.#external = this.#options.acquiredExternally;
    this.#turns = limit === undefined ? undefined : new Turns();
    this.#refresher = new Refresher(this.#options.refreshInterval, async () => {
      if ((await this._refresh()) || !this.#acquired) return;
      this.#lose(this.#attempt.cause);
    });
    this.#holder = this.#asHolder();
    readClients(clients);
    this.#connection = Connection.of(clients);
    this.#name = new Name(this.#connection, this.#share, this.#options);
  }

  /** The name of the holder. With `acquiredExternally` another process can take over the lock by it. */
  get identifier(): string {
    return this.#name.tell(this._key, this.#hold);
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
    if (!this.#acquired) return false;
    return this.#isReplaced || (this.#hold?.lock.held ?? false);
  }

  /**
   * Acquires the lock, and waits in the queue while others hold it.
   *
   * @param abortSignal - Ends the wait; the promise then rejects with its reason.
   * @throws TimeoutError if others held it for `acquireTimeout`, or for `acquireAttemptsLimit` attempts.
   */
  async acquire(abortSignal?: AbortSignal): Promise<void> {
    if (await this.tryAcquire(abortSignal)) return;
    const { cause } = this.#attempt;
    throw new TimeoutError(
      `Acquire ${this._kind} ${this._key} timeout`,
      cause === undefined ? {} : { cause },
    );
  }

  /** Acquires the lock as `acquire` does. Answers `false` in place of a `TimeoutError`. */
  async tryAcquire(abortSignal?: AbortSignal): Promise<boolean> {
    if (this.#turns === undefined) return this.#try(abortSignal, 0);
    return this.#turns.next((waited) => this.#try(abortSignal, waited), abortSignal);
  }

  /** Ends the renewal: the lock stays held until it is released or `lockTimeout` is over. */
  async stopRefresh(): Promise<void> {
    this.#isRefreshed = false;
    this.#stopTimers();
    await this.#hold?.settle();
  }

  /** Releases the lock if it is held, even if another process has acquired it under `identifier`. */
  async release(): Promise<void> {
    this.#stopTimers();
    const [external, hold] = [this.#external, this.#hold];
    const had = this.#acquired || external;
    this.#acquired = false;
    this.#external = false;
    this.#isRefreshed = false;
    try {
      // Only one that is to be taken over is released by its identifier. One that was lost may be that of another by now.
      if (external && !this.#isReplaced) await this.#takeOver();
      if (had) await this._release();
    } catch (error) {
      this.#external = external;
      throw error;
    }
    // That of a subclass may not have ended it.
    if (hold === undefined || this.#hold !== hold) return;
    this.#hold = undefined;
    hold.leave(this.#holder);
  }

  /** Acquires the lock, for subclasses: `tryAcquire` calls it unless the lock is taken over. */
  protected async _acquire(abortSignal?: AbortSignal): Promise<boolean> {
    if (!this.#options.tries) {
      return this.#fail(
        new Error('no attempt was made: acquireTimeout or acquireAttemptsLimit is 0'),
      );
    }
    const { limit = 1, permits = 1 } = this.#share;
    if (permits > limit)
      return this.#fail(new Error(`${permits} permits are more than the limit, ${limit}`));
    try {
      const held = await this.#take(abortSignal, this.#attempt.spent);
      if (held === undefined) return this.#fail(new Error('others hold it'));
      this.#begin(held);
      return true;
    } catch (error) {
      if (error instanceof LockTimeoutError) return this.#fail(error);
      throw error;
    }
  }

  /**
   * Makes the lock last for `lockTimeout` from now, or takes it over by the identifier, for subclasses. If a subclass has
   * its own, it is called every `refreshInterval` ms, and decides alone whether the lock is still held.
   */
  protected async _refresh(): Promise<boolean> {
    const hold = this.#hold;
    if (hold === undefined) return this.#takeOver();
    try {
      await hold.lock.extend(this.#options.lockTimeout);
      return true;
    } catch (error) {
      if (error instanceof Lost) return this.#fail(error);
      throw error;
    }
  }

  /** Releases the lock, for subclasses: `release` calls it if the lock is held, or was to be taken over. */
  protected async _release(): Promise<void> {
    const hold = this.#hold;
    this.#hold = undefined;
    await hold?.release(this.#holder);
  }

  async #try(signal: AbortSignal | undefined, spent: number): Promise<boolean> {
    signal?.throwIfAborted();
    if (this.#isSemaphore && this.isAcquired) return true;
    // The cause stays: the caller of the attempt before may not have read it yet.
    this.#attempt = { ...this.#attempt, spent };
    if (this.#external && !this.#isReplaced) {
      await this.#open(signal);
      signal?.throwIfAborted();
    }
    const acquired = this.#external ? await this._refresh() : await this._acquire(signal);
    if (!acquired) return false;
    this.#external = false;
    // It may have been lost since.
    this.#acquired = this.#isReplaced || this.#hold !== undefined;
    if (this.#acquired) this.#startRefresh();
    return true;
  }

  #fail(cause: Error): false {
    this.#attempt.cause = cause;
    return false;
  }

  /** What the options and this object make of a free lock, or of one that becomes free in time. */
  async #take(signal: AbortSignal | undefined, spent: number): Promise<ServerLock | undefined> {
    if (this.#isQuorum && this.#name.token !== undefined) {
      return ValueHold.acquire(this.#place, this.#options, signal);
    }
    const manager = await this.#open(signal);
    const { wait, retries, besideOldCode } = this.#options;
    const options = { ...this.#terms, leaveToExpire: !this.#renews, ...this.#share };
    let taken: unknown;
    if (besideOldCode && !this.#isSemaphore) {
      taken = await retry(retries, signal, () => manager.tryAcquire(this._key, options));
    } else if (wait === null) {
      taken = await manager.tryAcquire(this._key, options);
    } else {
      const left = Math.max(0, Math.ceil(wait - spent));
      const until = signal === undefined ? {} : { signal };
      taken = await manager.acquire(this._key, { ...options, wait: left, ...until });
    }
    return taken === null ? undefined : this.#named(taken as SharedHandle);
  }

  /** The lock under the identifier, if somebody may know that already. */
  async #named(held: SharedHandle): Promise<ServerLock> {
    const { token } = this.#name;
    if (token === undefined || this.#isQuorum) return held;
    try {
      return await this.#adopt(held.toJSON(), token, this.#renews);
    } catch (error) {
      await held.release().catch(() => {});
      throw error;
    }
  }

  /** Gives a lock a value. Only then is one that is not renewed left to expire: without an answer it is released. */
  async #adopt(
    owner: Pick<LockJson, 'name' | 'token' | 'mode'>,
    value: string,
    renew: boolean,
  ): Promise<HeldLock> {
    const manager = await this.#open();
    const held = await manager.adoptAs(owner, value, { ...this.#terms, renew });
    if (!renew) await held.stopRenewing();
    return held;
  }

  /** Takes over the lock that was acquired under the identifier, also with redis-semaphore itself. */
  async #takeOver(): Promise<boolean> {
    if (this.#isQuorum) {
      const held = await ValueHold.takeOver(this.#place, this.#options.lockTimeout);
      if (held === undefined) return this.#fail(new Error('nobody holds it by this identifier'));
      this.#begin(held);
      return true;
    }
    const { value } = this.#place;
    const mode = this.#isSemaphore ? 'shared' : 'exclusive';
    for (const token of new Set([value, this.identifier])) {
      try {
        await this.#join({ name: this._key, token, mode }, value);
        // The lease of a permit is not in the key.
        if (!this.#isSemaphore) await shorten(this.#place, this.#options.lockTimeout);
        return true;
      } catch (error) {
        if (!(error instanceof Lost)) throw error;
        this.#fail(error);
      }
    }
    return false;
  }

  /** Holds a lock beside the objects of this process that hold it, if there are any. */
  async #join(owner: Pick<LockJson, 'name' | 'token' | 'mode'>, value: string): Promise<void> {
    const shared = SharedHold.of(this.#connection, this._key, value);
    if (shared === undefined) return this.#begin(await this.#adopt(owner, value, this.#renews));
    const renews = this.#renews || shared.isRefreshed;
    this.#isRefreshed = this.#options.renew;
    this.#hold = shared;
    try {
      await shared.takeOver(this.#holder, () => this.#adopt(owner, value, renews));
    } catch (error) {
      this.#hold = undefined;
      throw error;
    }
  }

  #begin(held: ServerLock): void {
    this.#hold?.leave(this.#holder);
    this.#isRefreshed = this.#options.renew;
    this.#hold = new SharedHold(held, this.#holder);
    this.#name.show(this._key, this.#hold);
  }

  #startRefresh(): void {
    this.#stopTimers();
    this.#isRefreshed = this.#options.renew;
    const isRenewed = !this.#isReplaced && !(this.#hold?.lock instanceof ValueHold);
    if (!this.#isRefreshed || isRenewed) return;
    this.#refresher.start();
  }

  #stopTimers(): void {
    this.#refresher.stop();
    clearTimeout(this.#lateLoss);
  }

  #asHolder(): Holder {
    const isRefreshed = () => this.#isRefreshed;
    return {
      get isRefreshed() {
        return isRefreshed();
      },
      lost: (cause) => {
        this.#hold = undefined;
        // A subclass with its own `_refresh` decides itself.
        if (this.#isReplaced) return;
        if (cause === undefined) this.#isRefreshed = false;
        this.#lose(cause);
      },
      released: () => {
        this.#hold = undefined;
        if (!this.#isRefreshed || this.#isReplaced) return;
        this.#loseLater(new Error('another object released it by its identifier'));
      },
    };
  }

  /** Loses the lock when the next refresh would find out. */
  #loseLater(cause: Error): void {
    this.#stopTimers();
    this.#lateLoss = setTimeout(() => this.#lose(cause), this.#options.refreshInterval).unref();
  }

  #lose(cause: Error | undefined): void {
    this.#stopTimers();
    this.#acquired = false;
    this.#hold?.leave(this.#holder);
    this.#hold = undefined;
    if (!this.#isRefreshed) return;
    this.#isRefreshed = false;
    const error = new LostLockError(
      `Lost ${this._kind} for key ${this._key}`,
      cause === undefined ? {} : { cause },
    );
    // The routine of redis-semaphore that calls it is async: what it throws rejects a promise that nobody handles.
    void (async () => this.#onLockLost.call(this, error))();
  }

  get #isSemaphore(): boolean {
    return this.#share.limit !== undefined;
  }

  get #isQuorum(): boolean {
    return this.#clients.length > 1 && !this.#clients.every(isMock);
  }

  /** Whether a subclass, or this object, has its own way to acquire or to refresh the lock. */
  get #isReplaced(): boolean {
    const own = Lock.prototype;
    return this._acquire !== own._acquire || this._refresh !== own._refresh;
  }

  /** Whether the manager renews the lock. */
  get #renews(): boolean {
    return this.#options.renew && !this.#isReplaced;
  }

  get #terms(): { readonly ttl: number; readonly renew: boolean } {
    return { ttl: this.#options.lockTimeout, renew: this.#renews };
  }

  get #place() {
    return {
      clients: this.#clients,
      key: this._key,
      value: this.#name.tokenFor(this._key, this.#hold),
    };
  }

  #open(signal?: AbortSignal): Promise<LockManager> {
    const opened = this.#connection.openWhenUp(() => readClients(this.#clients), this._key);
    return signal === undefined ? opened : untilAborted(opened, signal);
  }
}

/** Tries as redis-semaphore does: at an interval, until the time is over or the attempts are used up. */
async function retry<T>(
  { interval, wait, limit }: Checked['retries'],
  signal: AbortSignal | undefined,
  attempt: () => Promise<T | null>,
): Promise<T | null> {
  const end = performance.now() + wait;
  for (let attempts = 1; ; attempts++) {
    const held = await attempt();
    if (held !== null) return held;
    if (attempts >= limit || performance.now() >= end) return null;
    await sleep(interval, undefined, { signal }).catch(() => {});
    signal?.throwIfAborted();
  }
}
