// The locks as the server last told them, and the clock by which their times are read.

import { Processes } from './chain.mjs';
import { heldSince, isFull, isWaitedFor, kindOf, waitedSince } from './kinds.mjs';
import { History } from './shared.mjs';

export class Locks {
  #all = new Map();
  #history = new History();
  /** Made when they are asked for, and anew after each look. */
  #processes;
  /** How far the clock of this browser is ahead of the server's, in ms. */
  #skew = 0;
  /** When the page was paused, by this browser's clock; undefined while it follows. */
  #paused;
  /** Of a quorum, how many servers it has and how many are a majority; null if the locks are on none. */
  quorum = null;

  /** The time of the server; it stands still while the page is paused. */
  now() {
    return (this.#paused ?? Date.now()) - this.#skew;
  }

  pause(on) {
    this.#paused = on ? Date.now() : undefined;
  }

  get(name) {
    return this.#all.get(name);
  }

  get size() {
    return this.#all.size;
  }

  all() {
    return this.#all.values();
  }

  get processes() {
    this.#processes ??= new Processes(this.#all.values());
    return this.#processes;
  }

  get history() {
    return this.#history;
  }

  /** Everything anew. */
  replace({ now, rows, happened, gaps, since, quorum }) {
    this.#skew = Date.now() - now;
    this.#all = new Map();
    this.quorum = quorum;
    this.#take(rows, now);
    this.#history = new History();
    this.#history.since = since;
    this.#history.add(happened, now);
    for (const gap of gaps) this.#history.addGap(gap);
  }

  /** What has changed since the last look. */
  change({ now, rows, gone, leases, happened }) {
    this.#skew = Date.now() - now;
    for (const name of gone) this.#all.delete(name);
    this.#take(rows, now);
    for (const [name, ends] of leases) {
      this.#all.get(name)?.holders.forEach((holder, i) => {
        holder.ends = ends[i];
        noteLease(holder, now);
      });
    }
    this.#history.add(happened, now);
  }

  #take(rows, now) {
    this.#processes = undefined;
    for (const row of rows) {
      for (const holder of row.holders) noteLease(holder, now);
      this.#all.set(row.name, row);
    }
  }

  /** The figures of all locks together. */
  summary() {
    const found = { held: 0, waiting: 0, semaphores: 0, full: 0, kinds: {}, oldest: null };
    found.waited = [];
    for (const lock of this.#all.values()) {
      const kind = kindOf(lock);
      found.kinds[kind] = (found.kinds[kind] ?? 0) + 1;
      found.held += Number(Number.isFinite(heldSince(lock)));
      found.semaphores += Number(kind === 'semaphore');
      found.full += Number(isFull(lock));
      if (isWaitedFor(lock)) {
        found.waiting += lock.waiters.length;
        found.waited.push(lock);
      }
      // A leader leads for as long as its process lives, so its age says nothing.
      if (kind !== 'leader' && (found.oldest === null || heldSince(lock) < heldSince(found.oldest)))
        found.oldest = Number.isFinite(heldSince(lock)) ? lock : found.oldest;
    }
    found.waited.sort((a, b) => waitedSince(a) - waitedSince(b));
    return found;
  }
}

/** Keeps how long the lease was when it was last lengthened, for its bar. */
function noteLease(holder, now) {
  if (holder.ends !== null) holder.lease = Math.max(1, holder.ends - now);
}
