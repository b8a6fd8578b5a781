/** The mark of a slot that is done: a key that is written under the lock of the job, and left to expire. */

import type { Taker } from '../acquire/taker.js';
import { isUnreachable, LockLostError, LockTimeoutError } from '../base/errors.js';
import { markOf } from '../base/names.js';
import { type DoneMark, isForeign, readMark, writeMark } from '../base/tokens.js';
import { HeldLock } from '../lock/held-lock.js';
import type { AcquireRequest } from '../lock/request.js';
import { TTL_MS_MIN } from '../lock/times.js';
import type { OnceRequest } from './options.js';
import { ALL_PLANNED, type Slot } from './planned-times.js';

/** A run that has the lock of its job. @internal */
export interface Run {
  readonly lock: HeldLock;
  readonly slot: Slot;
  readonly once: OnceRequest;
}

/** A slot as its mark shows it: it is done, `open` for a body, or another lock has the name of the mark. @internal */
export type Finding =
  | { readonly is: 'done'; readonly value?: unknown }
  | { readonly is: 'open'; readonly missed: readonly string[] }
  | { readonly is: 'taken' };

/** How far a planned time may be ahead of the server's clock; one that is further was marked before the clock was set back. */
const AHEAD_MS_MAX = 120_000;
/** Stands for the values of holders that share the name of the mark: none is a mark. */
const SHARED = 'shared';
/** How long a body that has ended tries to have its slot marked: a failover takes some seconds. */
const FAILOVER_MS = 10_000;

/**
 * The mark of a run's slot. Only who has the lock of the job writes it, and each write names the value that it replaces. A value
 * that is no mark was left by a run that ended before its own write, and is replaced like none.
 *
 * @internal
 */
export class Mark {
  readonly #taker: Taker;
  readonly #run: Run;
  readonly #name: string;
  /** The value in the key, as far as this run knows. */
  #value: string | undefined;
  /** The key was free: this run has it until it writes the mark. */
  #taken: HeldLock | undefined;

  constructor(taker: Taker, run: Run) {
    this.#taker = taker;
    this.#run = run;
    const { name, planned } = run.slot;
    this.#name = markOf(run.lock.name, planned === undefined ? name : ALL_PLANNED);
  }

  /** Reads the mark, until `deadline` also from a server that cannot be reached. */
  async find(deadline: number): Promise<Finding> {
    this.#value = undefined;
    for (;;) {
      try {
        return this.#finding(await this.#read());
      } catch (error) {
        const isPatient = this.#run.lock.held && this.#taker.now() < deadline;
        if (!isPatient || !isUnreachable(error)) throw error;
      }
    }
  }

  /**
   * Marks the slot before its body, under the lock. If the server does not confirm it no body runs, so it is taken back: nobody
   * has read it, unless the lock is lost.
   *
   * @returns Whether it did; not if the mark has changed since it was read.
   */
  async before(): Promise<boolean> {
    const { lock, slot } = this.#run;
    const found = await this.#read();
    const wasMarked = readMark(found) !== undefined;
    const value = this.#done();
    let held: HeldLock | undefined;
    try {
      // The core frees what has no answer. It could not restore the mark before.
      held = await this.#write(value, wasMarked);
      await held.expireIn(slot.keep);
    } catch (error) {
      if (held === undefined && error instanceof LockLostError) return false;
      if (!wasMarked) await held?.release().catch(() => {});
      else if (lock.held) {
        this.#value = value;
        await this.#write(found, true)
          .then((earlier) => earlier.expireIn(slot.keep))
          .catch(() => {});
      }
      throw error;
    }
    // Others may have read the mark of a run whose lock is lost, so it stays.
    lock.assertHeld();
    return true;
  }

  /** Marks the slot after its body, with the result to keep; for a while also on a server that cannot be reached. */
  async after(json: string | undefined): Promise<void> {
    const value = this.#done(json);
    const { lock, slot, once } = this.#run;
    const deadline = this.#taker.now() + FAILOVER_MS;
    for (;;) {
      try {
        const found = await this.#read();
        if (found !== value && !this.#isKept(found, json)) {
          const held = await this.#write(value, true);
          // The server has it all: this only forgets the lease here.
          await held.expireIn(slot.keep).catch(() => {});
        }
        return;
      } catch (error) {
        if (!lock.held || this.#taker.now() >= deadline) throw error;
        // Without retry a mark that is gone was released: the slot is to run again.
        if (once.retry && error instanceof LockLostError) this.#value = undefined;
        else if (!isUnreachable(error)) throw error;
      }
    }
  }

  /** Gives the key back, unless it is a mark by now. */
  async release(): Promise<void> {
    await this.#taken?.release().catch(() => {});
  }

  /** The value in the key. One that is free is taken, since that is the same request. */
  async #read(): Promise<string> {
    while (this.#value === undefined) {
      const found = await this.#taker.takeOrRead(this.#name, this.#request());
      if (found instanceof HeldLock) [this.#taken, this.#value] = [found, found.token];
      else if (found !== '') this.#value = found ?? SHARED;
    }
    return this.#value;
  }

  /** Replaces the value that was read. */
  async #write(value: string, leaveToExpire: boolean): Promise<HeldLock> {
    const found = { name: this.#name, token: await this.#read(), mode: 'exclusive' } as const;
    const terms = { ttl: this.#run.slot.keep, renew: false, leaveToExpire, isMade: true };
    this.#taken?.disown();
    this.#taken = undefined;
    const held = await this.#taker.adoptAs(found, value, terms);
    this.#value = value;
    return held;
  }

  #done(json?: string): string {
    const { lock, slot } = this.#run;
    // A token that was read is never handed off: no other run writes the same value.
    return writeMark(lock.token, { time: slot.planned && slot.name, json });
  }

  #finding(value: string): Finding {
    if (isForeign(value)) return { is: 'taken' };
    const { once, slot } = this.#run;
    const mark = readMark(value);
    if (mark === undefined) return { is: 'open', missed: [] };
    const { planned } = slot;
    const last = planned && Date.parse(mark.time ?? '');
    if (planned === undefined || last === planned.time) {
      return { is: 'done', ...(once.keepResult ? resultIn(mark) : {}) };
    }
    if (last === undefined || !this.#isPast(last)) return { is: 'open', missed: [] };
    if (last > planned.time) return { is: 'done' };
    return { is: 'open', missed: planned.since(last) };
  }

  #isPast(time: number): boolean {
    const now = this.#taker.serverTime(this.#run.lock.name);
    return now === undefined || time <= now + AHEAD_MS_MAX;
  }

  /** Whether what another run has written meanwhile says all that this one would. */
  #isKept(value: string, json: string | undefined): boolean {
    const { once, slot } = this.#run;
    if (!once.retry) return false;
    const finding = this.#finding(value);
    if (finding.is === 'taken') {
      // Not a loss, after which the mark is read anew: other code may keep its value for ever.
      throw new LockTimeoutError(`other code has the lock "${this.#name}"`, this.#name, {
        waited: 0,
      });
    }
    const isOfThis = slot.planned === undefined || readMark(value)?.time === slot.name;
    return finding.is === 'done' && (json === undefined || !isOfThis);
  }

  /** It is neither renewed nor needed for long: who finds it with the lock of the job, replaces it. */
  #request(): AcquireRequest {
    const { once, slot } = this.#run;
    const { ttl, label, stallTimeout, origin, signal, awaitRelease } = once.request;
    return {
      ...this.#taker.defaultRequest,
      ttl: Math.max(TTL_MS_MIN, Math.min(slot.keep, ttl)),
      label,
      stallTimeout,
      origin,
      signal,
      renew: false,
      maxHold: Number.POSITIVE_INFINITY,
      wait: 0,
      leaveToExpire: true,
      linger: 0,
      awaitRelease,
    };
  }
}

/** The result that a mark keeps, if there is one. */
function resultIn({ json }: DoneMark): { value?: unknown } {
  return json === undefined ? {} : { value: JSON.parse(json) };
}
