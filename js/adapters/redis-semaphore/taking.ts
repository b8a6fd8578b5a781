/** The ways to get a lock: to acquire it, or to take it over by its identifier. */

import { setTimeout as sleep } from 'node:timers/promises';
import { untilAborted, untilEither } from '../../base/abort.js';
import {
  isUnreachable,
  LockServerError,
  LockTimeoutError,
  LockLostError as Lost,
} from '../../base/errors.js';
import { isMock } from '../../connect/clients/read-clients.js';
import type { HeldLock } from '../../lock/held-lock.js';
import type { LockJson } from '../../lock/lock.js';
import type { Connection, Open } from '../redlock/connection.js';
import type { Client } from '../redlock/votes.js';
import type { Name } from './name.js';
import type { Checked, Share } from './options.js';
import { Permits } from './permits.js';
import type { Possession } from './possession.js';
import { type ServerLock, SharedHold } from './shared-hold.js';
import { type Place, shorten, ValueHold } from './value-hold.js';

/** The parts of an object that every way to get its lock uses. @internal */
export interface Means {
  readonly clients: readonly Client[];
  readonly connection: Connection;
  readonly options: Checked;
  /** How much of the lock is wanted. */
  readonly share: Share;
  readonly name: Name;
  /** Gets the lock. */
  readonly possession: Possession;
}

/** The terms that a subclass may change between two calls. @internal */
export interface Terms {
  readonly key: string;
  /** What the caller has named the lock, if the key is still made of that. */
  readonly name: string | undefined;
  /** Whether the manager renews the lock. */
  readonly renew: boolean;
}

/** A lock that may get another value. */
type Owned = Pick<LockJson, 'name' | 'token' | 'mode'>;

/** @internal */
export class Taking {
  readonly #means: Means;
  /** Why the last acquire or refresh has failed. */
  #cause: Error | undefined;

  constructor(means: Means) {
    this.#means = means;
  }

  get cause(): Error | undefined {
    return this.#cause;
  }

  /** The answer of an acquire or a refresh that has failed. */
  fail(cause: Error): false {
    this.#cause = cause;
    return false;
  }

  /** The manager. With a signal only the wait for it ends. */
  open(key: string, signal?: AbortSignal): Promise<Open> {
    const opened = this.#means.connection.openWhenUp(key);
    return signal === undefined ? opened : untilAborted(opened, signal);
  }

  /** Whether the lock was free, or became free in time. `spent`: how much of that time is over, in ms. */
  acquire(terms: Terms, spent: number, signal: AbortSignal | undefined): Promise<boolean> {
    if (this.#isQuorum()) return this.#acquireOfMajority(terms, signal);
    const permits = this.#isSemaphore() ? this.#permitsFor(terms) : undefined;
    if (permits?.isFull) return this.#waitHere(permits, terms, spent, signal);
    permits?.ask();
    return this.#ask(permits, terms, spent, signal);
  }

  /** As `acquire`, while other objects of this process have all permits, or ask the server for them. */
  async #waitHere(
    permits: Permits,
    terms: Terms,
    spent: number,
    signal: AbortSignal | undefined,
  ): Promise<boolean> {
    const { connection, name, options } = this.#means;
    const take = (lock: HeldLock, passes: number) => {
      // Under a name that others know by now the permits must be taken over.
      if (name.token !== undefined) return false;
      this.#begin(terms.key, lock, permits, passes);
      return true;
    };
    if (permits.takeLeft(take)) return true;
    let over = spent;
    if (options.wait === null) permits.ask();
    else {
      const began = performance.now();
      const open = connection.current;
      const turn = await permits.wait(this.#waitAfter(spent), signal, take);
      if (turn === 'passed') connection.checkOpen(open);
      if (turn !== 'ask') return turn === 'passed' || this.#failHeld();
      over += performance.now() - began;
    }
    return this.#ask(permits, terms, over, signal);
  }

  /** Asks the server, or the servers. */
  async #ask(
    permits: Permits | undefined,
    terms: Terms,
    spent: number,
    signal: AbortSignal | undefined,
  ): Promise<boolean> {
    const { connection, name } = this.#means;
    let open = connection.current;
    let lock: HeldLock | null = null;
    try {
      open ??= await this.open(terms.key, signal);
      const taken = await this.#request(open, terms, spent, signal);
      const isPlain = connection.current === open && name.token === undefined;
      lock = taken === null || isPlain ? taken : await this.#named(taken, terms, open);
    } catch (error) {
      if (open !== undefined) connection.checkOpen(open);
      if (error instanceof LockTimeoutError) return this.fail(error);
      throw this.#isSemaphore() ? refusalOf(error) : error;
    } finally {
      permits?.answered(lock !== null);
    }
    if (lock === null) return this.#failHeld();
    this.#begin(terms.key, lock, permits);
    return true;
  }

  #failHeld(): false {
    return this.fail(new Error('others hold it'));
  }

  /** Has the manager acquire the lock, in the way that the options ask for. */
  #request(
    { manager, ended, requests }: Open,
    { key, renew }: Terms,
    spent: number,
    signal: AbortSignal | undefined,
  ): Promise<HeldLock | null> {
    const { options, share } = this.#means;
    const { retries, lockTimeout: ttl } = options;
    const { limit, permits } = share;
    const polls = options.besideOldCode && !this.#isSemaphore();
    const wait = polls || options.wait === null ? null : this.#waitAfter(spent);
    const request = requests.for({ ttl, renew, wait, limit, permits });
    const take = () => manager.acquirePrepared(key, request);
    if (polls) return retry(retries, ended, signal, take);
    if (signal === undefined || wait === null) return take();
    return untilEither([signal, ended], (either) =>
      manager.acquirePrepared(key, { ...request, signal: either }),
    );
  }

  /** Those that the objects of this process share, if what this one gets may pass to others and is renewed. */
  #permitsFor({ name, renew }: Terms): Permits | undefined {
    const { connection, name: holder, options, share } = this.#means;
    const ended = connection.current?.ended;
    if (ended === undefined || name === undefined) return undefined;
    if (!renew || holder.token !== undefined) return undefined;
    return Permits.of(ended, name, share, options.lockTimeout);
  }

  /** How long to wait when `spent` of that time is over, in whole ms. */
  #waitAfter(spent: number): number {
    return Math.max(0, Math.ceil((this.#means.options.wait ?? 0) - spent));
  }

  /** Takes over the lock that was acquired under the identifier, also with redis-semaphore itself, or answers why not. */
  async takeOver(terms: Terms): Promise<Error | undefined> {
    const { key } = terms;
    const { name, options, possession } = this.#means;
    const identifier = name.tell(key, possession.hold);
    const place = this.#placeOf(key);
    if (this.#isQuorum()) {
      const lock = await ValueHold.takeOver(place, options);
      if (lock === undefined) return new Error('nobody holds it by this identifier');
      this.#begin(key, lock);
      return undefined;
    }
    const mode = this.#isSemaphore() ? 'shared' : 'exclusive';
    let failure: Error | undefined;
    for (const token of new Set([place.value, identifier])) {
      try {
        await this.#join({ name: key, token, mode }, place.value, terms);
        // The lease of a permit is not in the key.
        if (!this.#isSemaphore()) await shorten(place, options.lockTimeout);
        return undefined;
      } catch (error) {
        if (!(error instanceof Lost)) throw error;
        failure = error;
      }
    }
    return failure;
  }

  /** Asks the servers again while no majority can be reached, for as long as the caller waits. */
  async #acquireOfMajority(terms: Terms, signal: AbortSignal | undefined): Promise<boolean> {
    const { name, options } = this.#means;
    const { retries } = options;
    const began = performance.now();
    for (let attempts = 1; ; attempts++) {
      const spent = attempts === 1 ? 0 : performance.now() - began;
      try {
        if (name.token !== undefined) return await this.#setValue(terms, signal);
        return await this.#ask(undefined, terms, spent, signal);
      } catch (error) {
        if (!isUnreachable(error)) throw error;
        const isOver = attempts >= retries.limit || performance.now() - began >= retries.wait;
        // Without a majority redis-semaphore has not got the lock, whatever the reason.
        if (isOver) return this.fail(error as Error);
      }
      await sleep(retries.interval, undefined, { signal }).catch(() => {});
      signal?.throwIfAborted();
    }
  }

  /** Acquires the lock of several servers under the identifier, which others know. */
  async #setValue({ key }: Terms, signal: AbortSignal | undefined): Promise<boolean> {
    const lock = await ValueHold.acquire(this.#placeOf(key), this.#means.options, signal);
    if (lock === undefined) return this.#failHeld();
    this.#begin(key, lock);
    return true;
  }

  /** The lock under the identifier, if somebody may know that already. */
  async #named(lock: HeldLock, terms: Terms, open: Open): Promise<HeldLock> {
    const { connection, name } = this.#means;
    const { token } = name;
    let held = lock;
    try {
      connection.checkOpen(open);
      if (token === undefined || this.#isQuorum()) return held;
      held = await this.#adopt(lock.toJSON(), token, terms);
      connection.checkOpen(open);
      return held;
    } catch (error) {
      await held.release().catch(() => {});
      throw error;
    }
  }

  /** Gives a lock a value; one that is not renewed is left to expire from then on. */
  async #adopt(owner: Owned, value: string, { key, renew }: Terms): Promise<HeldLock> {
    const { manager } = await this.open(key);
    const ttl = this.#means.options.lockTimeout;
    const lock = await manager.adoptAs(owner, value, { ttl, renew });
    if (!renew) await lock.stopRenewing();
    return lock;
  }

  /** Holds a lock beside the objects of this process that hold it, if there are any. */
  async #join(owner: Owned, value: string, terms: Terms): Promise<void> {
    const { connection, possession } = this.#means;
    const shared = SharedHold.of(connection, terms.key, value);
    if (shared === undefined) {
      return this.#begin(terms.key, await this.#adopt(owner, value, terms));
    }
    const renew = terms.renew || shared.isRefreshed;
    await possession.join(shared, () => this.#adopt(owner, value, { ...terms, renew }));
  }

  #placeOf(key: string): Place {
    const { clients, name, possession } = this.#means;
    return { clients, key, value: name.tokenFor(key, possession.hold) };
  }

  #isSemaphore(): boolean {
    return this.#means.share.limit !== undefined;
  }

  #isQuorum(): boolean {
    const { clients } = this.#means;
    return clients.length > 1 && !clients.every(isMock);
  }

  /** `permits` count it, and have passed so often. */
  #begin(key: string, lock: ServerLock, permits?: Permits, passes = 0): void {
    const { connection, name, possession } = this.#means;
    possession.begin(connection, lock, permits, passes);
    name.show(key, possession.hold);
  }
}

/** The error for a semaphore whose key has permits of redis-semaphore: neither counts those of the other. */
function refusalOf(error: unknown): unknown {
  if (!(error instanceof LockServerError) || error.serverCode !== 'WRONGTYPE') return error;
  const advice =
    'if redis-semaphore has permits there, stop its instances before those of holdfast start, or give these another name and a part of the limit';
  const { message, serverCode, key, lock } = error;
  return new LockServerError(`${message}; ${advice}`, serverCode, key, lock);
}

/** Tries as redis-semaphore does: at an interval, until the time is over or the attempts are used up. */
async function retry<T>(
  { interval, wait, limit }: Checked['retries'],
  ended: AbortSignal,
  signal: AbortSignal | undefined,
  attempt: () => Promise<T | null>,
): Promise<T | null> {
  const end = performance.now() + wait;
  for (let attempts = 1; ; attempts++) {
    ended.throwIfAborted();
    const held = await attempt();
    if (held !== null) return held;
    if (attempts >= limit || performance.now() >= end) return null;
    await sleep(interval, undefined, { signal }).catch(() => {});
    signal?.throwIfAborted();
  }
}
