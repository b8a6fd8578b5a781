// How long each lock was held and waited for, look by look, while the page is open.

import { heldSince, waitedSince } from './kinds.mjs';

/** So many looks are kept. */
const LOOKS = 120;
/** Looks that follow each other faster add nothing that can be seen. */
const STEP_MS = 900;

export class Series {
  /** By the lock's name: the seconds of its oldest hold and of its longest wait at each of the last looks; NaN for none. */
  #byLock = new Map();
  #looks = 0;
  #last = 0;

  /** Takes note of a look at all locks. */
  note(locks, now) {
    if (now - this.#last < STEP_MS) return;
    this.#last = now;
    const index = this.#looks % LOOKS;
    this.#looks += 1;
    for (const own of this.#byLock.values()) {
      own.holds[index] = Number.NaN;
      own.waits[index] = Number.NaN;
    }
    for (const lock of locks) {
      const own = this.#ownOf(lock.name);
      const [held, waited] = [heldSince(lock), waitedSince(lock)];
      if (Number.isFinite(held)) own.holds[index] = (now - held) / 1_000;
      if (Number.isFinite(waited)) own.waits[index] = (now - waited) / 1_000;
      own.seen = this.#looks;
    }
    for (const [name, { seen }] of this.#byLock) {
      if (this.#looks - seen > LOOKS) this.#byLock.delete(name);
    }
  }

  holds(name) {
    return this.#inOrder(this.#byLock.get(name)?.holds);
  }

  waits(name) {
    return this.#inOrder(this.#byLock.get(name)?.waits);
  }

  #ownOf(name) {
    let own = this.#byLock.get(name);
    if (own === undefined) {
      own = {
        holds: new Float32Array(LOOKS).fill(Number.NaN),
        waits: new Float32Array(LOOKS).fill(Number.NaN),
        seen: 0,
      };
      this.#byLock.set(name, own);
    }
    return own;
  }

  /** The oldest first; none before the first look. */
  #inOrder(ring) {
    if (ring === undefined) return [];
    const first = Math.max(0, this.#looks - LOOKS);
    return Array.from({ length: this.#looks - first }, (_, i) => ring[(first + i) % LOOKS]);
  }
}
