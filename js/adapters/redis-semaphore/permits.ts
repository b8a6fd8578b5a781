/** Passes the permits of a semaphore from one object of this process to the next without the server. */

import { onAbort } from '../../base/abort.js';
import type { HeldLock } from '../../lock/held-lock.js';
import { DRIFT_FACTOR } from '../redlock/settings.js';
import type { Share } from './options.js';

/** As often a permit passes, before the server gives it to the process that waits longest. */
const PASSES_MAX = 15;
/** A permit passes if the server has confirmed it within this time, in ms, or within this part of its lease. */
const CONFIRMED_WITHIN_MS = 1_000;
const CONFIRMED_WITHIN = 1 / 16;
/** Node takes a longer time of a timer for none. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** A permit of another object; or none, and the caller is to ask the server. */
type Turn = HeldLock | undefined;

/** Ends a wait. */
type Settle = (turn: Turn) => void;

/**
 * The permits of one key that the objects of a connection want, all as many and for as long. An object asks the server only
 * while those that have permits or ask for them leave room for it; the others wait here, in the order of their calls.
 *
 * @internal
 */
export class Permits {
  readonly #limit: number;
  readonly #permits: number;
  /** The lease, in ms. */
  readonly #ttl: number;
  readonly #place: Place;
  readonly #key: string;
  /** Those that wait; most locks have none. */
  #waiting: Set<Settle> | undefined;
  /** The objects that have permits, or ask the server for them. */
  #used = 0;

  private constructor(place: Place, key: string, { limit, permits }: Share, ttl: number) {
    this.#place = place;
    this.#key = key;
    this.#limit = limit ?? 1;
    this.#permits = permits ?? 1;
    this.#ttl = ttl;
  }

  /**
   * Those that an object shares with the others of a connection; none if these want as many others or for as long. `ended`
   * tells the end of the connection.
   */
  static of(ended: AbortSignal, key: string, share: Share, ttl: number): Permits | undefined {
    let place = places.get(ended);
    if (place === undefined) {
      place = { ended, all: new Map() };
      places.set(ended, place);
    }
    const known = place.all.get(key);
    if (known !== undefined) return known.#suits(share, ttl) ? known : undefined;
    const made = new Permits(place, key, share, ttl);
    place.all.set(key, made);
    return made;
  }

  #suits({ limit, permits = 1 }: Share, ttl: number): boolean {
    return this.#limit === limit && this.#permits === permits && this.#ttl === ttl;
  }

  /** Whether no further object may ask the server now. */
  get isFull(): boolean {
    return (this.#used + 1) * this.#permits > this.#limit;
  }

  /** Lets an object ask the server. `free` ends that, or the hold that it leads to. */
  take(): void {
    this.#used += 1;
  }

  /** An object has no permits any more, or has got none. */
  free(): void {
    this.#used -= 1;
    const next = this.#first;
    if (next !== undefined && !this.isFull) {
      this.take();
      next(undefined);
    }
    this.#forgetIfUnused();
  }

  /**
   * Waits for the permits of another object, which count for this one from then on; or, with `undefined`, to ask the server, as
   * after `take`. Answers `null` when `wait` ms are over.
   *
   * @throws the reason of a signal.
   */
  wait(wait: number, signal: AbortSignal | undefined): Promise<Turn | null> {
    return new Promise((resolve, reject) => {
      const { ended } = this.#place;
      ended.throwIfAborted();
      const waiting = this.#waiting ?? new Set();
      this.#waiting = waiting;
      const forgets: (() => void)[] = [];
      const end = () => {
        waiting.delete(settle);
        for (const forget of forgets) forget();
      };
      const settle = (turn: Turn) => {
        end();
        resolve(turn);
      };
      waiting.add(settle);
      if (wait <= TIMER_MS_MAX) {
        const timer = setTimeout(() => {
          end();
          resolve(null);
          this.#forgetIfUnused();
        }, wait);
        forgets.push(() => clearTimeout(timer));
      }
      for (const each of [signal, ended]) {
        if (each === undefined) continue;
        const stop = () => {
          end();
          reject(each.reason);
          this.#forgetIfUnused();
        };
        forgets.push(onAbort(each, stop));
      }
    });
  }

  /** Passes the permits of an object that gives them back to the next one here. False if the server must get them. */
  pass(lock: HeldLock): boolean {
    const next = this.#first;
    if (next === undefined) return false;
    const passed = passes.get(lock) ?? 0;
    if (passed === PASSES_MAX || !this.#isSure(lock)) return false;
    passes.set(lock, passed + 1);
    next(lock);
    return true;
  }

  #isSure(lock: HeldLock): boolean {
    const ttl = this.#ttl;
    const within = Math.min(CONFIRMED_WITHIN_MS, ttl * CONFIRMED_WITHIN);
    const { remaining } = lock;
    return remaining > 0 && remaining >= Math.floor(ttl * (1 - DRIFT_FACTOR) - within) - 2;
  }

  get #first(): Settle | undefined {
    if (this.#waiting === undefined) return undefined;
    const [first] = this.#waiting;
    return first;
  }

  #forgetIfUnused(): void {
    if (this.#used + (this.#waiting?.size ?? 0) === 0) this.#place.all.delete(this.#key);
  }
}

/** The permits of a connection, by key, on the terms of the objects that came first. */
interface Place {
  readonly ended: AbortSignal;
  readonly all: Map<string, Permits>;
}

const places = new WeakMap<AbortSignal, Place>();

/** How often a lock has passed. */
const passes = new WeakMap<HeldLock, number>();
