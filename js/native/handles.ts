/** The leases of a manager, and whether the rest of the process still refers to their locks. */

/** The handle of a lease, which its caller has: an object, not a function, since there may be very many. */
export interface LockHandle {
  /** The number of the lease. */
  readonly lease: number;
  /** The place of the lease in `LockHandles`, which alone sets it. */
  place: number;
  /** When the hold began, by the clock of `LockHandles`. */
  readonly since: number;
  /** Whether it is held for as long as its process lives, so that its age tells nothing. */
  readonly lasts: boolean;
  /** Takes note of the loss, and returns a function that tells listeners of it. */
  lose(reason: number): () => void;
  /** A stand-in for the same lease, so that this handle can be collected. None if its collection proves nothing. */
  standIn(): LockHandle | undefined;
  /** Takes note that the handle for which it stands in was collected, and returns a function that reports it. */
  abandon(): () => void;
}

/** The timer of the process: the fake one that a test puts in its place may have no `unref`. */
const { setTimeout } = globalThis;

/** Younger holds are not checked: most locks are released by then. In ms. */
const YOUNG_MS = 1_000;
/** Where several leases are looked for within this time, they are looked for by an index. In ms. */
const INDEX_KEPT_MS = 1_000;
/** At most so many handles wait for one collection of garbage: each takes a few hundred bytes meanwhile. */
const WEAK_MAX = 1_000;

/**
 * The leases of one manager with their handles. It refers to a handle as long as the lease lasts: a lock that its
 * caller forgets stays held, and its loss is still reported.
 *
 * Only a collection of garbage shows that a caller has forgotten a lock. So this class refers to some handles weakly, a
 * thousand at a time, while a stand-in takes the place of each. The stand-in of a handle that was collected stays.
 *
 * Each lease has a place in an array. A `Map` that changes with every lock leaves a trail of tables, each of which keeps
 * the next one and its locks from being collected: that cost a tenth of the CPU of an acquire and its release.
 */
export class LockHandles {
  /** By place; none where a place is free. */
  readonly #handles: (LockHandle | undefined)[] = [];
  readonly #free: number[] = [];
  /** The handles whose stand-in is in `#handles`, by place. */
  readonly #weak = new Map<number, WeakRef<LockHandle>>();
  /** The places of leases, while some are looked for by their number. Those that ended meanwhile are still in it. */
  #places: Map<number, number> | undefined;
  /** Whether one was looked for a moment ago. */
  #isSought = false;
  /** Refers to nothing once garbage was collected. */
  #collection: WeakRef<object> | undefined;
  /** The place from which the next handles are weakened. */
  #next = 0;
  #abandoned = 0;

  get size(): number {
    return this.#handles.length - this.#free.length;
  }

  /** How many handles were collected while their lock was held, since the beginning. */
  get abandoned(): number {
    return this.#abandoned;
  }

  /** When the oldest hold began, of those that are to end before their process does. */
  get oldest(): number | undefined {
    let oldest: number | undefined;
    for (const handle of this.#handles) {
      if (handle?.lasts === false) oldest = Math.min(oldest ?? handle.since, handle.since);
    }
    return oldest;
  }

  /** The handle of `lease`, or its stand-in. */
  find(lease: number): LockHandle | undefined {
    const handle = this.#handles[this.#placeOf(lease)];
    return handle?.lease === lease ? this.#original(handle) : undefined;
  }

  /** All handles, or their stand-ins. */
  all(): LockHandle[] {
    const handles = this.#handles.filter((handle) => handle !== undefined);
    return handles.map((handle) => this.#original(handle));
  }

  add(handle: LockHandle): void {
    const place = this.#free.pop() ?? this.#handles.length;
    handle.place = place;
    this.#handles[place] = handle;
    this.#places?.set(handle.lease, place);
  }

  /** Refers to `handle` again: its stand-in lacks what has changed since. */
  refresh(handle: LockHandle): void {
    if (this.#has(handle) && this.#weak.delete(handle.place)) this.#handles[handle.place] = handle;
  }

  /** Ends a hold. Answers whether it had not ended before. */
  delete(handle: LockHandle): boolean {
    if (!this.#has(handle)) return false;
    const { place } = handle;
    if (this.#weak.size > 0) this.#weak.delete(place);
    this.#handles[place] = undefined;
    this.#free.push(place);
    return true;
  }

  /** Whether the lease of `handle` has its place: another has it later. */
  #has({ lease, place }: LockHandle): boolean {
    return this.#handles[place]?.lease === lease;
  }

  #original(handle: LockHandle): LockHandle {
    return this.#weak.get(handle.place)?.deref() ?? handle;
  }

  /**
   * The place that a lease has, or had; -1 if none. To look through a hundred thousand places takes a tenth of the time of an
   * index, so a lone loss needs none. Where a server has lost all its locks, the losses come in many turns of the event loop.
   */
  #placeOf(lease: number): number {
    if (!this.#isSought) {
      this.#isSought = true;
      const forget = () => {
        this.#isSought = false;
        this.#places = undefined;
      };
      setTimeout(forget, INDEX_KEPT_MS).unref();
      return this.#handles.findIndex((handle) => handle?.lease === lease);
    }
    this.#places ??= this.#index();
    return this.#places.get(lease) ?? -1;
  }

  #index(): Map<number, number> {
    const places = new Map<number, number>();
    this.#handles.forEach((handle, place) => {
      if (handle !== undefined) places.set(handle.lease, place);
    });
    return places;
  }

  /** Finds handles that were collected, and returns functions that report them. */
  findAbandoned(now: number): (() => void)[] {
    const collected = this.#collection?.deref() === undefined;
    const abandoned = collected ? this.#restore() : [];
    if (collected) this.#collection = new WeakRef({});
    this.#weaken(now - YOUNG_MS);
    return abandoned;
  }

  /** Refers to all weak handles again; those that were collected are abandoned. */
  #restore(): (() => void)[] {
    const abandoned: (() => void)[] = [];
    for (const [place, reference] of this.#weak) {
      const handle = reference.deref();
      if (handle === undefined) abandoned.push((this.#handles[place] as LockHandle).abandon());
      else this.#handles[place] = handle;
    }
    this.#weak.clear();
    this.#abandoned += abandoned.length;
    return abandoned;
  }

  /** Puts stand-ins in the place of the next handles that began before `end`. */
  #weaken(end: number): void {
    while (this.#weak.size < WEAK_MAX) {
      const place = this.#next;
      if (place >= this.#handles.length) {
        this.#next = 0;
        return;
      }
      this.#next += 1;
      const handle = this.#handles[place];
      if (handle === undefined || handle.since > end || this.#weak.has(place)) continue;
      const standIn = handle.standIn();
      if (standIn === undefined) continue;
      standIn.place = place;
      this.#weak.set(place, new WeakRef(handle));
      this.#handles[place] = standIn;
    }
  }
}
