import { EventEmitter } from 'node:events';
import { Acquisition } from '../acquire/acquisition.js';
import {
  checkAcquireOptions,
  checkAdoptOptions,
  checkForceReleaseOptions,
  checkLockJson,
  checkQueryOptions,
  checkReleaseOptions,
  checkRequestOptions,
  checkTryAcquireOptions,
  type LockDefaults,
  refuseHyphens,
} from '../acquire/check-options.js';
import { ForeignLease, type ForeignLock } from '../acquire/foreign.js';
import { adoptOfOwner, releaseOfOwner } from '../acquire/owned.js';
import { takeAll } from '../acquire/several.js';
import { adoptedShare, Taker } from '../acquire/taker.js';
import { checkWhole } from '../base/checks.js';
import {
  argumentError,
  LockConnectionError,
  LockError,
  type LockLostError,
} from '../base/errors.js';
import { checkJob, checkName, leaderLockOf, markOf } from '../base/names.js';
import { type Duration, milliseconds } from '../base/time.js';
import { Campaigns } from '../lead/campaigns.js';
import { lead } from '../lead/lead.js';
import { checkLeadOptions, type Leader, type LeadOptions, type Term } from '../lead/options.js';
import { tracing } from '../lock/diagnostics.js';
import { HeldLock } from '../lock/held-lock.js';
import type { Lock, LockJson } from '../lock/lock.js';
import { type LockFor, LockSet } from '../lock/lock-set.js';
import type {
  AcquireOptions,
  AdoptOptions,
  ForceReleaseOptions,
  QueryOptions,
  ReleaseOptions,
  RequestOptions,
  TryAcquireOptions,
} from '../lock/options.js';
import { originOf, withOrigin } from '../lock/origins.js';
import { type ErrorContext, loginError, toError } from '../lock/outcome.js';
import { gather, type LockSnapshot } from '../lock/query.js';
import { refuseOnQuorum } from '../lock/quorum.js';
import type { AcquireRequest } from '../lock/request.js';
import { callListeners } from '../native/calls.js';
import { NativeChannel } from '../native/channel.js';
import { CLOSED, NoticeCode } from '../native/records.js';
import { checkOnceOptions, type OnceOptions, type OnceResult } from '../once/options.js';
import { runOnce } from '../once/run.js';
import { NestedCall } from '../request/nested-call.js';
import { checkCallback, runUnder } from '../request/request.js';
import { Abandoned } from './abandoned.js';
import {
  isUnknownEvent,
  type LockManagerEvents,
  type LockWarning,
  type LockWarningCode,
  onListenerChange,
} from './events.js';
import { type LockStats, readStats } from './stats.js';
import {
  CAUSES,
  eventWarning,
  nestedWarning,
  unreleasedWarning,
  type Warning,
  warningOf,
} from './warnings.js';

/** The options of an acquire, checked. @internal */
export type PreparedRequest = AcquireRequest;

/** A hundred years: the core counts in µs, which JavaScript has to count as well. */
const ADVANCE_MS_MAX = 100 * 366 * 86_400_000;

/** The one of the process: the fake one that a test puts in its place may never call. */
const { setImmediate } = globalThis;

/**
 * Acquires locks on the target of `connect`, which makes the manager. One manager per process is enough: it holds any
 * number of locks over one connection to each server. The class itself is for `instanceof`, and is a token for
 * dependency injection; it cannot be constructed or extended.
 *
 * @example
 * ```ts
 * import { connect } from 'holdfast'
 *
 * const locks = await connect('redis://127.0.0.1:6379')
 * await locks.request('item:42', async (lock) => console.log(lock.held)) // true
 * await locks.close()
 * ```
 */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: the interface only narrows what the class inherits
export class LockManager extends EventEmitter implements AsyncDisposable {
  readonly #channel: NativeChannel;
  readonly #errors: ErrorContext;
  readonly #taker: Taker;
  /** The subjects of the warnings that were emitted. */
  readonly #warned = new Set<string>();
  readonly #abandoned = new Abandoned((warning) => this.warn(warning));
  /** Aborted when the manager begins to close. */
  readonly #ending = new AbortController();
  readonly #campaigns = new Campaigns(this.#ending.signal, this);
  /** How many warnings of each code there were. */
  readonly #warnings = new Map<LockWarningCode, number>();
  /** How many connections are broken. */
  #broken = 0;
  #closing: Promise<void> | undefined;

  static {
    onListenerChange(LockManager, (manager, event) => {
      manager.#channel.setHeard(manager.eventNames().length > 0);
      if (event !== undefined && manager.listenerCount(event) > 0) manager.#checkEvent(event);
    });
  }

  private constructor(channel: NativeChannel, errors: ErrorContext, defaults: LockDefaults) {
    if (!(channel instanceof NativeChannel)) {
      const illegal = new TypeError(
        'call connect() to get a LockManager: it cannot be made by new',
      );
      throw Object.assign(illegal, { code: 'ERR_ILLEGAL_CONSTRUCTOR' });
    }
    super();
    this.#channel = channel;
    this.#errors = { ...errors, heldFor: (tokenId) => channel.heldFor(tokenId) };
    const context = {
      channel,
      errors: this.#errors,
      onLost: this.#onLost,
      onAbandoned: this.#onAbandoned,
      onUnreleased: this.#onUnreleased,
    };
    this.#taker = new Taker(context, defaults, this.#onNested);
  }

  /** The manager of a channel that is open. @internal */
  static of(
    channel: NativeChannel,
    errors: ErrorContext,
    defaults: LockDefaults,
    warnings: readonly Warning[],
  ): LockManager {
    const manager = new LockManager(channel, errors, defaults);
    // Later: the caller of `connect` gets the time to add listeners.
    setImmediate(() => {
      channel.onNotice(manager.#onNotice);
      for (const warning of warnings) manager.warn(warning);
    });
    return manager;
  }

  /** The name of this manager in `query`, and in the tokens of its locks. */
  get clientId(): string {
    return this.#errors.client;
  }

  /**
   * Acquires the lock `name`, and waits in its queue while another client holds it. With several names it acquires all
   * of them or none. All callers use the same order, so no two callers wait for each other.
   *
   * @param name - 1 to 1024 bytes of UTF-8; or a list of such names, each once, 1000 at most.
   * @returns The lock, held until it is released: its lease is renewed, unless `renew` is false. For
   *   several names a `LockSet`, which is held and released as one.
   * @throws LockTimeoutError if the lock was not free within `wait` ms, which counts for all names together, and so does
   *   `waited` of the error; or with `steal`, if other code holds it.
   * @throws LockLostError if one of several locks was lost while the caller waited for the others.
   * @throws LockConnectionError if the server gave no answer in time: within `wait` ms while there is no connection, or
   *   else within `wait` or `commandTimeout` ms, whichever is longer. If the server granted the lock nevertheless,
   *   holdfast releases the lock as soon as it can reach the server. Also if the server was too busy to be asked in time.
   * @throws LockServerError if the server refuses.
   * @throws LockClosedError if the manager is closed.
   * @throws TypeError, RangeError if an argument is invalid; nothing is sent.
   *
   * @example
   * ```ts
   * await using lock = await locks.acquire('item:42', { ttl: 10_000, wait: 5_000 })
   * await using both = await locks.acquire(['account:1', 'account:2'])
   * await using permit = await locks.acquire('api', { mode: 'shared', limit: 10 })
   * ```
   */
  acquire<N extends string | readonly string[]>(
    name: N,
    options?: AcquireOptions,
  ): Promise<LockFor<N>>;
  acquire(name: string | readonly string[], options?: AcquireOptions): Promise<Lock | LockSet> {
    // No async function, which would cost half as much again as the promise that it returns.
    try {
      const taker = this.#taker;
      taker.checkNames(name);
      const given =
        options === undefined ? taker.defaultRequest : checkAcquireOptions(options, taker.defaults);
      taker.checkRequest(given, name);
      const request = withOrigin(given, this.acquire);
      const nested = NestedCall.of(taker, name, request, this.acquire);
      // Neither answers `null` to a request that waits.
      return typeof name === 'string'
        ? (taker.take(name, request, nested) as Promise<Lock>)
        : (takeAll(taker, name, request, nested) as Promise<LockSet>);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Acquires the lock `name` if it is free: one round trip, no waiting. With several names it acquires all
   * of them or none: by one request if they are on one server, of a Cluster in one slot; else by one for each.
   *
   * @returns The lock, or `null` if another client holds it.
   * @throws LockConnectionError if the server gave no answer within `commandTimeout` ms.
   * @throws as `acquire` does, but never `LockTimeoutError`.
   *
   * @example
   * ```ts
   * await using lock = await locks.tryAcquire('cron:settle')
   * if (lock !== null) await settle()   // or else another instance does it
   * ```
   */
  tryAcquire<N extends string | readonly string[]>(
    name: N,
    options?: TryAcquireOptions,
  ): Promise<LockFor<N> | null>;
  async tryAcquire(
    name: string | readonly string[],
    options?: TryAcquireOptions,
  ): Promise<Lock | LockSet | null> {
    const taker = this.#taker;
    taker.checkNames(name);
    const given = checkTryAcquireOptions(options, taker.defaults);
    taker.checkRequest(given, name);
    const request = withOrigin(given, this.tryAcquire);
    return typeof name === 'string' ? taker.take(name, request) : takeAll(taker, name, request);
  }

  /**
   * Runs `callback` while holding the lock `name`, or all of several names, and releases it when the callback has ended.
   * Accepts the arguments of `navigator.locks.request`, and behaves as it does.
   *
   * @param callback - Gets the lock, or `null` if it is held and `ifAvailable` is set; `lock.signal` is
   *   aborted if it is lost while the callback runs.
   * @returns The result of the callback; also if the server cannot be reached for the release, which holdfast
   *   then repeats.
   * @throws The error of the callback, before any other error.
   * @throws LockLostError if the lock was lost while the callback ran; `result` is the callback's result.
   * @throws DOMException `NotSupportedError` if `ifAvailable`, `steal`, `signal`, `wait` and `mode` exclude
   *   each other, or the name begins with a hyphen, as with Web Locks.
   * @throws as `acquire` does.
   *
   * @example
   * ```ts
   * const left = await locks.request('item:42', async (lock) => settle(42, lock.fence))
   * ```
   */
  request<T, N extends string | readonly string[] = string>(
    name: N,
    callback: (lock: LockFor<N>) => T,
  ): Promise<Awaited<T>>;
  /** Runs `callback` while holding the lock, or all of them, as described above. */
  request<T, N extends string | readonly string[] = string, If extends boolean | undefined = false>(
    name: N,
    options: (RequestOptions & { readonly ifAvailable?: If }) | undefined,
    callback: (lock: LockFor<N> | (true extends If ? null : never)) => T,
  ): Promise<Awaited<T>>;
  async request(name: string | readonly string[], ...rest: unknown[]): Promise<unknown> {
    const taker = this.#taker;
    taker.checkNames(name);
    const short = rest[1] === undefined && typeof rest[0] === 'function';
    const [options, callback] = short ? [undefined, rest[0]] : rest;
    checkCallback(callback);
    const names = typeof name === 'string' ? [name] : name;
    let given = taker.defaultRequest;
    if (options === undefined) refuseHyphens(names);
    else {
      const isShared = NestedCall.sharesAll(taker, names, options);
      given = checkRequestOptions(names, options, taker.defaults, isShared);
      taker.checkRequest(given, name);
    }
    const request = withOrigin(given, this.request);
    const nested = NestedCall.of(taker, name, request, this.request);
    const taken = await (typeof name === 'string'
      ? taker.take(name, request, nested)
      : takeAll(taker, name, request, nested));
    if (taken === null) return callback(null);
    const locks = taken instanceof LockSet ? taken.locks : [taken];
    // To return a promise from an async function takes three turns, to await it takes one.
    return await runUnder(taker, locks, () => callback(taken));
  }

  /**
   * Runs `body` at most once per slot, over all processes: for a job that every instance of a service starts at the
   * same time. A slot is a length of time (`every`) or a planned time (`cron`), by the server's clock, or any name (`slot`).
   * The body holds the lock `key`, so the bodies of two slots do not run at the same time either.
   *
   * A slot is marked as done before its body begins: if the body throws, or its process crashes, the slot is not run
   * again. With `retry`, the slot is marked as done when the body has ended without an error and without the loss of
   * its lock; until then the next caller runs it again.
   *
   * @param body - Gets the lock `key`, the name of the slot, and with `cron` the names of those before it that were missed:
   *   planned after the last one that is done, while that is kept; at most the last 99, the earliest first.
   * @returns Whether the body ran here, and its value; or why not: the slot is `'done'`, or another client holds
   *   the lock for longer than `wait`.
   * @throws The error of the body, before any other error.
   * @throws LockLostError if the lock was lost before the body could begin, or while it ran, so that with `retry` the slot
   *   may not be done; `result` is the body's value.
   * @throws LockUnmarkedError if the body has ended well, but the slot or its result may not be marked: no answer came for
   *   10 s, the mark was refused or released, or the body has released the lock; `result` is the body's value.
   * @throws as `acquire` does, but never `LockTimeoutError`.
   *
   * @example
   * ```ts
   * const { ran } = await locks.runOnce('report', { every: '1h' }, async (lock, slot) => rebuild(slot, lock.fence))
   * console.log(ran) // true
   * ```
   */
  async runOnce<T>(
    key: string,
    options: OnceOptions,
    body: (lock: Lock, slot: string, missed: readonly string[]) => T,
  ): Promise<OnceResult<Awaited<T>>> {
    const taker = this.#taker;
    taker.checkNames(key);
    checkJob(key);
    const given = checkOnceOptions(options, taker.defaults);
    const request = withOrigin(given.request, this.runOnce);
    const nested = NestedCall.of(taker, key, request, this.runOnce);
    taker.checkNames(markOf(key, given.slots.mark));
    checkCallback(body);
    refuseOnQuorum(this.#errors, 'runOnce');
    return runOnce<T>(taker, key, { ...given, request }, body, nested);
  }

  /** Leads with the default options, as described below. */
  lead(name: string, callback: (term: Term) => unknown): Promise<void>;
  /**
   * Elects a leader among all callers of `name`, in any process, and runs `callback` while this caller leads. It waits in
   * the queue of the lock `leader:` and `name` for as long as it takes. When the callback has ended or the lease is lost, it
   * campaigns again, at the end of the queue; after a term that was shorter than its lease it first pauses, from 100 ms up to
   * 10 s, twice as long each time.
   *
   * The lead is passed on when the callback has ended, so that no two callbacks run at a time: it should end soon once
   * `term.signal` is aborted. Only `close` and a loss do not wait for that.
   *
   * @param name - 1 to 1017 bytes of UTF-8.
   * @param callback - Gets the term. It may return at any time, which passes the lead on.
   * @returns Resolves when `signal` is aborted or the manager is closed, once the callback has ended.
   * @throws The error of the callback, unless it is an `AbortError`, a `LockLostError`, a `StaleFenceError`, or the reason of
   *   `term.signal`, when that is aborted. With `onError` that gets the error, and the campaign goes on.
   * @throws LockServerError if the server refuses; `onError` gets this one, too.
   * @throws LockClosedError if the manager was closed before.
   * @throws TypeError, RangeError if an argument is invalid; nothing is sent.
   *
   * @example
   * ```ts
   * const stop = new AbortController()   // aborted by SIGTERM, say
   * await locks.lead('scheduler', { signal: stop.signal }, async ({ signal, fence }) => {
   *   await report(`fence ${fence}`)
   *   stop.abort()
   *   console.log(signal.aborted) // true
   * })
   * ```
   */
  lead(
    name: string,
    options: LeadOptions | undefined,
    callback: (term: Term) => unknown,
  ): Promise<void>;
  async lead(name: string, ...rest: unknown[]): Promise<void> {
    const [options, callback] = rest.length < 2 ? [undefined, rest[0]] : rest;
    const lock = this.#leaderLockOf(name);
    const { request, onError } = checkLeadOptions(options, this.#taker.defaults);
    checkCallback(callback);
    const given = { request: withOrigin(request, this.lead), onError };
    const nested = NestedCall.of(this.#taker, lock, given.request, this.lead);
    await lead(this.#taker, this.#campaigns, name, given, callback, nested);
  }

  /**
   * Tells who leads, as the server knows it: a leader that has crashed is told until its lease ends.
   *
   * @param name - The name that was given to `lead`.
   * @returns The leader, or `null` if nobody leads.
   * @throws as `query` does.
   *
   * @example
   * ```ts
   * const leader = await locks.leader('scheduler')
   * console.log(leader?.clientId === locks.clientId) // false
   * ```
   */
  async leader(name: string): Promise<Leader | null> {
    const [holder] = await this.#taker.holdersOf(this.#leaderLockOf(name));
    if (holder === undefined) return null;
    const { clientId, label, ttl } = holder;
    return { name, clientId, label, ttl };
  }

  /** The semaphores of which this manager holds permits, for metrics. @internal */
  heldSemaphores(): { readonly name: string; readonly permits: number; readonly limit: number }[] {
    return this.#channel.handles().flatMap((holder) => {
      if (!(holder instanceof HeldLock) || holder.limit === null || !holder.held) return [];
      const { name, permits, limit } = holder;
      return [{ name, permits, limit }];
    });
  }

  /**
   * Takes over a lock from the process or manager that acquired it: a new token replaces its `token`, and the lock is
   * never free in between. The new owner gets a new, greater fence. The previous owner gets the event `lost`, with the
   * reason `adopted`. The lock keeps its label, unless `options` has one.
   *
   * With `owner` in place of the token it gets the lock of an owner that was named when it was acquired. With both the lock
   * of the token becomes this owner's, unless the owner has it elsewhere by now.
   *
   * @param lock - The result of `lock.toJSON()` in the other process, or a name and an owner.
   * @returns The lock, held as if it had been acquired here.
   * @throws LockLostError if the token or the owner does not hold the lock any more.
   * @throws as `acquire` does, but never `LockTimeoutError`.
   *
   * @example
   * ```ts
   * const message = JSON.stringify(await others.acquire('video:9'))
   * await using lock = await locks.adopt(JSON.parse(message))
   * await finish(lock.fence)
   *
   * await others.acquire('order:7', { owner: 'checkout-7' })
   * await using again = await locks.adopt({ name: 'order:7', owner: 'checkout-7' })
   * ```
   */
  async adopt(
    lock:
      | (Pick<LockJson, 'name' | 'token'> & Partial<LockJson>)
      | (Required<Pick<LockJson, 'name' | 'owner'>> & Partial<LockJson>),
    options?: AdoptOptions,
  ): Promise<Lock> {
    const { name, token, share, owner } = checkLockJson(lock);
    const taker = this.#taker;
    taker.checkNames(name);
    const request = withOrigin(checkAdoptOptions(options, taker.defaults, owner), this.adopt);
    refuseOnQuorum(this.#errors, 'adopt');
    if (token !== undefined) {
      const adopted = await taker.adopt(name, token, { ...request, ...adoptedShare(share, token) });
      if (adopted !== undefined) return adopted;
    }
    if (owner === undefined) throw taker.notHeld(name);
    return adoptOfOwner(taker, name, owner, request);
  }

  /**
   * Checks options once, for many calls of `acquirePrepared`. `waits`: whether these wait while the lock is held.
   *
   * @internal
   */
  prepare(options: AcquireOptions, waits: boolean): AcquireRequest {
    const check = waits ? checkAcquireOptions : checkTryAcquireOptions;
    const request = check(options, this.#taker.defaults);
    this.#taker.checkRequest(request, '');
    return request;
  }

  /**
   * Acquires a lock by a request of `prepare`: `null` if it is held and the request does not wait. For callers that do not use
   * `request`, so that no request is around the call.
   *
   * @internal
   */
  acquirePrepared(name: string, request: AcquireRequest): Promise<HeldLock | null> {
    try {
      this.#taker.checkNames(name);
      const traced = withOrigin(request, this.acquirePrepared);
      return this.#taker.take(name, traced) as Promise<HeldLock | null>;
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** Ends the calls of `acquirePrepared` by these requests, which reject. @internal */
  cancelPrepared(requests: ReadonlySet<AcquireRequest>): void {
    this.#channel.cancelAll((reader) => reader instanceof Acquisition && reader.isBy(requests));
  }

  /**
   * Takes a lock over under a token that the caller chooses, so that several locks can have one, or other processes know
   * it. Without an answer it stays under this token until its lease ends, unless the token `isMade`, and the lock is not left
   * to expire: then it is released.
   *
   * @param owner - The lock, and the value that it has now.
   * @param value - A token that no manager makes. `isMade`: it is used for this hold alone, so that its release may be
   *   repeated; that of any other is sent once.
   * @internal
   */
  adoptAs(...args: Parameters<Taker['adoptAs']>): Promise<HeldLock> {
    return this.#taker.adoptAs(...args);
  }

  /**
   * Renews the lease of other code as long as its key has this value: it is never taken, and never released. It ends without
   * notice when the value is another or the key is gone; what else ends it is told by `onUnkept`. `stallTimeout` is the manager's if it
   * is undefined.
   *
   * @internal
   */
  async keepForeign(
    lock: Omit<ForeignLock, 'stallTimeout'> & { readonly stallTimeout: number | undefined },
  ): Promise<ForeignLease> {
    refuseOnQuorum(this.#errors, 'mayBlock');
    const { stallTimeout = this.#taker.defaults.stallTimeout } = lock;
    return ForeignLease.begin(this.#channel, this.#errors, { ...lock, stallTimeout });
  }

  /**
   * Releases the lock `name` of an owner that was named when it was acquired, in this or another process: the hold that the
   * owner has now, never one that it gets later. A `Lock` of this owner is released here at once; that of another process gets
   * the event `lost`, with the reason `stolen`.
   *
   * @returns `true` if the owner held it.
   * @throws LockConnectionError if no answer came within `commandTimeout`: the lock may have been released. Call it again.
   * @throws as `acquire` does, but never `LockTimeoutError`.
   *
   * @example
   * ```ts
   * await locks.acquire('order:7', { owner: 'checkout-7', ttl: '1h', renew: false })   // one step of a workflow
   * console.log(await others.release('order:7', { owner: 'checkout-7' })) // true
   * ```
   */
  async release(name: string, options: ReleaseOptions): Promise<boolean> {
    this.#taker.checkName(name);
    const owner = checkReleaseOptions(options);
    refuseOnQuorum(this.#errors, 'owner');
    return releaseOfOwner(this.#taker, name, owner);
  }

  /**
   * Releases the lock `name` in place of its holder, and grants it to the next waiter. A tool for operators: the
   * holder gets the event `lost`, with the reason `stolen`, but nothing stops the work that it has begun.
   *
   * @returns `true` if it was held, under `token` if that is given.
   * @throws as `acquire` does, but never `LockTimeoutError`.
   *
   * @example
   * ```ts
   * await locks.forceRelease('report', { foreign: true })   // also if other code holds it
   *
   * const [holder] = (await locks.query({ name: 'import' })).held
   * if (holder !== undefined) await locks.forceRelease('import', { token: holder.token })   // no later one
   * ```
   */
  async forceRelease(name: string, options?: ForceReleaseOptions): Promise<boolean> {
    this.#taker.checkName(name);
    const { foreign, tokens } = checkForceReleaseOptions(name, options);
    refuseOnQuorum(this.#errors, 'forceRelease');
    return this.#taker.force(name, foreign, tokens);
  }

  /**
   * Lists the holders and waiters of all locks on the server, ordered by name. With `name` it also lists other code that
   * holds that lock (`state: 'foreign'`). It asks after all that this manager has asked for before. It reads page by page and
   * blocks no client, so it is no snapshot of one moment; and it scans every key of the database, so `queryPages` is better on
   * a large one.
   *
   * @throws as `acquire` does, but never `LockTimeoutError`; `LockServerError` with `NOPERM` also if a page has
   * locks, and the user may read none of them. If the user may read some, the others are left out.
   *
   * @example
   * ```ts
   * const { held, pending } = await locks.query({ startsWith: 'item:' })
   * ```
   */
  async query(options?: QueryOptions): Promise<LockSnapshot> {
    return gather(this.queryPages(options));
  }

  /**
   * Lists the same as `query`, page by page, as the caller asks for them. A page may be empty, and a lock may be
   * on two pages.
   *
   * @example
   * ```ts
   * for await (const { held } of locks.queryPages({ startsWith: 'item:', count: 500 })) report(held)
   * ```
   *
   * @throws as `query` does.
   */
  async *queryPages(options?: QueryOptions): AsyncGenerator<LockSnapshot, void, undefined> {
    yield* this.#taker.pages(checkQueryOptions(options));
  }

  /**
   * The counters of this manager, and its current state. Costs next to nothing.
   *
   * @example
   * ```ts
   * await using lock = await locks.acquire('item:42')
   * console.log(locks.stats().held) // 1
   * ```
   */
  stats(): LockStats {
    return readStats(this.#channel, this.#campaigns);
  }

  /**
   * Moves the clock of a store in this process (`memory:`), for tests: leases, waits, `maxHold`, the slots of `runOnce` and
   * the records of idempotency keys end as if this time had passed, one after the other, and each manager of the store
   * hears of each before the next. From the first call on the clock stands still between calls, as with fake timers.
   *
   * @param by - How far; 100 years at most. `0` only stops the clock.
   * @returns Once everything has happened that was due, and promises of this process have been settled on the way. Work
   *   that waits for timers or files is not awaited.
   * @throws TypeError if the locks are kept on a server, whose clock nobody moves, or for a wrong argument.
   * @throws LockClosedError if the manager is closed.
   *
   * @example
   * ```ts
   * const locks = await connect('memory:')
   * const lock = await locks.acquire('item:42', { ttl: '30s', renew: false })
   * await locks.advance('30s')
   * console.log(lock.held) // false
   * await locks.close()
   * ```
   */
  async advance(by: Duration): Promise<void> {
    const ms: unknown = typeof by === 'string' ? milliseconds(by, 'by') : by;
    checkWhole(ms, 'by', 0, ADVANCE_MS_MAX);
    if (!this.#channel.isMovable) {
      const message = `advance moves the clock of "memory:", a store in this process, not that of ${this.#errors.server}: connect to memory: in tests that move time`;
      throw argumentError('ERR_INVALID_ARG_VALUE', message);
    }
    if (this.#closing !== undefined) throw toError(CLOSED, this.#errors, 'move the clock of');
    await this.#channel.advance(ms as number);
  }

  /** The clock of the manager, in ms: `performance.now()`, or that of a store in this process. @internal */
  now(): number {
    return this.#channel.clock();
  }

  /** Whether every connection stands; of a quorum, one to each server. @internal */
  get connected(): boolean {
    const { servers } = this.#errors;
    if (this.#broken > 0) return false;
    if (servers.length === 0) return true;
    const up = this.stats().servers.filter(({ refused }) => refused === null);
    return up.length === servers.length;
  }

  /**
   * How many warnings of each code there were since `connect`; of a cause that is on servers, for how many it is there now.
   *
   * @internal
   */
  get warnings(): ReadonlyMap<LockWarningCode, number> {
    const { servers } = this.stats();
    const standing = [...this.#warnings].map(([code, count]) => {
      const isThere = CAUSES.get(code);
      return [code, isThere === undefined ? count : servers.filter(isThere).length] as const;
    });
    return new Map(standing);
  }

  /** Emits a warning, unless there was one with its subject. @internal */
  warn({ code, message, lock, subject = message }: Warning): void {
    // The core repeats a notice with each connection.
    if (this.#warned.has(subject)) return;
    this.#warned.add(subject);
    this.#warnings.set(code, (this.#warnings.get(code) ?? 0) + 1);
    if (this.listenerCount('warning') === 0) {
      process.emitWarning(message, { type: 'HoldfastWarning', code });
      return;
    }
    const warning = new LockError(code, message, lock) as LockWarning;
    // It comes in the middle of an acquire or an answer, which must not fail for a listener.
    callListeners(() => this.emit('warning', warning));
  }

  /**
   * Releases every lock that this manager holds, rejects operations under way with `LockClosedError`
   * and closes the connection. First aborts the `signal` of every lock, with the reason `closed`. Waits for the
   * server at most `commandTimeout` ms. May be called again at any time; never rejects.
   *
   * @example
   * ```ts
   * process.once('SIGTERM', () => locks.close())
   * ```
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /**
   * Closes the manager at the end of an `await using` scope.
   *
   * @example
   * ```ts
   * {
   *   await using locks = await connect('redis://127.0.0.1:6379')
   *   await locks.request('item:42', async () => {})
   * }
   * ```
   */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    this.#ending.abort();
    await this.#channel.close();
    this.#abandoned.end();
    callListeners(() => this.emit('close'));
  }

  /** A slip in the name of an event, which TypeScript refuses, would never be noticed. */
  #checkEvent(event: unknown): void {
    if (isUnknownEvent(event)) this.warn(eventWarning(event));
  }

  /** The name of the lock for which a leader campaigns, checked. */
  #leaderLockOf(name: unknown): string {
    checkName(name);
    const lock = leaderLockOf(name);
    this.#taker.checkName(lock);
    return lock;
  }

  readonly #onLost = (lock: Lock, error: LockLostError): void => {
    const { server, client: clientId } = this.#errors;
    if (tracing.lost.hasSubscribers) {
      tracing.lost.publish({ lock: lock.name, server, clientId, error, holder: lock });
    }
    this.emit('lost', lock, error);
  };

  readonly #onAbandoned = (lock: Lock): void => {
    this.#abandoned.add(lock.name, originOf(lock));
  };

  readonly #onNested = (name: string, advice: string, calls: string): void => {
    this.warn(nestedWarning(name, advice, calls));
  };

  readonly #onUnreleased = (lock: Lock, error: unknown): void => {
    this.warn(unreleasedWarning(lock.name, error));
  };

  readonly #onNotice = (code: number, text: string): void => {
    const { server } = this.#errors;
    switch (code) {
      case NoticeCode.Disconnected: {
        this.#broken += 1;
        const message = `the connection to ${server} is gone: ${text}`;
        this.emit('disconnect', new LockConnectionError(message));
        break;
      }
      case NoticeCode.LoginRefused: {
        this.emit('disconnect', loginError(text, server));
        break;
      }
      case NoticeCode.Reconnected:
        this.#broken -= 1;
        this.emit('reconnect');
        break;
      default: {
        const warning = warningOf(code, server, text);
        if (warning !== undefined) this.warn(warning);
      }
    }
  };
}

// The types of a generic EventEmitter of Node accept any event, and from 25 on refuse these narrower methods.
export interface LockManager {
  /** Calls `listener` for each such event, after those that were added before. @hidden */
  on<E extends keyof LockManagerEvents>(
    event: E,
    listener: (...args: LockManagerEvents[E]) => void,
  ): this;
  /** The same as `on`. @hidden */
  addListener<E extends keyof LockManagerEvents>(
    event: E,
    listener: (...args: LockManagerEvents[E]) => void,
  ): this;
  /** Calls `listener` for the next such event. @hidden */
  once<E extends keyof LockManagerEvents>(
    event: E,
    listener: (...args: LockManagerEvents[E]) => void,
  ): this;
  /** Calls `listener` for each such event, before those that were added before. @hidden */
  prependListener<E extends keyof LockManagerEvents>(
    event: E,
    listener: (...args: LockManagerEvents[E]) => void,
  ): this;
  /** Calls `listener` for the next such event, before those that were added before. @hidden */
  prependOnceListener<E extends keyof LockManagerEvents>(
    event: E,
    listener: (...args: LockManagerEvents[E]) => void,
  ): this;
  /** Removes a listener. @hidden */
  off<E extends keyof LockManagerEvents>(
    event: E,
    listener: (...args: LockManagerEvents[E]) => void,
  ): this;
  /** The same as `off`. @hidden */
  removeListener<E extends keyof LockManagerEvents>(
    event: E,
    listener: (...args: LockManagerEvents[E]) => void,
  ): this;
  /** Calls the listeners of such an event. @hidden */
  emit<E extends keyof LockManagerEvents>(event: E, ...args: LockManagerEvents[E]): boolean;
}
