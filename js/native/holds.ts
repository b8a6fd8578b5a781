/** The leases of a manager, and whether the rest of the process still refers to their locks. */

/** The holder of a lease: an object, not a function, since there may be very many. */
export interface Holder {
  /** The number of the lease. */
  readonly lease: number;
  /** The place of the lease in `Holds`, which alone sets it. */
  place: number;
  /** When the hold began, by the clock of `Holds`. */
  readonly since: number;
  /** Whether it is held for as long as its process lives, so that its age tells nothing. */
  readonly lasts: boolean;
  /** Takes note of the loss, and returns a function that tells listeners of it. */
  lose(reason: number): () => void;
  /** A stand-in for the same lease, so that this holder can be collected. None if its collection proves nothing. */
  standIn(): Holder | undefined;
  /** Takes note that the holder for which it stands in was collected, and returns a function that reports it. */
  abandon(): () => void;
}

/** That of the process: the fake one that a test puts in its place may never call. */
const { setImmediate } = globalThis;

/** Younger holds are not checked: most locks are released by then. In ms. */
const YOUNG_MS = 1_000;
/** At most so many holders wait for one collection of garbage: each takes a few hundred bytes meanwhile. */
const WEAK_MAX = 1_000;

/**
 * The leases of one manager with their holders. It refers to a holder as long as the lease lasts: a lock that its
 * caller forgets stays held, and its loss is still reported.
 *
 * Only a collection of garbage shows that a caller has forgotten a lock. So this class refers to some holders weakly, a
 * thousand at a time, while a stand-in takes the place of each. The stand-in of a holder that was collected stays.
 *
 * Each lease has a place in an array. A `Map` that changes with every lock leaves a trail of tables, each of which keeps
 * the next one and its locks from being collected: that cost a tenth of the CPU of an acquire and its release.
 */
export class Holds {
  /** By place; none where a place is free. */
  readonly #holders: (Holder | undefined)[] = [];
  readonly #free: number[] = [];
  /** The holders whose stand-in is in `#holders`, by place. */
  readonly #weak = new Map<number, WeakRef<Holder>>();
  /** The places of leases, while some are looked for by their number. Those that ended meanwhile are still in it. */
  #places: Map<number, number> | undefined;
  /** Refers to nothing once garbage was collected. */
  #collection: WeakRef<object> | undefined;
  /** The place from which the next holders are weakened. */
  #next = 0;
  #abandoned = 0;

  get size(): number {
    return this.#holders.length - this.#free.length;
  }

  /** How many holders were collected while their lock was held, since the beginning. */
  get abandoned(): number {
    return this.#abandoned;
  }

  /** When the oldest hold began, of those that are to end before their process does. */
  get oldest(): number | undefined {
    let oldest: number | undefined;
    for (const holder of this.#holders) {
      if (holder?.lasts === false) oldest = Math.min(oldest ?? holder.since, holder.since);
    }
    return oldest;
  }

  /** The holder of `lease`, or its stand-in. */
  find(lease: number): Holder | undefined {
    const place = this.#index().get(lease);
    const holder = place === undefined ? undefined : this.#holders[place];
    return holder?.lease === lease ? this.#original(holder) : undefined;
  }

  /** All holders, or their stand-ins. */
  all(): Holder[] {
    const holders = this.#holders.filter((holder) => holder !== undefined);
    return holders.map((holder) => this.#original(holder));
  }

  add(holder: Holder): void {
    const place = this.#free.pop() ?? this.#holders.length;
    holder.place = place;
    this.#holders[place] = holder;
    this.#places?.set(holder.lease, place);
  }

  /** Refers to `holder` again: its stand-in lacks what has changed since. */
  refresh(holder: Holder): void {
    if (this.#has(holder) && this.#weak.delete(holder.place)) this.#holders[holder.place] = holder;
  }

  /** Ends a hold. Answers whether it had not ended before. */
  delete(holder: Holder): boolean {
    if (!this.#has(holder)) return false;
    const { place } = holder;
    if (this.#weak.size > 0) this.#weak.delete(place);
    this.#holders[place] = undefined;
    this.#free.push(place);
    return true;
  }

  /** Whether the lease of `holder` has its place: another has it later. */
  #has({ lease, place }: Holder): boolean {
    return this.#holders[place]?.lease === lease;
  }

  #original(holder: Holder): Holder {
    return this.#weak.get(holder.place)?.deref() ?? holder;
  }

  /** The places by lease. Kept to the end of this turn of the event loop, since all locks may be lost in one. */
  #index(): Map<number, number> {
    if (this.#places === undefined) {
      this.#places = new Map(this.all().map(({ lease, place }) => [lease, place]));
      setImmediate(() => {
        this.#places = undefined;
      });
    }
    return this.#places;
  }

  /** Finds holders that were collected, and returns functions that report them. */
  findAbandoned(now: number): (() => void)[] {
    const collected = this.#collection?.deref() === undefined;
    const abandoned = collected ? this.#restore() : [];
    if (collected) this.#collection = new WeakRef({});
    this.#weaken(now - YOUNG_MS);
    return abandoned;
  }

  /** Refers to all weak holders again; those that were collected are abandoned. */
  #restore(): (() => void)[] {
    const abandoned: (() => void)[] = [];
    for (const [place, reference] of this.#weak) {
      const holder = reference.deref();
      if (holder === undefined) abandoned.push((this.#holders[place] as Holder).abandon());
      else this.#holders[place] = holder;
    }
    this.#weak.clear();
    this.#abandoned += abandoned.length;
    return abandoned;
  }

  /** Puts stand-ins in the place of the next holders that began before `end`. */
  #weaken(end: number): void {
    while (this.#weak.size < WEAK_MAX) {
      const place = this.#next;
      if (place >= this.#holders.length) {
        this.#next = 0;
        return;
      }
      this.#next += 1;
      const holder = this.#holders[place];
      if (holder === undefined || holder.since > end || this.#weak.has(place)) continue;
      const standIn = holder.standIn();
      if (standIn === undefined) continue;
      standIn.place = place;
      this.#weak.set(place, new WeakRef(holder));
      this.#holders[place] = standIn;
    }
  }
}
