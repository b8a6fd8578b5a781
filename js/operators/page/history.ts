/** The history of locks, as far as somebody watched. The page loads it too, as a part of `shared.mjs`. */

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

/** How long an event is kept, in ms. @internal */
export const KEPT_MS = 3_600_000;
/** One lock that is always in motion must not push the others out. @internal */
export const PER_LOCK_MAX = 100;
const EVENTS_MAX = 5_000;
/** The most letters of all events together, as JSON: a semaphore may have a thousand holders. */
const LETTERS_MAX = 1_000_000;
const GAPS_MAX = 50;

interface Kept {
  readonly each: Happening;
  readonly letters: number;
}

/** The latest events of the last hour, of each lock and of all. @internal */
export class History {
  /** By the lock's name, those to which something happened last at the end. */
  readonly #byLock = new Map<string, Kept[]>();
  #events = 0;
  #letters = 0;
  #gaps: Gap[] = [];
  /** When the first look was that is kept; 0 before it. */
  since = 0;

  /** Adds what happened, and forgets what is too old at `now`, in ms since 1970, or too much. */
  add(happened: readonly Happening[], now: number): void {
    for (const each of happened) {
      const own = this.#byLock.get(each.name) ?? [];
      this.#byLock.delete(each.name);
      this.#byLock.set(each.name, own);
      const letters = JSON.stringify(each).length;
      own.push({ each, letters });
      this.#events += 1;
      this.#letters += letters;
      if (own.length > PER_LOCK_MAX) this.#dropFirst(each.name, own);
    }
    this.#forget(now - KEPT_MS);
  }

  addGap(gap: Gap): void {
    this.#gaps = [...this.#gaps, gap].slice(-GAPS_MAX);
  }

  /** Everything, in order. */
  all(): Happening[] {
    const all = [...this.#byLock.values()].flat().map(({ each }) => each);
    return all.sort((a, b) => a.at - b.at);
  }

  /** The events of one lock. */
  of(name: string): readonly Happening[] {
    return (this.#byLock.get(name) ?? []).map(({ each }) => each);
  }

  get gaps(): readonly Gap[] {
    return this.#gaps;
  }

  #forget(before: number): void {
    if (this.since > 0) this.#forgetTimes(Math.max(this.since, before));
    for (const [name, own] of this.#byLock) {
      while (own[0] !== undefined && own[0].each.at < before) this.#dropFirst(name, own);
    }
    for (const [name, own] of this.#byLock) {
      while (own.length > 0 && this.#isTooMuch) this.#dropFirst(name, own);
      if (!this.#isTooMuch) return;
    }
  }

  /** The time that is kept begins at `since`, or behind the gap in which that is. */
  #forgetTimes(since: number): void {
    this.since = this.#gaps.find(({ from, to }) => from <= since && since < to)?.to ?? since;
    this.#gaps = this.#gaps.filter(({ to }) => to > this.since);
  }

  get #isTooMuch(): boolean {
    return this.#events > EVENTS_MAX || this.#letters > LETTERS_MAX;
  }

  #dropFirst(name: string, own: Kept[]): void {
    const { letters } = own.shift() as Kept;
    this.#events -= 1;
    this.#letters -= letters;
    if (own.length === 0) this.#byLock.delete(name);
  }
}
