/** The hold that the objects of a process have together under one identifier. */

import { LockLostError } from '../../base/errors.js';
import { HeldLock } from '../../lock/held-lock.js';
import type { Connection } from '../redlock/connection.js';
import type { Hold, Holds } from '../redlock/holds.js';
import type { Permits } from './permits.js';

/** A lock at the server, or on several, as far as this module uses it. @internal */
export interface ServerLock {
  readonly held: boolean;
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

const nothing = () => {};
/** The release of permits that another object has got. */
const PASSED = Promise.resolve();
const NONE: ReadonlySet<SharedHold> = new Set();
/** Of a hold that nobody has together with its holder, as most are. */
const NO_HOLDS: readonly SharedHold[] = [];
const NOBODY: readonly Holder[] = [];

/** By manager, which connections share, or by connection if that has none; then by the key and the value in Redis. */
const known = new WeakMap<object, Map<string, Set<SharedHold>>>();

/**
 * A lock that was acquired, with all objects of this process that hold it: as with redis-semaphore, whoever takes over a
 * lock by its identifier holds it beside the object that had it.
 *
 * @internal
 */
export class SharedHold implements Hold {
  place = 0;
  readonly #connection: Connection;
  readonly #holds: Holds;
  #lock: ServerLock;
  #holders: readonly Holder[];
  #takeOvers = 0;
  /** Why the lock was lost from which another is being taken over. */
  #loss: LockLostError | undefined;
  /** All holds of the manager under the same value of the same key, once others may know the value. */
  #namesakes: ReadonlySet<SharedHold> = NONE;
  /** Tells it by its value no more. */
  #forget = nothing;
  /** Those that count it, until its end. */
  #permits: Permits | undefined;
  /** How often they have passed to get here. */
  readonly #passes: number;
  /** Whether nobody else knows of it, and it is renewed: then another object may get it as it is. */
  #isPassable = true;

  constructor(
    connection: Connection,
    lock: ServerLock,
    holder: Holder,
    permits: Permits | undefined,
    passes: number,
  ) {
    this.#permits = permits;
    this.#passes = passes;
    this.#connection = connection;
    this.#holds = connection.holds;
    this.#lock = lock;
    this.#holders = [holder];
    if (lock instanceof HeldLock) this.#holds.add(this);
  }

  /** The hold of this process under a value of a key. */
  static of(connection: Connection, key: string, value: string): SharedHold | undefined {
    const namesakes = known.get(placeOf(connection))?.get(nameOf(key, value));
    return [...(namesakes ?? [])].find((hold) => hold.#connection === connection);
  }

  get lock(): ServerLock {
    return this.#lock;
  }

  get held(): HeldLock | undefined {
    return this.#lock instanceof HeldLock ? this.#lock : undefined;
  }

  get isRefreshed(): boolean {
    return this.#holders.some((holder) => holder.isRefreshed);
  }

  /** Lets other objects find it by the value that others may know. */
  tell(key: string, value: string): void {
    this.#isPassable = false;
    this.#forget();
    const place = placeOf(this.#connection);
    const all = known.get(place) ?? new Map<string, Set<SharedHold>>();
    known.set(place, all);
    const name = nameOf(key, value);
    const namesakes = all.get(name) ?? new Set();
    all.set(name, namesakes.add(this));
    this.#namesakes = namesakes;
    this.#forget = () => {
      namesakes.delete(this);
      if (namesakes.size === 0) all.delete(name);
      this.#forget = nothing;
    };
  }

  /** One more holder, whose lock replaces the one that it has been taken over from. */
  async takeOver(holder: Holder, take: () => Promise<HeldLock>): Promise<void> {
    // The manager reports the former lock as lost, maybe before it answers.
    this.#takeOvers += 1;
    try {
      const former = this.#lock;
      const lock = await take();
      this.#lock = lock;
      this.#holders = [...this.#holders, holder];
      this.#holds.add(this);
      if (former instanceof HeldLock) await former.stopRenewing();
    } finally {
      this.#takeOvers -= 1;
      const loss = this.#loss;
      this.#loss = undefined;
      if (!this.#lock.held) this.lose(loss ?? this.#whyLost());
    }
  }

  /** Renews the lock no more if no holder wants it. */
  async settle(): Promise<void> {
    if (this.isRefreshed || !(this.#lock instanceof HeldLock)) return;
    this.#isPassable = false;
    await this.#lock.stopRenewing();
  }

  release(holder: Holder): Promise<unknown> {
    this.#forget();
    // Objects of other clients: the manager would report theirs as lost, sooner than a refresh would find out.
    const namesakes = this.#namesakes.size === 0 ? NO_HOLDS : [...this.#namesakes];
    let others = this.#endWithout(holder);
    for (const namesake of namesakes) {
      namesake.#forget();
      others = [...others, ...namesake.#end()];
      namesake.#stopRenewing();
    }
    const { held } = this;
    const permits = this.#permits;
    if (permits?.isWanted && this.#isPassable && held !== undefined) {
      this.#permits = undefined;
      return permits.giveBack(held, this.#passes) ?? PASSED;
    }
    // Where the lease of this hold is over, an object that took the lock over may still have it.
    const isOver = namesakes.length > 0 && !this.#lock.held;
    const alive = isOver ? namesakes.find((each) => each.#lock.held) : undefined;
    const released = (alive ?? this).#lock.release();
    // The release is sent first: the next object that asks finds room at the server.
    this.#free();
    for (const namesake of namesakes) namesake.#free();
    if (others.length === 0) return released;
    return released.finally(() => {
      for (const other of others) other.released();
    });
  }

  /** `holder` holds it no more, and leaves it to the others, or to expire. */
  leave(holder: Holder): void {
    this.#holders = this.#holders.filter((each) => each !== holder);
    if (this.#holders.length === 0) {
      this.#forget();
      this.#holds.delete(this);
      this.#free();
    }
    this.#stopRenewing();
  }

  /** As `settle`. If it is not answered, the connection is broken, and the lease ends anyway. */
  #stopRenewing(): void {
    this.settle().catch(() => {});
  }

  lose(cause: LockLostError | undefined): void {
    if (this.#takeOvers > 0) {
      this.#loss = cause;
      return;
    }
    this.#forget();
    this.#free();
    // The end of the clients is no loss of the lock.
    const loss = cause?.reason === 'closed' ? undefined : cause;
    for (const holder of this.#end()) holder.lost(loss);
  }

  #free(): void {
    this.#permits?.free();
    this.#permits = undefined;
  }

  /** Why the lock is not held any more, if its manager has not told yet. */
  #whyLost(): LockLostError | undefined {
    try {
      this.held?.assertHeld();
    } catch (error) {
      if (error instanceof LockLostError) return error;
    }
    return undefined;
  }

  /** The holders that it had. */
  #end(): readonly Holder[] {
    this.#holds.delete(this);
    const holders = this.#holders;
    this.#holders = NOBODY;
    return holders;
  }

  /** Those of them that are not `holder`. */
  #endWithout(holder: Holder): readonly Holder[] {
    const holders = this.#end();
    const isAlone = holders.length === 1 && holders[0] === holder;
    return isAlone ? NOBODY : holders.filter((each) => each !== holder);
  }
}

/** Where the holds of a connection are told. */
function placeOf(connection: Connection): object {
  return connection.current?.manager ?? connection;
}

function nameOf(key: string, value: string): string {
  return `${key}\n${value}`;
}
