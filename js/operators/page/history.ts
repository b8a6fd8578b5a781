/** The history of locks, as far as a page was open. The page loads it too, as a part of `shared.mjs`. */

/** A holder of a lock in the past. @internal */
export interface Person {
  readonly name: string;
  readonly client: string;
}

/** An event in the history of a lock. @internal */
export interface Happening {
  readonly at: number;
  readonly name: string;
  readonly kind: 'acquired' | 'done' | 'freed' | 'moved';
  readonly from: readonly Person[];
  readonly to: readonly Person[];
}

/** A time in which nobody watched, in ms since 1970. @internal */
interface Gap {
  readonly from: number;
  readonly to: number;
}

/** One lock that is always in motion must not push the others out. */
const PER_LOCK_MAX = 20;
const LOCKS_MAX = 200;
const GAPS_MAX = 50;

/** The latest happenings of each of the locks to which something happened last. @internal */
export class History {
  /** By the lock's name, those to which something happened last at the end. */
  readonly #byLock = new Map<string, Happening[]>();
  #gaps: Gap[] = [];
  /** When the first look was; 0 before it. */
  since = 0;

  add(happened: readonly Happening[]): void {
    for (const each of happened) {
      const before = this.#byLock.get(each.name) ?? [];
      this.#byLock.delete(each.name);
      this.#byLock.set(each.name, [...before, each].slice(-PER_LOCK_MAX));
    }
    for (const name of this.#byLock.keys()) {
      if (this.#byLock.size <= LOCKS_MAX) return;
      this.#byLock.delete(name);
    }
  }

  addGap(gap: Gap): void {
    this.#gaps = [...this.#gaps, gap].slice(-GAPS_MAX);
  }

  /** Everything, in order. */
  all(): Happening[] {
    return [...this.#byLock.values()].flat().sort((a, b) => a.at - b.at);
  }

  /** The events of one lock. */
  of(name: string): readonly Happening[] {
    return this.#byLock.get(name) ?? [];
  }

  get gaps(): readonly Gap[] {
    return this.#gaps;
  }
}
