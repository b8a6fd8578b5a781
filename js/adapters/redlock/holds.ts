/** The locks of a connection whose objects are told of a loss. */

import type { LockLostError } from '../../base/errors.js';
import type { HeldLock } from '../../lock/held-lock.js';

/** An object of a drop-in that has a lock of the manager. @internal */
export interface Hold {
  /** The lock of the manager, which may be replaced by one that was taken over from it. */
  readonly held: HeldLock | undefined;
  /** Whether anyone is to be told of its loss. */
  readonly isRefreshed: boolean;
  /** Its place in `Holds`, which alone sets it. */
  place: number;
  /** The lock is lost; without a cause, by the end of the clients. */
  lose(cause: LockLostError | undefined): void;
}

/** `Holds` looks for those that have expired unseen once it has so many. */
const SWEPT_MIN = 1_000;

/**
 * Finds them by the manager's event `lost`: a listener of the signal of each lock would cost as much as the lock itself. It
 * does not tell the end of a lock that is not renewed, so these are looked for as they become many.
 *
 * @internal
 */
export class Holds {
  readonly #all: Hold[] = [];
  #sweptAt = SWEPT_MIN;
  /** By lock, while many are lost in one turn of the event loop. */
  #byLock: Map<unknown, Hold> | undefined;
  /** The locks that were lost in this turn before their holds were added, with the cause. */
  readonly #early = new Map<unknown, LockLostError>();

  /** Adds a hold, or the lock that has replaced its own. */
  add(hold: Hold): void {
    if (this.#all[hold.place] !== hold) {
      hold.place = this.#all.length;
      this.#all.push(hold);
    }
    if (this.#byLock !== undefined) this.#addDuringLosses(this.#byLock, hold);
    if (this.#all.length >= this.#sweptAt) this.#sweep();
  }

  delete(hold: Hold): void {
    const { place } = hold;
    if (this.#all[place] !== hold) return;
    const last = this.#all.pop() as Hold;
    if (last === hold) return;
    last.place = place;
    this.#all[place] = last;
  }

  /** The manager has lost `lock`. */
  lose(lock: unknown, cause: LockLostError): void {
    if (this.#byLock === undefined) {
      this.#byLock = new Map(this.#all.map((hold) => [hold.held, hold]));
      setImmediate(() => {
        this.#byLock = undefined;
        this.#early.clear();
      });
    }
    const hold = this.#byLock.get(lock);
    if (hold?.held === lock) hold?.lose(cause);
    else this.#early.set(lock, cause);
  }

  #addDuringLosses(byLock: Map<unknown, Hold>, hold: Hold): void {
    const { held } = hold;
    byLock.set(held, hold);
    const cause = this.#early.get(held);
    // Later: the caller of the acquire is to know of it first.
    if (cause !== undefined) setImmediate(() => hold.held === held && hold.lose(cause));
  }

  /** Takes all out. */
  take(): Hold[] {
    return this.#all.splice(0);
  }

  #sweep(): void {
    for (const hold of [...this.#all]) {
      if (!hold.isRefreshed && hold.held?.held !== true) hold.lose(undefined);
    }
    this.#sweptAt = Math.max(SWEPT_MIN, 2 * this.#all.length);
  }
}
