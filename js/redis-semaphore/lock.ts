import { setTimeout } from 'node:timers/promises';
import { onAbort } from '../base/abort.js';
import { LockLostError, LockTimeoutError } from '../base/errors.js';
import { readClients } from '../connect/clients/read-clients.js';
import { HeldLock } from '../lock/held-lock.js';
import type { LockJson, SharedHandle } from '../lock/lock.js';
import type { LockManager } from '../manager/manager.js';
import { Connection } from '../redlock/connection.js';
import type { Client } from '../redlock/votes.js';
import { LostLockError, TimeoutError } from './errors.js';
import {
  type Checked,
  checkOptions,
  type HolderOptions,
  newIdentifier,
  tokenFor,
} from './options.js';

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
  /** Of a semaphore: the most holders. */
  readonly limit?: number;
}

/** The callback of a lock without one. */
function throwIt(error: LostLockError): never {
  throw error;
}

/** What all locks of redis-semaphore have in common. */
export abstract class Lock {
  readonly #kind: Kind;
  readonly #clients: readonly Client[];
  readonly #connection: Connection;
  readonly #options: Checked;
  readonly #onLockLost: LockLostCallback;
  #identifier: string | undefined;
  #external: boolean;
  #held: SharedHandle | undefined;
  #isRefreshed = false;
  /** Ends with the last acquire of a semaphore, and never rejects. */
  #turn: Promise<unknown> = Promise.resolve();

  /** @internal */
  protected constructor(clients: readonly Client[], kind: Kind, options: LockOptions | undefined) {
    this.#kind = kind;
    this.#clients = clients;
    this.#options = checkOptions(options);
    this.#onLockLost = options?.onLockLost ?? throwIt;
    this.#identifier = this.#options.identifier;
    this.#external = this.#options.acquiredExternally;
    readClients(clients);
    this.#connection = Connection.of(clients);
  }

  /** The name of the holder. With `acquiredExternally` another process can take over the lock by it. */
  get identifier(): string {
    this.#identifier ??=
      this.#held?.toJSON().token ?? newIdentifier(this.#options.identifierSuffix);
    return this.#identifier;
  }

  /** Whether the lock is held now. */
  get isAcquired(): boolean {
    return this.#held?.held ?? false;
  }

  /**
   * Acquires the lock, and waits in the queue while others hold it.
   *
   * @param abortSignal - Ends the wait; the promise then rejects with its reason.
   * @throws TimeoutError if others held it for `acquireTimeout`, or for `acquireAttemptsLimit` attempts.
   */
  async acquire(abortSignal?: AbortSignal): Promise<void> {
    const cause = await this.#acquire(abortSignal);
    if (cause === undefined) return;
    const { kind, key } = this.#kind;
    throw new TimeoutError(`Acquire ${kind} ${key} timeout`, { cause });
  }

  /** Acquires the lock as `acquire` does. Answers `false` in place of a `TimeoutError`. */
  async tryAcquire(abortSignal?: AbortSignal): Promise<boolean> {
    return (await this.#acquire(abortSignal)) === undefined;
  }

  /** Ends the renewal: the lock stays held until it is released or `lockTimeout` is over. */
  async stopRefresh(): Promise<void> {
    this.#isRefreshed = false;
    if (this.#held instanceof HeldLock) await this.#held.stopRenewing();
  }

  /** Releases the lock if it is held, even if another process has acquired it under `identifier`. */
  async release(): Promise<void> {
    if (this.#external && this.#held === undefined) await this.#takeOver(undefined);
    const held = this.#held;
    this.#held = undefined;
    this.#external = false;
    await held?.release();
  }

  /** Why the lock could not be acquired, or nothing. */
  #acquire(signal: AbortSignal | undefined): Promise<Error | undefined> {
    if (!this.#isSemaphore) return this.#acquireNow(signal, 0);
    // Under its identifier a semaphore has one permit, however often it is acquired. So of several calls at the same
    // time each looks what the one before has got, and has spent its patience meanwhile.
    const began = performance.now();
    const before = this.#turn;
    // Its signal ends the wait for its turn. Later the acquire itself looks at it, so that it does not reject a caller
    // who has got the permit.
    const turn = signal === undefined ? before : untilAborted(before, signal);
    const acquired = turn.then(() => this.#acquireNow(signal, performance.now() - began));
    this.#turn = Promise.allSettled([before, acquired]);
    return acquired;
  }

  async #acquireNow(signal: AbortSignal | undefined, spent: number): Promise<Error | undefined> {
    signal?.throwIfAborted();
    const { tries } = this.#options;
    if (this.#isSemaphore && this.isAcquired) return undefined;
    if (this.#external) return this.#takeOver(signal);
    if (!tries)
      return new Error('no attempt was made: acquireTimeout or acquireAttemptsLimit is 0');
    try {
      const held = await this.#take(signal, spent);
      if (held === null) return new Error('others hold it');
      this.#begin(await this.#named(held));
      return undefined;
    } catch (error) {
      if (error instanceof LockTimeoutError) return error;
      throw error;
    }
  }

  async #take(signal: AbortSignal | undefined, spent: number): Promise<SharedHandle | null> {
    const manager = await this.#open();
    const { key, limit } = this.#kind;
    const { wait } = this.#options;
    const options = {
      ...this.#hold,
      leaveToExpire: !this.#options.renew,
      ...(limit === undefined ? {} : { mode: 'shared' as const, limit }),
    };
    const { retries } = this.#options;
    if (retries !== undefined && limit === undefined) {
      return retry(
        retries,
        signal,
        () => manager.tryAcquire(key, options) as Promise<SharedHandle | null>,
      );
    }
    const taken =
      wait === null
        ? await manager.tryAcquire(key, options)
        : await manager.acquire(key, {
            ...options,
            wait: Math.max(0, Math.ceil(wait - spent)),
            ...(signal === undefined ? {} : { signal }),
          });
    return taken as SharedHandle | null;
  }

  /** The lock under the identifier, if somebody may know that already. */
  async #named(held: SharedHandle): Promise<SharedHandle> {
    if (this.#identifier === undefined || this.#clients.length > 1) return held;
    try {
      return await this.#adopt(held.toJSON(), tokenFor(this.#identifier));
    } catch (error) {
      await held.release().catch(() => {});
      throw error;
    }
  }

  /** Gives a lock a value. Only then is one that is not renewed left to expire: without an answer it is released. */
  async #adopt(owner: Pick<LockJson, 'name' | 'token' | 'mode'>, value: string): Promise<HeldLock> {
    const manager = await this.#open();
    const held = await manager.adoptAs(owner, value, this.#hold);
    if (!this.#options.renew) await held.stopRenewing();
    return held;
  }

  /** Takes over the lock that another process has acquired under the identifier, also with redis-semaphore itself. */
  async #takeOver(signal: AbortSignal | undefined): Promise<Error | undefined> {
    await this.#open();
    signal?.throwIfAborted();
    const { key, limit } = this.#kind;
    const mode = limit === undefined ? 'exclusive' : 'shared';
    const value = tokenFor(this.identifier);
    let lost: Error | undefined;
    for (const token of new Set([value, this.identifier])) {
      try {
        this.#begin(await this.#adopt({ name: key, token, mode }, value));
        return undefined;
      } catch (error) {
        if (!(error instanceof LockLostError)) throw error;
        lost = error;
      }
    }
    return lost;
  }

  #begin(held: SharedHandle): void {
    this.#held = held;
    this.#external = false;
    this.#isRefreshed = this.#options.renew;
    if (!this.#isRefreshed) return;
    const { kind, key } = this.#kind;
    const lost = () => {
      const { reason } = held.signal;
      if (!this.#isRefreshed || this.#held !== held) return;
      // The end of the clients is no loss of the lock.
      if (reason instanceof LockLostError && reason.reason === 'closed') return;
      const error = new LostLockError(`Lost ${kind} for key ${key}`, { cause: reason });
      // The routine of redis-semaphore that calls it is async: what it throws rejects a promise that nobody handles.
      void (async () => this.#onLockLost.call(this, error))();
    };
    held.signal.addEventListener('abort', lost, { once: true });
  }

  get #isSemaphore(): boolean {
    return this.#kind.limit !== undefined;
  }

  get #hold(): { readonly ttl: number; readonly renew: boolean } {
    return { ttl: this.#options.lockTimeout, renew: this.#options.renew };
  }

  #open(): Promise<LockManager> {
    return this.#connection.open(() => readClients(this.#clients));
  }
}

/** Rejects when the signal is aborted; the work goes on. */
async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  let forget: (() => void) | undefined;
  const aborted = new Promise<never>((_, reject) => {
    forget = onAbort(signal, () => reject(signal.reason));
  });
  return Promise.race([work, aborted]).finally(forget);
}

/** Tries as redis-semaphore does: at an interval, until the time is over or the attempts are used up. */
async function retry(
  { interval, wait, limit }: NonNullable<Checked['retries']>,
  signal: AbortSignal | undefined,
  attempt: () => Promise<SharedHandle | null>,
): Promise<SharedHandle | null> {
  const end = performance.now() + wait;
  for (let attempts = 1; ; attempts++) {
    const held = await attempt();
    if (held !== null) return held;
    if (attempts >= limit || performance.now() >= end) return null;
    await setTimeout(interval, undefined, { signal }).catch(() => {});
    signal?.throwIfAborted();
  }
}
