/** Passes the permits of a semaphore from one object of this process to the next without the server. */

import { onAbort } from '../../base/abort.js';
import type { HeldLock } from '../../lock/held-lock.js';
import { DRIFT_FACTOR } from '../redlock/settings.js';
import type { Share } from './options.js';

/** As often a permit passes, before the server gives it to the process that waits longest. */
const PASSES_MAX = 15;
/** A permit passes for this part of its lease. */
const PASSES_WITHIN = 1 / 2;
/** A permit passes if the server has confirmed it within this time, in ms, or within this part of its lease. */
const CONFIRMED_WITHIN_MS = 1_000;
const CONFIRMED_WITHIN = 1 / 16;
/** Those that nobody uses are looked for once there are so many. */
const SWEPT_MIN = 1_000;
/** Node takes a longer time of a timer for none. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** How a wait ends: with permits of another object, or with leave to ask the server, or with its time. */
type Turn = 'passed' | 'ask' | 'late';

/** Makes an object the holder of the permits of another one. False if it must ask the server. */
type Take = (lock: HeldLock, passes: number) => boolean;

/** An object that waits. */
interface Waiter {
  readonly take: Take;
  end(turn: Turn): void;
  fail(reason: unknown): void;
}

/** Permits that were given back in this turn of the event loop. */
interface Left {
  readonly lock: HeldLock;
  readonly passes: number;
  /** Ends the release. */
  resolve(released?: Promise<unknown>): void;
}

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
  /** The objects that ask the server. */
  #asking = 0;
  /** The objects that have permits. */
  #holding = 0;
  /** Those that wait. None have waited so far for most locks. */
  #waiting: Set<Waiter> | undefined;
  /** Kept to the end of the turn, for an object that comes until then. */
  #left: Left[] = NOTHING_LEFT;
  /** How many of those that ask are left of those that asked when `#overtaken` was 0. */
  #early = 0;
  /** How often permits have passed since then. */
  #overtaken = 0;

  private constructor({ limit, permits }: Share, ttl: number) {
    this.#limit = limit ?? 1;
    this.#permits = permits ?? 1;
    this.#ttl = ttl;
  }

  /**
   * Those that an object shares with the others of a connection; none while these want other ones. `ended` tells the end of the
   * connection. `name`: what the caller has named them, since V8 knows the hash of a text that it has seen before.
   */
  static of(ended: AbortSignal, name: string, share: Share, ttl: number): Permits | undefined {
    const place = places.get(ended) ?? placeUntil(ended);
    const known = place.get(name);
    if (known !== undefined) {
      if (known.#suits(share, ttl)) return known;
      if (known.isUsed) return undefined;
    }
    const made = new Permits(share, ttl);
    place.set(name, made);
    return made;
  }

  #suits({ limit, permits = 1 }: Share, ttl: number): boolean {
    return this.#limit === limit && this.#permits === permits && this.#ttl === ttl;
  }

  /** Whether an object has permits, asks for them or waits. */
  get isUsed(): boolean {
    return this.#holding + this.#asking + (this.#waiting?.size ?? 0) > 0;
  }

  /** Whether no further object may ask the server now. */
  get isFull(): boolean {
    return (this.#holding + this.#asking + 1) * this.#permits > this.#limit;
  }

  /** Whether objects wait here, or have waited before. Then permits pass, and only then. */
  get isWanted(): boolean {
    return this.#waiting !== undefined;
  }

  /** Lets an object ask the server. `answered` ends that. */
  ask(): void {
    this.#asking += 1;
  }

  /** The server has given an object its permits, until `free` or `giveBack`, or it has not. */
  answered(isGranted: boolean): void {
    this.#asking -= 1;
    if (this.#early > 0) this.#early -= 1;
    if (this.#early === 0) {
      this.#early = this.#asking;
      this.#overtaken = 0;
    }
    if (isGranted) this.#holding += 1;
    else this.#goOn();
  }

  /** An object has no permits any more. */
  free(): void {
    this.#holding -= 1;
    this.#goOn();
  }

  /** There may be room for one that waits. */
  #goOn(): void {
    const next = this.#first();
    if (next !== undefined && !this.isFull) {
      this.ask();
      next.end('ask');
    }
    this.#endIfUnused();
  }

  /**
   * Waits for the permits of another object, which count for this one from then on, or to ask the server, as after `ask`,
   * for `wait` ms at most.
   *
   * @throws the reason of a signal, or of the end of the connection.
   */
  wait(wait: number, signal: AbortSignal | undefined, take: Take): Promise<Turn> {
    return new Promise((resolve, reject) => {
      const waiting = this.#waiting ?? new Set();
      this.#waiting = waiting;
      const end = () => {
        waiting.delete(waiter);
        clearTimeout(timer);
        forget?.();
      };
      const waiter: Waiter = {
        take,
        end(turn) {
          end();
          resolve(turn);
        },
        fail: (reason) => {
          end();
          reject(reason);
          this.#endIfUnused();
        },
      };
      waiting.add(waiter);
      const timer = setTimeout(
        () => {
          waiter.end('late');
          this.#endIfUnused();
        },
        Math.min(wait, TIMER_MS_MAX),
      );
      const forget = signal && onAbort(signal, () => waiter.fail(signal.reason));
    });
  }

  /** The connection has ended. */
  fail(reason: unknown): void {
    for (const waiter of this.#waiting ?? []) waiter.fail(reason);
  }

  /**
   * Gets the permits of an object that has passed them on so often. They pass to the first that waits, or to one that comes in
   * this turn of the event loop, or else the server gets them. Answers the end of their release, if there is one.
   */
  giveBack(lock: HeldLock, passes: number): Promise<unknown> | undefined {
    if (!this.#mayPass(lock, passes)) return this.#release(lock);
    const next = this.#first();
    if (next === undefined) return this.#keep(lock, passes);
    if (!next.take(lock, passes + 1)) return this.#release(lock);
    this.#overtaken += 1;
    next.end('passed');
    return undefined;
  }

  #keep(lock: HeldLock, passes: number): Promise<unknown> {
    return new Promise((resolve) => {
      if (this.#left.length === 0) {
        this.#left = [];
        process.nextTick(() => this.#releaseLeft());
      }
      this.#left.push({ lock, passes, resolve });
    });
  }

  /** Takes permits that were given back in this turn. False if there are none. */
  takeLeft(take: Take): boolean {
    const [left] = this.#left;
    if (left === undefined || !this.#mayPass(left.lock, left.passes)) return false;
    if (!take(left.lock, left.passes + 1)) return false;
    this.#left.shift();
    this.#overtaken += 1;
    left.resolve();
    return true;
  }

  #releaseLeft(): void {
    const all = this.#left;
    this.#left = NOTHING_LEFT;
    for (const { lock, resolve } of all) resolve(this.#release(lock));
  }

  /** Another process may get them, also if objects wait here. */
  #release(lock: HeldLock): Promise<unknown> {
    const released = lock.releaseToAll();
    // The release is sent first: the next object that asks finds room at the server.
    this.free();
    return released;
  }

  #mayPass(lock: HeldLock, passes: number): boolean {
    const ttl = this.#ttl;
    const within = Math.min(CONFIRMED_WITHIN_MS, ttl * CONFIRMED_WITHIN);
    const sure = Math.floor(ttl * (1 - DRIFT_FACTOR) - within) - 2;
    if (passes >= PASSES_MAX || this.#hasOvertaken()) return false;
    return lock.remaining >= Math.max(1, sure) && lock.age <= ttl * PASSES_WITHIN;
  }

  /** Whether those that ask the server have been overtaken as often as a process may overtake another. */
  #hasOvertaken(): boolean {
    return this.#asking > 0 && this.#overtaken >= PASSES_MAX * Math.max(1, this.#holding);
  }

  #first(): Waiter | undefined {
    if (this.#waiting === undefined) return undefined;
    const [first] = this.#waiting;
    return first;
  }

  /** The next objects begin anew. */
  #endIfUnused(): void {
    if (this.isUsed) return;
    this.#waiting = undefined;
    this.#early = 0;
    this.#overtaken = 0;
  }
}

const NOTHING_LEFT: Left[] = [];

/** The permits of a connection, by name. Those that nobody uses are kept for the next object: most services have few keys. */
class Place {
  readonly #all = new Map<string, Permits>();
  #sweptAt = SWEPT_MIN;

  get(name: string): Permits | undefined {
    return this.#all.get(name);
  }

  set(name: string, permits: Permits): void {
    this.#all.set(name, permits);
    if (this.#all.size >= this.#sweptAt) this.#sweep(permits);
  }

  #sweep(added: Permits): void {
    for (const [name, permits] of this.#all) {
      if (!permits.isUsed && permits !== added) this.#all.delete(name);
    }
    this.#sweptAt = Math.max(SWEPT_MIN, 2 * this.#all.size);
  }

  fail(reason: unknown): void {
    for (const permits of this.#all.values()) permits.fail(reason);
  }
}

const places = new WeakMap<AbortSignal, Place>();

function placeUntil(ended: AbortSignal): Place {
  const place = new Place();
  places.set(ended, place);
  onAbort(ended, () => place.fail(ended.reason));
  return place;
}
