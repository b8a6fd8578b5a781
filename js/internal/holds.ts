/** What a manager holds, and whether the rest of the process still refers to it. */

/** The holder of a lease: an object, not a function, for there may be very many. */
export interface Holder {
  /** Since when, by the clock of `Holds`. */
  readonly since: number;
  /** Takes note of the loss, and returns what tells listeners of it. */
  lose(reason: number): () => void;
  /** A stand-in for the same lease, so that this holder can be collected. None if that would tell nothing. */
  twin(): Holder | undefined;
  /** Takes note that the holder for which it stands in was collected, and returns what tells of that. */
  abandon(): () => void;
}

/** A hold younger than this is not worth a look: most locks are released by then. In ms. */
const YOUNG_MS = 1_000;
/** So many holders are looked at by one collection of garbage: each takes a few hundred bytes meanwhile. */
const LOOSE_MAX = 1_000;

/**
 * The leases of one manager with their holders. It refers to a holder as long as the lease lasts: what a caller
 * forgets is held on, and its loss is told.
 *
 * Whether its caller has forgotten it only a collection of garbage can tell. So the oldest holders are let loose
 * by turns: a twin stands in for each, with a weak reference to it. The twin of one that was collected stays.
 */
export class Holds {
  /** In the order in which they began. */
  readonly #holders = new Map<number, Holder>();
  /** Those whose twin is among the holders. */
  readonly #loose = new Map<number, WeakRef<Holder>>();
  /** Refers to nothing once garbage was collected. */
  #collection: WeakRef<object> | undefined;
  /** Where the next ones are taken from. */
  #turn: Iterator<[number, Holder]> | undefined;
  #abandoned = 0;

  get size(): number {
    return this.#holders.size;
  }

  /** How many nobody referred to any more, since the beginning. */
  get abandoned(): number {
    return this.#abandoned;
  }

  /** Since when the oldest one is held. */
  get oldest(): number | undefined {
    for (const { since } of this.#holders.values()) return since;
    return undefined;
  }

  leases(): number[] {
    return [...this.#holders.keys()];
  }

  add(lease: number, holder: Holder): void {
    this.#holders.set(lease, holder);
  }

  /** Refers to `holder` again: its twin lacks what has changed since. */
  refresh(lease: number, holder: Holder): void {
    if (this.#loose.delete(lease)) this.#holders.set(lease, holder);
  }

  /** Ends a hold. */
  delete(lease: number): Holder | undefined {
    const holder = this.#loose.get(lease)?.deref() ?? this.#holders.get(lease);
    this.#loose.delete(lease);
    this.#holders.delete(lease);
    return holder;
  }

  /** Looks which holders nobody refers to any more, and returns what tells of them. */
  look(now: number): (() => void)[] {
    const collected = this.#collection?.deref() === undefined;
    const abandoned = collected ? this.#settle() : [];
    if (collected) this.#collection = new WeakRef({});
    this.#loosen(now - YOUNG_MS);
    return abandoned;
  }

  /** Refers to all of them again; those that were collected are abandoned. */
  #settle(): (() => void)[] {
    const abandoned: (() => void)[] = [];
    for (const [lease, reference] of this.#loose) {
      const holder = reference.deref();
      if (holder === undefined) abandoned.push((this.#holders.get(lease) as Holder).abandon());
      else this.#holders.set(lease, holder);
    }
    this.#loose.clear();
    this.#abandoned += abandoned.length;
    return abandoned;
  }

  /** Puts twins in the place of the next holders that began before `end`. */
  #loosen(end: number): void {
    this.#turn ??= this.#holders.entries();
    while (this.#loose.size < LOOSE_MAX) {
      const { value, done } = this.#turn.next();
      if (done || value[1].since > end) {
        this.#turn = undefined;
        return;
      }
      const [lease, holder] = value;
      const twin = this.#loose.has(lease) ? undefined : holder.twin();
      if (twin === undefined) continue;
      this.#loose.set(lease, new WeakRef(holder));
      this.#holders.set(lease, twin);
    }
  }
}
