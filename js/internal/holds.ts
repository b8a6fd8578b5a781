/** The leases of a manager, and whether the rest of the process still refers to their locks. */

/** The holder of a lease: an object, not a function, since there may be very many. */
export interface Holder {
  /** When the hold began, by the clock of `Holds`. */
  readonly since: number;
  /** Takes note of the loss, and returns a function that tells listeners of it. */
  lose(reason: number): () => void;
  /** A stand-in for the same lease, so that this holder can be collected. None if its collection proves nothing. */
  standIn(): Holder | undefined;
  /** Takes note that the holder for which it stands in was collected, and returns a function that reports it. */
  abandon(): () => void;
}

/** Younger holds are not checked: most locks are released by then. In ms. */
const YOUNG_MS = 1_000;
/** At most so many holders wait for one collection of garbage: each takes a few hundred bytes meanwhile. */
const WEAK_MAX = 1_000;

/**
 * The leases of one manager with their holders. It refers to a holder as long as the lease lasts: a lock that its
 * caller forgets stays held, and its loss is still reported.
 *
 * Only a collection of garbage shows that a caller has forgotten a lock. So this class refers to the oldest holders
 * weakly, a thousand at a time, while a stand-in takes the place of each. The stand-in of a holder that was
 * collected stays.
 */
export class Holds {
  /** In the order in which they began. */
  readonly #holders = new Map<number, Holder>();
  /** The holders whose stand-in is in `#holders`. */
  readonly #weak = new Map<number, WeakRef<Holder>>();
  /** Refers to nothing once garbage was collected. */
  #collection: WeakRef<object> | undefined;
  /** The position in `#holders` from which the next ones are weakened. */
  #next: Iterator<[number, Holder]> | undefined;
  #abandoned = 0;

  get size(): number {
    return this.#holders.size;
  }

  /** How many holders were collected while their lock was held, since the beginning. */
  get abandoned(): number {
    return this.#abandoned;
  }

  /** When the oldest hold began. */
  get oldest(): number | undefined {
    for (const { since } of this.#holders.values()) return since;
    return undefined;
  }

  /** When the hold of `lease` began. */
  since(lease: number): number | undefined {
    return this.#holders.get(lease)?.since;
  }

  leases(): number[] {
    return [...this.#holders.keys()];
  }

  add(lease: number, holder: Holder): void {
    this.#holders.set(lease, holder);
  }

  /** Refers to `holder` again: its stand-in lacks what has changed since. */
  refresh(lease: number, holder: Holder): void {
    if (this.#weak.delete(lease)) this.#holders.set(lease, holder);
  }

  /** Ends a hold. */
  delete(lease: number): Holder | undefined {
    const holder = this.#weak.get(lease)?.deref() ?? this.#holders.get(lease);
    if (this.#weak.size > 0) this.#weak.delete(lease);
    this.#holders.delete(lease);
    return holder;
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
    for (const [lease, reference] of this.#weak) {
      const holder = reference.deref();
      if (holder === undefined) abandoned.push((this.#holders.get(lease) as Holder).abandon());
      else this.#holders.set(lease, holder);
    }
    this.#weak.clear();
    this.#abandoned += abandoned.length;
    return abandoned;
  }

  /** Puts stand-ins in the place of the next holders that began before `end`. */
  #weaken(end: number): void {
    this.#next ??= this.#holders.entries();
    while (this.#weak.size < WEAK_MAX) {
      const { value, done } = this.#next.next();
      if (done || value[1].since > end) {
        this.#next = undefined;
        return;
      }
      const [lease, holder] = value;
      const standIn = this.#weak.has(lease) ? undefined : holder.standIn();
      if (standIn === undefined) continue;
      this.#weak.set(lease, new WeakRef(holder));
      this.#holders.set(lease, standIn);
    }
  }
}
