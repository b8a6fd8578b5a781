/** The hold that the objects of a process have together under one identifier. */

import { LockLostError } from '../../base/errors.js';
import { HeldLock } from '../../lock/held-lock.js';
import type { Connection } from '../redlock/connection.js';

/** A lock at the server, or on several, as far as this module uses it. @internal */
export interface ServerLock {
  readonly held: boolean;
  readonly signal?: AbortSignal;
  extend(ttl: number): Promise<void>;
  release(): Promise<unknown>;
}

/** One of the objects that hold it. @internal */
export interface Holder {
  /** Whether it wants the lock renewed. */
  readonly isRefreshed: boolean;
  /** The lock is lost; without a cause, by the end of the clients. */
  lost(cause: LockLostError | undefined): void;
  /** Another object has released the lock, which this one would notice by its next refresh. */
  released(): void;
}

/** By connection, then by the key and the value in Redis. */
const known = new WeakMap<Connection, Map<string, SharedHold>>();

/**
 * A lock that was acquired, with all objects of this process that hold it: as with redis-semaphore, whoever takes over a
 * lock by its identifier holds it beside the object that had it.
 *
 * @internal
 */
export class SharedHold {
  #lock: ServerLock;
  readonly #holders = new Set<Holder>();
  #takeOvers = 0;
  #forget: (() => void) | undefined;

  constructor(lock: ServerLock, holder: Holder) {
    this.#lock = lock;
    this.#holders.add(holder);
    this.#watch(lock);
  }

  /** The hold of this process under a value of a key. */
  static of(connection: Connection, key: string, value: string): SharedHold | undefined {
    return known.get(connection)?.get(nameOf(key, value));
  }

  get lock(): ServerLock {
    return this.#lock;
  }

  get isRefreshed(): boolean {
    return [...this.#holders].some((holder) => holder.isRefreshed);
  }

  /** Lets other objects find it by the value that others may know. */
  tell(connection: Connection, key: string, value: string): void {
    this.#forget?.();
    const all = known.get(connection) ?? new Map<string, SharedHold>();
    known.set(connection, all);
    const name = nameOf(key, value);
    all.set(name, this);
    this.#forget = () => {
      if (all.get(name) === this) all.delete(name);
    };
  }

  /** One more holder, whose lock replaces the one that it has been taken over from. */
  async takeOver(holder: Holder, take: () => Promise<HeldLock>): Promise<void> {
    // The manager reports the former lock as lost, maybe before it answers.
    this.#takeOvers += 1;
    try {
      const former = this.#lock;
      this.#lock = await take();
      this.#holders.add(holder);
      this.#watch(this.#lock);
      if (former instanceof HeldLock) await former.stopRenewing();
    } finally {
      this.#takeOvers -= 1;
      if (!this.#lock.held) this.#lose(this.#lock);
    }
  }

  /** Renews the lock no more if no holder wants it. */
  async settle(): Promise<void> {
    if (!this.isRefreshed && this.#lock instanceof HeldLock) await this.#lock.stopRenewing();
  }

  async release(holder: Holder): Promise<void> {
    this.#holders.delete(holder);
    this.#forget?.();
    const others = this.#end();
    try {
      await this.#lock.release();
    } finally {
      for (const other of others) other.released();
    }
  }

  /** `holder` holds it no more, and leaves it to the others, or to expire. */
  leave(holder: Holder): void {
    this.#holders.delete(holder);
    if (this.#holders.size === 0) this.#forget?.();
    // If it is not answered, the connection is broken, and the lease ends anyway.
    this.settle().catch(() => {});
  }

  #watch(lock: ServerLock): void {
    lock.signal?.addEventListener('abort', () => this.#lose(lock), { once: true });
  }

  #lose(lock: ServerLock): void {
    if (lock !== this.#lock || this.#takeOvers > 0) return;
    this.#forget?.();
    const reason: unknown = lock.signal?.reason;
    // The end of the clients is no loss of the lock.
    const isLoss = reason instanceof LockLostError && reason.reason !== 'closed';
    for (const holder of this.#end()) holder.lost(isLoss ? reason : undefined);
  }

  #end(): Holder[] {
    const holders = [...this.#holders];
    this.#holders.clear();
    return holders;
  }
}

function nameOf(key: string, value: string): string {
  return `${key}\n${value}`;
}
