/** Looks at locks again and again, and so learns since when they are held, and how often they changed hands. */

import { type HolderView, isDone, type LockView, tokensOf } from './lock-views.js';

/**
 * Since when a holder has a lock, as far as it can be known: the server does not keep it. If a look shows a holder that
 * the look before did not show, it is the time of that look. Of who was there before, the token may tell when it asked
 * for the lock.
 */
export interface HoldAge {
  /** In ms since 1970. */
  readonly since: number;
  /** The hold began at `since`; or then or later, when it had to wait; or then or earlier. */
  readonly began: 'at' | 'or later' | 'or earlier';
}

/** The change of a lock between two looks. */
export interface Change {
  readonly name: string;
  /** The lock got an owner, another owner, or has none any more; or a slot of `runOnce` is done. */
  readonly kind: 'acquired' | 'done' | 'freed' | 'moved';
  /** The holders before, and those now. */
  readonly from: readonly HolderView[];
  readonly to: readonly HolderView[];
}

/** A lock is forgotten when so many looks in a row did not show it. */
const FORGOTTEN_AFTER = 600;

interface Seen {
  /** The tokens at the last look that showed any. */
  readonly tokens: readonly string[];
  readonly holders: readonly HolderView[];
  readonly changes: number;
  /** The last look that showed the lock. */
  readonly look: number;
}

/** Compares each look at the locks with the one before. */
export class Observer {
  #look = 0;
  #exact = false;
  #holds = new Map<string, HoldAge>();
  readonly #seen = new Map<string, Seen>();

  /**
   * Takes note of the locks at `now`, in ms since 1970, and returns what has changed since the last look,
   * unless that one was long ago.
   */
  look(views: readonly LockView[], now: number): Change[] {
    this.#look += 1;
    const known = this.#holds;
    this.#holds = new Map();
    const changes: Change[] = [];
    for (const view of views) {
      for (const holder of view.holders) {
        const [token = ''] = tokensOf({ holders: [holder] });
        this.#holds.set(token, known.get(token) ?? this.#holdAtFirst(holder, now));
      }
      const change = this.#compare(view);
      if (change !== undefined && this.#exact) changes.push(change);
    }
    const gone = this.#gone();
    if (this.#exact) changes.push(...gone);
    this.#exact = true;
    return changes;
  }

  /** A look has failed: what the next one shows may be older than the one before. */
  missed(): void {
    this.#exact = false;
  }

  /** Since when a holder has its lock; undefined if the last look did not show it. */
  holdOf(holder: HolderView): HoldAge | undefined {
    const [token = ''] = tokensOf({ holders: [holder] });
    return this.#holds.get(token);
  }

  /** How long the holder that has the lock longest has had it, as far as is known, in ms; 0 if it has none. */
  ageOf({ holders }: LockView, now: number): number {
    const ages = holders.map((holder) => now - (this.holdOf(holder)?.since ?? now));
    return Math.max(0, ...ages);
  }

  /** How often the lock was seen with an owner that it did not have before. */
  changesOf(name: string): number {
    return this.#seen.get(name)?.changes ?? 0;
  }

  #holdAtFirst({ askedAt }: HolderView, now: number): HoldAge {
    if (this.#exact) return { since: now, began: 'at' };
    if (askedAt === null) return { since: now, began: 'or earlier' };
    // The clock of its machine may be ahead.
    return { since: Math.min(askedAt.getTime(), now), began: 'or later' };
  }

  #compare(view: LockView): Change | undefined {
    const { name, holders } = view;
    const before = this.#seen.get(name);
    const tokens = tokensOf(view);
    const held = before !== undefined && before.holders.length > 0;
    const isNew = tokens.some((token) => before?.tokens.includes(token) !== true);
    const changes = (before?.changes ?? 0) + Number(isNew && before !== undefined);
    // A lock that is free keeps its last tokens: a holder that gets it back is no other holder.
    const last = tokens.length === 0 ? (before?.tokens ?? []) : tokens;
    this.#seen.set(name, { tokens: last, holders, changes, look: this.#look });
    const from = before?.holders ?? [];
    if (isNew && isDone(view)) return { name, kind: 'done', from, to: holders };
    if (isNew) return { name, kind: held ? 'moved' : 'acquired', from, to: holders };
    return held && tokens.length === 0 ? { name, kind: 'freed', from, to: [] } : undefined;
  }

  /** The locks that were held at the last look and that this one does not show at all. */
  #gone(): Change[] {
    const changes: Change[] = [];
    for (const [name, seen] of this.#seen) {
      if (seen.look === this.#look) continue;
      if (seen.holders.length > 0) {
        changes.push({ name, kind: 'freed', from: seen.holders, to: [] });
        this.#seen.set(name, { ...seen, holders: [] });
      }
      if (this.#look - seen.look > FORGOTTEN_AFTER) this.#seen.delete(name);
    }
    return changes;
  }
}
