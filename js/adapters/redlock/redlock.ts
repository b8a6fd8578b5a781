/** `Redlock` of node-redlock 5, on holdfast. */

import { EventEmitter } from 'node:events';
import { noticing } from '../../base/abort.js';
import {
  argumentError,
  isUnreachable,
  LockClosedError,
  LockLostError,
  LockTimeoutError,
} from '../../base/errors.js';
import { defaultLabel, writeLabel } from '../../base/label.js';
import { writeToken } from '../../base/tokens.js';
import { HeldLock } from '../../lock/held-lock.js';
import type { SharedHandle } from '../../lock/lock.js';
import { LockSet } from '../../lock/lock-set.js';
import { native } from '../../native/addon.js';
import { callListeners } from '../../native/calls.js';
import { tokenIdOf } from '../../native/records.js';
import { extendByValue, joinTokens, type Place, releaseByValue } from './by-value.js';
import { Connection, type Open } from './connection.js';
import { ExecutionError, locked, NO_QUORUM, ResourceLockedError } from './errors.js';
import {
  attemptsMax,
  attemptsWithin,
  checkDuration,
  checkResources,
  expirationOf,
  nextDelay,
  patience,
  type Settings,
  withDefaults,
} from './settings.js';
import { releasedOf, statsOfError } from './tally.js';
import type { Client, ExecutionResult, ExecutionStats } from './votes.js';

/** Aborted when the lock of `using` is lost; `error` then has the cause. */
export type RedlockAbortSignal = AbortSignal & { error?: Error };

/** How a lock is held. */
interface LockTerms {
  readonly ttl: number;
  readonly renew: boolean;
}

/** The result of an acquire. */
interface Got {
  readonly held: Taken;
  /** For how long it is held, in ms. */
  readonly remaining: number;
}

/** One attempt of an operation. */
interface Attempt {
  /** Only the first waits for a server that is not up yet. */
  readonly isFirst: boolean;
  /** Tells that its wait in the queue begins. */
  readonly began: () => void;
}

/** A lock of the manager on one resource, or on several as one. */
type Taken = HeldLock | LockSet;

/** The label of the connection, in each token. */
const LABEL = writeLabel(defaultLabel());

/** Set by the class, whose private parts they use: a map would cost as much as the rest of a lock. */
let heldOf: (lock: BareLock) => Taken | undefined;
let setHeld: (lock: BareLock, held: Taken, client: string) => void;

/**
 * A lock without a property `value` of its own, which costs as much as all the rest: for those who give their callers another
 * object.
 */
export class BareLock {
  /** The `Redlock` that releases and extends the lock. */
  readonly redlock: Redlock;
  /** The names, as the caller gave them. */
  readonly resources: string[];
  /** The votes of each client on the acquire or the extension. */
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
  /** The time until which the lock is held, by `Date.now()`; 0 after its release or extension. */
  expiration: number;
  #value: string;
  /** The lock of the manager; none for a lock of another process, of which only the value is known. */
  #held: Taken | undefined;
  /** The name of the manager that holds it. */
  #client = '';

  constructor(
    redlock: Redlock,
    resources: string[],
    value: string,
    attempts: ReadonlyArray<Promise<ExecutionStats>>,
    expiration: number,
  ) {
    this.redlock = redlock;
    this.resources = resources;
    this.#value = value;
    this.attempts = attempts;
    this.expiration = expiration;
  }

  /** The owner token, as it is stored in Redis; the tokens of all resources, if there are several. */
  get value(): string {
    // Not before a caller reads it: a token that others may know cannot be that of the next holder in this process.
    if (this.#value === '' && this.#held !== undefined) {
      this.#value = tokenOf(this.#held, this.#client);
    }
    return this.#value;
  }

  set value(value: string) {
    if (value !== this.value) this.#held = undefined;
    this.#value = value;
  }

  /** Releases the lock: `redlock.release(lock)`. */
  release(): Promise<ExecutionResult> {
    return this.redlock.release(this);
  }

  /** Extends the lock to `duration` ms from now: `redlock.extend(lock, duration)`. */
  extend(duration: number): Promise<Lock> {
    return this.redlock.extend(this, duration);
  }

  static {
    // Some services make plain objects of locks.
    heldOf = (lock) => (#held in lock ? lock.#held : undefined);
    setHeld = (lock, held, client) => {
      lock.#held = held;
      lock.#client = client;
    };
  }
}

/**
 * A property of each lock, so that a copy `{ ...lock }` has it. The original's is a plain one, which code that copies or
 * changes locks sets.
 */
const VALUE = {
  ...Object.getOwnPropertyDescriptor(BareLock.prototype, 'value'),
  enumerable: true,
};

/**
 * Some resources that are locked until `expiration`. `acquire` and `extend` return it; it can also be made by
 * hand, to release or extend the lock of another process.
 *
 * @example
 * ```ts
 * const { resources, value, expiration } = message                  // what another process has acquired
 * await new Lock(redlock, resources, value, [], expiration).release()
 * ```
 */
export class Lock extends BareLock {
  constructor(
    redlock: Redlock,
    resources: string[],
    value: string,
    attempts: ReadonlyArray<Promise<ExecutionStats>>,
    expiration: number,
  ) {
    super(redlock, resources, value, attempts, expiration);
    Object.defineProperty(this, 'value', VALUE);
  }
}

/** The listener of every `Redlock`. */
function ignore(): void {}

/** A list of attempts has no more entries: who gives up after a million retries must not pay for each. */
const ATTEMPTS_LISTED_MAX = 100_000;

/** Among the settings of an acquire: the lock is renewed, for `using`. A method that replaces `acquire` passes it on. */
const RENEWED = Symbol('renewed');

interface Renewed {
  readonly [RENEWED]: true;
}

/** As `acquire`, for those who have a lock object of their own. @internal */
export let acquireBare: (
  redlock: Redlock,
  resources: string[],
  duration: number,
  settings: Partial<Settings> | undefined,
) => Promise<BareLock>;

/** The part of its duration that a lock must have left: one that was handed off may have less, and is extended. */
const WHOLE = 0.9;

/**
 * Locks that exclude those of node-redlock 4 and 5, with the methods, settings, errors and messages of node-redlock 5.
 * It reads the addresses of the clients, and opens a connection of its own on first use, which closes with the clients.
 * `docs/redlock.md` lists the differences.
 *
 * @example
 * ```ts
 * import Redlock from 'holdfast/redlock'
 *
 * const redlock = new Redlock([new Redis()])
 * await redlock.using(['item:42'], 5_000, async (signal) => {
 *   await reserve(42)
 *   if (signal.aborted) throw signal.error
 *   await charge(42)
 * })
 * ```
 */
export class Redlock extends EventEmitter {
  /** The service's own clients. Only the locks of other processes are released and extended by them. */
  readonly clients: Set<Client>;
  /** The default settings of operations. */
  readonly settings: Settings;
  readonly #connection: Connection;
  /** The votes on every attempt that found so many resources locked: an error for each would cost more than the lock. */
  #refused: Map<number, Promise<ExecutionStats>> | undefined;
  #ended = false;
  readonly #onDisconnect = (error: Error) => this.#emitError(error);

  /**
   * @param clients - One client of ioredis or node-redis for one server, one Cluster or the master of
   *   Sentinels; three to fifteen for a quorum of independent servers.
   * @param settings - See `Settings` for defaults and units.
   * @param scripts - Not supported.
   *   A client that does not reveal its address, or is connected in a way that holdfast does not support, is refused by the
   *   first lock: the `cause` of its error says which client, and what to do.
   */
  constructor(clients: Iterable<Client>, settings: Partial<Settings> = {}, scripts: object = {}) {
    super();
    // An `error` event without a listener would end the service when a server cannot be reached.
    this.on('error', ignore);
    this.clients = new Set(clients);
    if (this.clients.size === 0) {
      throw new Error('Redlock must be instantiated with at least one redis client.');
    }
    if (Object.values(scripts).some((script) => script !== undefined)) {
      const message =
        'redlock: the third argument, scripts, is not supported: holdfast depends on its own scripts; leave it out';
      throw argumentError('ERR_INVALID_ARG_VALUE', message);
    }
    this.settings = withDefaults(settings);
    const all = [...this.clients];
    this.#connection = Connection.of(all, this.settings.db);
    this.#connection.listen(this.#onDisconnect);
  }

  /**
   * Ends the clients, and the connection beside them as soon as no routine of `using` runs any more. Other locks
   * that are held stay until they expire. New operations are refused.
   */
  async quit(): Promise<void> {
    this.#ended = true;
    const clients = Array.from(this.clients, (client) => client.quit());
    await Promise.all([this.#connection.close(), ...clients]);
  }

  /**
   * Locks all of `resources`, or none of them, for `duration`. Waits in the queue while another client has
   * one, for as long as the retries of the settings would take.
   *
   * @param resources - Names of 1 to 1024 bytes, which are the keys in Redis.
   * @param duration - In whole ms, 1 to 9e15; less than 50 counts as 50, with one warning. The lock is not renewed.
   * @throws ExecutionError if it failed; its `cause` says why.
   * @throws Error, TypeError, RangeError if an argument is invalid; nothing is sent.
   *
   * @example
   * ```ts
   * const lock = await redlock.acquire(['item:42'], 5_000)
   * ```
   */
  acquire(resources: string[], duration: number, settings?: Partial<Settings>): Promise<Lock> {
    return this.#acquire(Lock, resources, duration, settings);
  }

  static {
    acquireBare = (redlock, ...terms) => redlock.#acquire(BareLock, ...terms);
  }

  async #acquire<Of extends BareLock>(
    Made: new (...parts: ConstructorParameters<typeof BareLock>) => Of,
    resources: string[],
    duration: number,
    settings: Partial<Settings> | undefined,
  ): Promise<Of> {
    const lease = checkDuration(duration);
    const names = checkResources(resources);
    const chosen = this.#chosen(settings);
    const terms = { ttl: lease, renew: settings !== undefined && RENEWED in settings };
    const take = (wait: number | null, attempt: Attempt) => this.#take(names, terms, wait, attempt);
    const { result, attempts } = await this.#attempt(names.length, chosen, take);
    const expiration = expirationOf(result.remaining, lease, chosen);
    const lock = new Made(this, resources, '', attempts, expiration);
    setHeld(lock, result.held, this.#clientId());
    return lock;
  }

  /**
   * Releases a lock. If the lock is not held any more, `attempts` and the event `error` say so; the promise does
   * not reject. There are no retries: holdfast repeats a release that does not reach the server.
   *
   * @throws ExecutionError if the servers could not be reached, or refused.
   *
   * @example
   * ```ts
   * const { attempts } = await redlock.release(lock)
   * const released = (await attempts[0])?.votesFor.size === redlock.clients.size
   * ```
   */
  async release(lock: Lock, _settings?: Partial<Settings>): Promise<ExecutionResult> {
    lock.expiration = 0;
    const held = heldOf(lock);
    try {
      if (this.#ended) throw ended();
      if (held !== undefined && (await held.release()))
        return { attempts: [this.#connection.agreed] };
    } catch (error) {
      throw this.#failed(countOf(lock), [], error);
    }
    return this.#releaseLost(lock, held);
  }

  /**
   * Releases a lock that this process does not hold. One that has expired here may have been extended elsewhere by its value;
   * but the value of one that was released here may be that of the next holder.
   */
  async #releaseLost(lock: Lock, held: Taken | undefined): Promise<ExecutionResult> {
    const count = countOf(lock);
    try {
      const stats =
        held !== undefined && isReleased(held)
          ? releasedOf(this.clients, 0, count)
          : await releaseByValue(lock, this.#place(), async () => (await this.#open()).manager);
      return { attempts: [this.#tell(stats)] };
    } catch (error) {
      throw this.#failed(count, [], error);
    }
  }

  /**
   * Makes a lock last at least `duration` from now.
   *
   * @param existing - Counts as expired afterwards: the returned lock replaces it.
   * @param duration - In whole ms, as of `acquire`. A lock is never shortened.
   * @throws ExecutionError if the lock has expired, is not held any more, or no server answers.
   *
   * @example
   * ```ts
   * lock = await redlock.extend(lock, 5_000)
   * ```
   */
  async extend(existing: Lock, duration: number, settings?: Partial<Settings>): Promise<Lock> {
    const lease = checkDuration(duration);
    if (existing.expiration < Date.now()) {
      throw new ExecutionError('Cannot extend an already-expired lock.', []);
    }
    const chosen = this.#chosen(settings);
    const held = heldOf(existing);
    const { resources } = existing;
    const count = countOf(existing);
    const extend = async () => {
      if (this.#ended) throw ended();
      if (!held?.held) return extendByValue(existing, this.#place(), lease);
      await held.extend(lease);
      return held.remaining;
    };
    const { result, attempts } = await this.#attempt(count, chosen, extend);
    existing.expiration = 0;
    const expiration = expirationOf(result, lease, chosen);
    const isHere = held?.held === true;
    const lock = new Lock(this, resources, isHere ? '' : existing.value, attempts, expiration);
    if (isHere) setHeld(lock, held, this.#clientId());
    return lock;
  }

  /**
   * Runs `routine` while holding the lock, which a native thread extends until the routine has ended: a
   * blocked event loop does not lose it.
   *
   * @param routine - Gets a signal that is aborted when the lock is lost; its `error` says why.
   * @returns The result of the routine.
   * @throws The error of the routine, before any other error.
   * @throws ExecutionError if the lock was lost while the routine ran, or the server refuses to release it;
   *   `result` is the routine's result.
   * @throws as `acquire` does.
   *
   * @example
   * ```ts
   * const left = await redlock.using(['item:42'], 5_000, { retryCount: 5 }, async (signal) => sellOne(42))
   * ```
   */
  async using<T>(
    resources: string[],
    duration: number,
    settings: Partial<Settings>,
    routine?: (signal: RedlockAbortSignal) => Promise<T>,
  ): Promise<T>;
  async using<T>(
    resources: string[],
    duration: number,
    routine: (signal: RedlockAbortSignal) => Promise<T>,
  ): Promise<T>;
  async using<T>(resources: string[], duration: number, ...rest: readonly unknown[]): Promise<T> {
    checkDuration(duration);
    const given = typeof rest[0] === 'function' ? undefined : (rest[0] as Partial<Settings>);
    const routine = rest[1] ?? rest[0];
    const settings = this.#chosen(given);
    if (typeof routine !== 'function') throw new Error('INVARIANT: routine is not a function.');
    if (settings.automaticExtensionThreshold > duration - 100) {
      throw new Error(
        'A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.',
      );
    }
    // By its own methods, which services wrap and tests spy on.
    const chosen: Partial<Settings> & Renewed = { ...given, [RENEWED]: true };
    const lock = await this.acquire(resources, duration, chosen);
    const run = routine as (signal: RedlockAbortSignal) => Promise<T>;
    return this.#connection.during(() => this.#runUnder(lock, run));
  }

  async #runUnder<T>(lock: Lock, routine: (signal: RedlockAbortSignal) => Promise<T>): Promise<T> {
    const held = heldOf(lock);
    const failed = (cause: unknown) => this.#failed(countOf(lock), [], cause);
    const lossNow = () => (held === undefined || held.held ? undefined : failed(lossOf(held)));
    // A service may have replaced `release`, by what answers no promise. After `quit` it refuses, and the routine goes on.
    const release = async () => (this.#ended ? held?.release() : this.release(lock));
    let failure: ExecutionError | undefined = lossNow();
    if (failure !== undefined) throw failure;
    const controller = new AbortController();
    const lost = held?.signal;
    const signal: RedlockAbortSignal = noticing(controller.signal, () => void lost?.aborted);
    const lose = () => {
      failure = failed(lost?.reason);
      signal.error = failure;
      controller.abort();
    };
    lost?.addEventListener('abort', lose, { once: true });
    let result: T;
    try {
      result = await routine(signal);
    } catch (error) {
      await release().catch(() => {});
      throw error;
    }
    failure ??= lossNow();
    try {
      // The failure has told of a loss. `release` would report it once more.
      await (failure === undefined ? release() : held?.release());
    } catch (error) {
      const known = error instanceof ExecutionError ? error : failed(error);
      // The routine has done its work, and the core repeats the release.
      if (!isUnreachable(known.cause)) failure ??= known;
    }
    if (failure === undefined) return result;
    throw new ExecutionError(failure.message, failure.attempts, { cause: failure.cause, result });
  }

  /** The settings of an operation. */
  #chosen(given: Partial<Settings> | undefined): Settings {
    return given ? withDefaults(given, this.settings) : this.settings;
  }

  /** The name of the manager. */
  #clientId(): string {
    return this.#connection.current?.manager.clientId ?? '';
  }

  /** Where the service's own clients have the locks. */
  #place(): Place {
    return { clients: this.clients, db: this.settings.db };
  }

  /** `key`: one that the service may read, to wait for a server that is not up yet. */
  async #open(key?: string): Promise<Open> {
    if (this.#ended) throw ended();
    return key === undefined ? this.#connection.open() : this.#connection.openWhenUp(key);
  }

  /** Takes all of `names`, or none; without renewal for `ttl` from now and no longer. `null` does not wait. */
  async #take(
    names: readonly string[],
    { ttl, renew }: LockTerms,
    wait: number | null,
    { isFirst, began }: Attempt,
  ): Promise<Got> {
    if (this.#ended) throw ended();
    const [name] = names as [string];
    const { current } = this.#connection;
    const open = current ?? (await this.#open(isFirst ? name : undefined));
    const { manager, requests } = open;
    if (current === undefined) began();
    const single = names.length === 1;
    const terms = { ttl, renew, leaveToExpire: !renew };
    let held: Taken | null = null;
    try {
      held = await (single
        ? manager.acquirePrepared(name, requests.for({ ttl, renew, wait }))
        : wait === null
          ? manager.tryAcquire(names, terms)
          : manager.acquire(names, { ...terms, wait, signal: open.ended }));
    } finally {
      if (this.#ended || this.#connection.current !== open) await this.#giveBack(open, held);
    }
    if (held === null) throw locked(0, names.length);
    const { remaining } = held;
    const isWhole = held instanceof HeldLock && remaining >= ttl * WHOLE;
    return renew || isWhole ? { held, remaining } : this.#complete(held, ttl);
  }

  /** Gives back what came after the end of the clients, which is the error of the caller. */
  async #giveBack(open: Open, held: Taken | null): Promise<void> {
    await held?.release().catch(() => {});
    if (this.#ended) throw ended();
    this.#connection.checkOpen(open);
  }

  /** Makes what was taken one lock, for `duration` from now. */
  async #complete(taken: Taken, duration: number): Promise<Got> {
    const held = taken instanceof LockSet ? await this.#unite(taken, duration) : taken;
    try {
      if (held.remaining < duration * WHOLE) await held.extend(duration);
      return { held, remaining: held.remaining };
    } catch (error) {
      await held.release().catch(() => {});
      throw error;
    }
  }

  /** Gives the locks of a set one value. On a quorum each keeps its own, since its servers cannot change them as one. */
  async #unite(set: LockSet, duration: number): Promise<LockSet> {
    if (this.clients.size > 1) return set;
    const { manager } = await this.#open();
    const value = newValue();
    const adopt = async (lock: SharedHandle) => {
      const terms = { ttl: duration, renew: false, isMade: true };
      const adopted = await manager.adoptAs(lock.toJSON(), value, terms);
      // Only now: without an answer it is to be released.
      await adopted.stopRenewing();
      return adopted;
    };
    const adopted = await Promise.allSettled(set.locks.map(adopt));
    const locks = adopted.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
    const failed = adopted.find((each) => each.status === 'rejected');
    if (failed === undefined) return new LockSet(locks);
    await Promise.allSettled([set, ...locks].map((each) => each.release()));
    throw failed.reason;
  }

  /**
   * Tries an operation, and retries what a retry may help, as often as the settings say. A wait in the queue counts as
   * the attempts that would have been made meanwhile.
   */
  async #attempt<T>(
    resources: number,
    settings: Settings,
    operation: (wait: number | null, attempt: Attempt) => Promise<T>,
  ): Promise<{ result: T; attempts: Promise<ExecutionStats>[] }> {
    const attempts: Promise<ExecutionStats>[] = [];
    const most = attemptsMax(settings);
    const waiting = patience(settings);
    const first = performance.now();
    const refused = (count: number) => {
      const listed = Math.min(count, ATTEMPTS_LISTED_MAX);
      if (attempts.length >= listed) return;
      const stats = this.#refusedOf(resources);
      while (attempts.length < listed) attempts.push(stats);
    };
    for (;;) {
      const isFirst = attempts.length === 0;
      let start = isFirst ? first : performance.now();
      const began = () => {
        start = performance.now();
      };
      try {
        const attempt = { isFirst, began };
        const left = isFirst || waiting === null ? waiting : waiting - (start - first);
        const result = await operation(left && Math.max(0, Math.ceil(left)), attempt);
        const waited = waiting === null ? 0 : attemptsWithin(start, settings);
        refused(Math.min(most - 1, attempts.length + waited));
        attempts.push(this.#connection.agreed);
        return { result, attempts };
      } catch (error) {
        if (error instanceof LockTimeoutError) refused(most - 1);
        if (isFinal(error, settings) || attempts.length + 1 >= most) {
          throw this.#failed(resources, attempts, error);
        }
        attempts.push(this.#tell(statsOfError(this.clients, error as Error, resources)));
      }
      await new Promise((resolve) => setTimeout(resolve, nextDelay(settings)));
    }
  }

  #refusedOf(resources: number): Promise<ExecutionStats> {
    this.#refused ??= new Map();
    let stats = this.#refused.get(resources);
    if (stats === undefined) {
      stats = Promise.resolve(statsOfError(this.clients, locked(0, resources), resources));
      this.#refused.set(resources, stats);
    }
    return stats;
  }

  /** The error of an operation whose last attempt has failed. Throws an error about an argument as it is. */
  #failed(
    resources: number,
    attempts: readonly Promise<ExecutionStats>[],
    cause: unknown,
  ): ExecutionError {
    if (isMistake(cause)) throw cause;
    const last = this.#tell(statsOfError(this.clients, cause as Error, resources));
    return new ExecutionError(NO_QUORUM, [...attempts, last], { cause });
  }

  /** Emits each vote against as an event `error`. */
  #tell(stats: ExecutionStats): Promise<ExecutionStats> {
    for (const error of stats.votesAgainst.values()) this.#emitError(error);
    return Promise.resolve(stats);
  }

  /** A listener that throws changes no outcome, and keeps no other `Redlock` from being told. */
  #emitError(error: Error): void {
    callListeners(() => this.emit('error', error));
  }
}

function ended(): LockClosedError {
  return new LockClosedError('redlock: quit() was called; make a new Redlock');
}

/** A new token, with the name of no manager. */
function newValue(): string {
  return writeToken(native.Bridge.newClient(), 1, '');
}

/** The value of a lock in Redis; of several resources that of each, unless all have one. */
function tokenOf(held: Taken, client: string): string {
  // The token of one that was released is told no more, since it may be that of the next holder; here it only names the past.
  if (held instanceof HeldLock)
    return held.token || writeToken(client, tokenIdOf(held.lease), '', LABEL);
  const tokens = [held.toJSON()].flat().map(({ token }) => token);
  return joinTokens([...new Set(tokens)]);
}

/** How many resources a lock has; one that is named twice counts once. */
function countOf({ resources }: Lock): number {
  return resources.length === 1 ? 1 : new Set(resources).size;
}

/** Why a lock is not held any more. */
function lossOf(held: Taken): unknown {
  try {
    held.assertHeld();
  } catch (error) {
    return error;
  }
  return held.signal.reason;
}

/** Whether a lock was released before its end. */
function isReleased(held: Taken): boolean {
  const loss = lossOf(held);
  return loss instanceof LockLostError && loss.reason === 'released';
}

/** Whether an error is about an argument, and not about a server or the connection. */
function isMistake(error: unknown): boolean {
  return error instanceof TypeError || error instanceof RangeError;
}

/** Whether a retry is useless: the time for retries is used up, or nothing can change. */
function isFinal(error: unknown, { besideOldCode }: Settings): boolean {
  return (
    isMistake(error) ||
    error instanceof LockClosedError ||
    error instanceof LockLostError ||
    error instanceof LockTimeoutError ||
    (error instanceof ResourceLockedError && !besideOldCode)
  );
}
