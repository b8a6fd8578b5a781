import { EventEmitter } from 'node:events';
import { onAbort } from '../base/abort.js';
import { checkWhole, show } from '../base/checks.js';
import { argumentError, LockConnectionError, LockError, LockLostError } from '../base/errors.js';
import {
  checkJob,
  checkKey,
  checkName,
  checkNames,
  checkSlot,
  leaderLockOf,
  markOf,
} from '../base/names.js';
import { ownerIn } from '../base/owners.js';
import { type Duration, milliseconds } from '../base/time.js';
import { isForeign, shareOf } from '../base/tokens.js';
import { Campaigns } from '../lead/campaigns.js';
import { lead } from '../lead/lead.js';
import {
  checkLeadOptions,
  type Leader,
  type LeadOptions,
  type Term,
  type TermEnd,
} from '../lead/options.js';
import { Acquisition } from '../lock/acquisition.js';
import { isTraced, tracedAcquire, tracing } from '../lock/diagnostics.js';
import { type Grant, HeldLock, type ManagerContext, VALUE } from '../lock/held-lock.js';
import type { Lock, LockJson, SharedHandle } from '../lock/lock.js';
import { type LockFor, LockSet, takeAll } from '../lock/lock-set.js';
import {
  type AcquireOptions,
  type AcquireRequest,
  type AdoptOptions,
  checkAcquireOptions,
  checkAdoptOptions,
  checkForceReleaseOptions,
  checkLockJson,
  checkQueryOptions,
  checkReleaseOptions,
  checkRequestOptions,
  checkTryAcquireOptions,
  checkTtl,
  type ForceReleaseOptions,
  type HoldOptions,
  type LockDefaults,
  type QueryOptions,
  type ReleaseOptions,
  type RequestOptions,
  type TryAcquireOptions,
} from '../lock/options.js';
import { originOf, setOrigin, withOrigin } from '../lock/origins.js';
import { type ErrorContext, loginError, toError } from '../lock/outcome.js';
import { refuseOnQuorum } from '../lock/quorum.js';
import { callListeners } from '../native/calls.js';
import { NativeChannel } from '../native/channel.js';
import {
  acquireAllOperation,
  adoptOperation,
  CLOSED,
  forceReleaseOperation,
  isGrant,
  NoticeCode,
  type Operation,
  type Outcome,
  OutcomeCode,
  readGrant,
  readGrants,
  readTimeout,
  releaseOperation,
  SHARE_EXCLUSIVE,
  SHARE_UNLIMITED,
  stopRenewingOperation,
  WAIT_NEVER,
  WAIT_STEAL,
} from '../native/records.js';
import { checkOnceOptions, type OnceOptions, type OnceResult } from '../once/options.js';
import { runOnce } from '../once/run.js';
import { NestedCall } from '../request/nested-call.js';
import { checkCallback, runUnder } from '../request/request.js';
import {
  isUnknownEvent,
  type LockManagerEvents,
  type LockWarning,
  type LockWarningCode,
  onListenerChange,
} from './events.js';
import { gather, type HeldLockInfo, type LockSnapshot, readPages } from './query.js';
import { type LockStats, readStats } from './stats.js';
import {
  abandonedWarning,
  eventWarning,
  nestedWarning,
  unreleasedWarning,
  type Warning,
  warningOf,
} from './warnings.js';

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
export class LockManager extends EventEmitter<LockManagerEvents> implements AsyncDisposable {
  readonly #channel: NativeChannel;
  readonly #errors: ErrorContext;
  readonly #defaults: LockDefaults;
  /** Shared with its locks. */
  readonly #shared: ManagerContext;
  /** The request of an acquire without options. */
  readonly #defaultRequest: AcquireRequest;
  /** The subjects of the warnings that were emitted. */
  readonly #warned = new Set<string>();
  readonly #campaigns = new Campaigns();
  /** Aborted when the manager begins to close. */
  readonly #ending = new AbortController();
  /** How many warnings of each code there were. */
  readonly #warnings = new Map<LockWarningCode, number>();
  /** How many connections are broken. */
  #broken = 0;
  #closing: Promise<void> | undefined;

  static {
    onListenerChange(LockManager, (manager, event) => {
      manager.#channel.setHeard(manager.eventNames().length > 0);
      if (manager.listenerCount(event) > 0) manager.#checkEvent(event);
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
    this.#defaults = defaults;
    this.#shared = {
      channel,
      errors: this.#errors,
      onLost: this.#onLost,
      onAbandoned: this.#onAbandoned,
      onUnreleased: this.#onUnreleased,
    };
    this.#defaultRequest = checkAcquireOptions(undefined, defaults);
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
      this.#check(name);
      const given =
        options === undefined ? this.#defaultRequest : checkAcquireOptions(options, this.#defaults);
      this.#refuse(given, name);
      const request = withOrigin(given, this.acquire);
      const nested = NestedCall.of(this, name, request, this.acquire);
      // Neither answers `null` to a request that waits.
      return typeof name === 'string'
        ? (this.#take(name, request, nested) as Promise<Lock>)
        : (this.#takeAll(name, request, nested) as Promise<LockSet>);
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
    this.#check(name);
    const given = checkTryAcquireOptions(options, this.#defaults);
    this.#refuse(given, name);
    const request = withOrigin(given, this.tryAcquire);
    return typeof name === 'string' ? this.#take(name, request) : this.#takeAll(name, request);
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
    this.#check(name);
    const short = rest[1] === undefined && typeof rest[0] === 'function';
    const [options, callback] = short ? [undefined, rest[0]] : rest;
    checkCallback(callback);
    const names = typeof name === 'string' ? [name] : name;
    const isShared = NestedCall.sharesAll(this, names, options);
    const given = checkRequestOptions(names, options, this.#defaults, isShared);
    this.#refuse(given, name);
    const request = withOrigin(given, this.request);
    const nested = NestedCall.of(this, name, request, this.request);
    const taken = await (typeof name === 'string'
      ? this.#take(name, request, nested)
      : this.#takeAll(name, request, nested));
    if (taken === null) return callback(null);
    const locks = taken instanceof LockSet ? taken.locks : [taken];
    return runUnder(this, locks, () => callback(taken));
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
    this.#check(key);
    checkJob(key);
    const given = checkOnceOptions(options, this.#defaults);
    const request = withOrigin(given.request, this.runOnce);
    const once = { ...given, request };
    const nested = NestedCall.of(this, key, request, this.runOnce);
    this.#check(markOf(key, once.slots.mark));
    checkCallback(body);
    refuseOnQuorum(this.#errors, 'runOnce');
    const manager = {
      server: this.#errors.server,
      now: () => this.now(),
      serverTime: (name: string) => this.#channel.serverTime(name),
      // It is not reentrant, so the lock is one of its own.
      take: (name: string, request: AcquireRequest) =>
        this.#take(name, request, nested) as Promise<HeldLock | null>,
      takeOrRead: (name: string, request: AcquireRequest) => this.#takeOrRead(name, request),
      replace: (
        owner: Pick<LockJson, 'name' | 'token'>,
        value: string,
        terms: { ttl: number; leaveToExpire: boolean },
      ) =>
        this.adoptAs({ ...owner, mode: 'exclusive' }, value, {
          ...terms,
          renew: false,
        }) as Promise<HeldLock>,
    };
    return runOnce<T>(this, manager, key, once, body);
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
    const { request, onError } = checkLeadOptions(options, this.#defaults);
    checkCallback(callback);
    const traced = withOrigin(request, this.lead);
    const nested = NestedCall.of(this, lock, traced, this.lead);
    const state = this.#campaigns.begin(name);
    const manager = {
      closing: this.#ending.signal,
      // It answers no `null` to a request that waits.
      take: () => state.whileWaiting(this.#take(lock, traced, nested) as Promise<SharedHandle>),
      elected: this.#onElected,
      steppedDown: this.#onSteppedDown,
    };
    try {
      await lead(this, manager, name, { request: traced, onError }, callback);
    } finally {
      state.end();
    }
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
    const [holder] = await this.#holdersOf(this.#leaderLockOf(name));
    if (holder === undefined) return null;
    const { clientId, label, ttl } = holder;
    return { name, clientId, label, ttl };
  }

  /** The semaphores of which this manager holds permits, for metrics. @internal */
  heldSemaphores(): { readonly name: string; readonly permits: number; readonly limit: number }[] {
    return this.#channel.holders().flatMap((holder) => {
      if (!(holder instanceof HeldLock) || holder.limit === null || !holder.held) return [];
      const { name, permits, limit } = holder;
      return [{ name, permits, limit }];
    });
  }

  /** The holders of a lock without other code. */
  async #holdersOf(name: string): Promise<HeldLockInfo[]> {
    return (await this.query({ name })).held.filter(({ state }) => state !== 'foreign');
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
    this.#check(name);
    const request = withOrigin(checkAdoptOptions(options, this.#defaults, owner), this.adopt);
    refuseOnQuorum(this.#errors, 'adopt');
    if (token === undefined) return this.#adoptOfOwner(name, owner as string, request);
    const adopted = { ...request, ...adoptedShare(share, token) };
    const outcome = await this.#channel.submit(adoptOperation(name, token, adopted));
    if (outcome.code !== OutcomeCode.Lost) {
      return new Acquisition(this.#shared, name, adopted).lock(outcome, 'adopt');
    }
    if (owner === undefined) throw this.#notHeld(name);
    return this.#adoptOfOwner(name, owner, request);
  }

  /** Adopts the lock of an owner from the token that it has now. */
  async #adoptOfOwner(name: string, owner: string, request: AcquireRequest): Promise<HeldLock> {
    let before: string | undefined;
    for (;;) {
      const token = await this.#tokenOf(name, owner);
      // The owner may get it anew between two steps, but never under the same token.
      if (token === undefined || token === before) {
        throw this.#notHeld(name, 'adopt', `the owner ${show(owner)}`);
      }
      const outcome = await this.#channel.submit(adoptOperation(name, token, request));
      if (outcome.code !== OutcomeCode.Lost) {
        return new Acquisition(this.#shared, name, request).lock(outcome, 'adopt');
      }
      before = token;
    }
  }

  /** The token under which an owner has a lock; undefined if it does not have it. */
  async #tokenOf(name: string, owner: string): Promise<string | undefined> {
    return (await this.#holdersOf(name)).find((holder) => holder.owner === owner)?.token;
  }

  /**
   * Takes a lock over under a token that the caller chooses, so that several locks can have one, or other processes know
   * it. One that is left to expire stays under this token if no answer comes; any other is released then, unless it had
   * the token before.
   *
   * @param owner - The lock, and the value that it has now.
   * @param value - A token that no manager makes, and that is never used again.
   * @internal
   */
  async adoptAs(
    { name, token, mode }: Pick<LockJson, 'name' | 'token' | 'mode'>,
    value: string,
    {
      ttl,
      renew,
      leaveToExpire = false,
    }: Pick<HoldOptions, 'ttl' | 'renew'> & { readonly leaveToExpire?: boolean },
  ): Promise<HeldLock> {
    this.#check(name);
    checkTtl(ttl);
    const label = `${VALUE}${value}`;
    const share = adoptedShare(mode === 'shared' ? SHARE_UNLIMITED : SHARE_EXCLUSIVE, token);
    const held = { ttl, renew, leaveToExpire, label, ...share, maxHold: Number.POSITIVE_INFINITY };
    const request = { ...this.#defaultRequest, ...held };
    const outcome = await this.#channel.submit(adoptOperation(name, token, request));
    if (outcome.code === OutcomeCode.Lost) throw this.#notHeld(name);
    return new Acquisition(this.#shared, name, request).lock(outcome, 'adopt');
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
    checkName(name);
    this.#check(name);
    const owner = checkReleaseOptions(options);
    refuseOnQuorum(this.#errors, 'owner');
    for (const holder of this.#channel.holders()) {
      const isMeant = holder instanceof HeldLock && holder.name === name && holder.owner === owner;
      if (isMeant && (await holder.release())) return true;
    }
    let before: string | undefined;
    for (;;) {
      const token = await this.#tokenOf(name, owner);
      if (token === undefined || token === before) return false;
      if (await this.#force(name, false, [token])) return true;
      before = token;
    }
  }

  /**
   * Releases the lock `name` in place of its holder, and grants it to the next waiter. A tool for operators: the
   * holder gets the event `lost`, with the reason `stolen`, but nothing stops the work that it has begun.
   *
   * @returns `true` if it was held, by `owner` if that is given.
   * @throws as `acquire` does, but never `LockTimeoutError`.
   *
   * @example
   * ```ts
   * await locks.forceRelease('report', { foreign: true })   // also if other code holds it
   *
   * const [holder] = (await locks.query({ name: 'import' })).held
   * if (holder !== undefined) await locks.forceRelease('import', { owner: holder.token })   // no later one
   * ```
   */
  async forceRelease(name: string, options?: ForceReleaseOptions): Promise<boolean> {
    checkName(name);
    this.#check(name);
    const { foreign, owners } = checkForceReleaseOptions(options);
    refuseOnQuorum(this.#errors, 'forceRelease');
    return this.#force(name, foreign, await this.#tokensOf(name, owners));
  }

  /** The tokens of `owners`, some of which may be names that callers have given owners. */
  async #tokensOf(name: string, owners: readonly string[]): Promise<readonly string[]> {
    if (owners.every((owner) => !isForeign(owner))) return owners;
    const holders = await this.#holdersOf(name);
    const named = holders.filter(({ owner }) => owner !== null && owners.includes(owner));
    return [...owners, ...named.map(({ token }) => token)];
  }

  async #force(name: string, foreign: boolean, owners: readonly string[]): Promise<boolean> {
    const operation = forceReleaseOperation(name, foreign, owners);
    const outcome = await this.#channel.submit(operation);
    if (outcome.code === OutcomeCode.Lost) return false;
    if (outcome.code === OutcomeCode.Done) return true;
    throw toError(outcome, this.#errors, 'release', name);
  }

  /**
   * Lists the holders and waiters of all locks on the server, ordered by name, and with `name` also other code that holds that
   * lock (`state: 'foreign'`), after all that this manager has asked
   * for before. It reads page by page and blocks no client, so it is no snapshot of one moment; and it scans every key
   * of the database, so `queryPages` is better on a large one.
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
    const checked = checkQueryOptions(options);
    refuseOnQuorum(this.#errors, 'query');
    yield* readPages(this.#channel, this.#errors, this.#defaults.prefix, checked);
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

  /** How many warnings of each code there were since `connect`. @internal */
  get warnings(): ReadonlyMap<LockWarningCode, number> {
    return this.#warnings;
  }

  /** Emits a warning, unless there was one with its subject. @internal */
  warn({ code, message, lock, subject = message }: Warning): void {
    // The core repeats a notice with each connection.
    if (this.#warned.has(subject)) return;
    this.#warned.add(subject);
    this.#warnings.set(code, (this.#warnings.get(code) ?? 0) + 1);
    const warning = new LockError(code, message, lock) as LockWarning;
    if (this.emit('warning', warning)) return;
    process.emitWarning(message, { type: 'HoldfastWarning', code });
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
    this.emit('close');
  }

  /** A slip in the name of an event, which TypeScript refuses, would never be noticed. */
  #checkEvent(event: unknown): void {
    if (isUnknownEvent(event)) this.warn(eventWarning(event));
  }

  #check(name: string | readonly string[]): void {
    if (Array.isArray(name)) {
      checkNames(name);
      for (const each of name) this.#checkKey(each);
    } else {
      checkName(name);
      this.#checkKey(name as string);
    }
  }

  /** The name of the lock for which a leader campaigns, checked. */
  #leaderLockOf(name: unknown): string {
    checkName(name);
    const lock = leaderLockOf(name);
    this.#check(lock);
    return lock;
  }

  #checkKey(name: string): void {
    const { prefix } = this.#defaults;
    checkKey(prefix, name);
    if (this.#errors.sharded) checkSlot(prefix + name);
  }

  /** Refuses what the target does not support. */
  #refuse({ share, wait, owner }: AcquireRequest, name: string | readonly string[]): void {
    if (owner !== undefined && typeof name !== 'string') {
      const message = 'owner is for one name: acquire the locks of an owner one by one';
      throw argumentError('ERR_INVALID_ARG_VALUE', message);
    }
    if (owner !== undefined) refuseOnQuorum(this.#errors, 'owner');
    if (share > 0) refuseOnQuorum(this.#errors, 'limit');
    if (share !== SHARE_EXCLUSIVE) refuseOnQuorum(this.#errors, 'shared');
    if (wait === WAIT_STEAL) refuseOnQuorum(this.#errors, 'steal');
  }

  /** Takes all of `given`, or none. */
  #takeAll(
    given: readonly string[],
    request: AcquireRequest,
    nested?: NestedCall,
  ): Promise<LockSet | null> {
    // A copy: the caller may change its array meanwhile.
    const names = [...given];
    const take = () => this.#takeEach(names, request, nested);
    // A call that shares all its locks with a request around it acquires none.
    if (
      request.reentrant &&
      nested !== undefined &&
      names.every((name) => nested.shareable(name))
    ) {
      return take();
    }
    const subject = { name: names.join(', '), errors: this.#errors };
    return tracedAcquire(subject, request.signal, take);
  }

  async #takeEach(
    names: readonly string[],
    request: AcquireRequest,
    nested: NestedCall | undefined,
  ): Promise<LockSet | null> {
    const { share, wait } = request;
    const begun = this.now();
    const waited = () => this.now() - begun;
    if (nested === undefined && share === SHARE_EXCLUSIVE && wait !== WAIT_STEAL) {
      const locks = await this.#takeTogether(names, waited, request);
      if (locks !== undefined) return locks;
    }
    return takeAll(names, waited, wait, (name, left) => {
      const each = { ...request, wait: left, set: { waited, size: names.length } };
      return this.#takeOrShare(name, each, nested, () => this.#takeUntraced(name, each));
    });
  }

  /**
   * Takes all of `names` by one call, if all are free. Answers `null` if they are not and `request` says not to
   * wait, `undefined` if they are to be taken one by one. `waited`: for how long the caller has waited.
   */
  async #takeTogether(
    names: readonly string[],
    waited: () => number,
    request: AcquireRequest,
  ): Promise<LockSet | null | undefined> {
    const { wait, label, signal, leaveToExpire, awaitRelease } = request;
    const terms = { label, mode: 'exclusive', terms: '', leaveToExpire, awaitRelease } as const;
    const outcome = await this.#untilAborted(acquireAllOperation(names, request), signal);
    const { code } = outcome;
    if (code !== OutcomeCode.AcquiredAll) {
      signal?.throwIfAborted();
      // A server that gave no answer during the whole wait would give none about the first lock either.
      const isOver = code === OutcomeCode.Connection && waited() >= wait;
      // A caller that is ready to wait takes them one by one, and so also waits out an error of the server.
      if (code === OutcomeCode.OneByOne || (wait > 0 && !isOver)) return undefined;
      if (code === OutcomeCode.Held) return wait === WAIT_NEVER ? null : undefined;
      throw toError(outcome, this.#errors, 'acquire', names.join('", "'));
    }
    const { leases, fences } = readGrants(outcome, names.length);
    if (fences === undefined) {
      await Promise.all(
        leases.map((lease) => this.#channel.submit(releaseOperation(lease, false))),
      );
      const failed = { ...outcome, code: OutcomeCode.Internal };
      throw toError(failed, this.#errors, 'acquire', names.join('", "'));
    }
    const locks = names.map((name, i) => {
      const [lease, fence] = [leases[i] as number, fences[i] as number];
      return this.#hold({ name, lease, fence, ...terms }, request);
    });
    const set = new LockSet(locks);
    if (signal?.aborted) {
      await set.release();
      throw signal.reason;
    }
    return set;
  }

  /** Takes one lock, or answers `null` if it is held and `request` says not to wait. */
  #take(name: string, request: AcquireRequest, nested?: NestedCall): Promise<SharedHandle | null> {
    return this.#takeOrShare(name, request, nested, () => this.#takeFromServer(name, request));
  }

  /** Shares the lock of a request around the call if `request` may, or else has `take` take it. */
  #takeOrShare(
    name: string,
    { reentrant, wait }: AcquireRequest,
    nested: NestedCall | undefined,
    take: () => Promise<SharedHandle | null>,
  ): Promise<SharedHandle | null> {
    if (nested === undefined) return take();
    const around = reentrant ? nested.shareable(name) : undefined;
    if (around !== undefined) return Promise.resolve(around.enter());
    const taken = take();
    if (wait < 0) return taken;
    const warn = (advice: string, calls: string) => this.warn(nestedWarning(name, advice, calls));
    return nested.watch(name, taken, warn);
  }

  #takeFromServer(name: string, request: AcquireRequest): Promise<HeldLock | null> {
    if (!isTraced(tracing.acquire)) return this.#takeUntraced(name, request);
    const take = () => this.#takeUntraced(name, request);
    return tracedAcquire({ name, errors: this.#errors }, request.signal, take);
  }

  #takeUntraced(name: string, request: AcquireRequest): Promise<HeldLock | null> {
    const acquisition = new Acquisition(this.#shared, name, request);
    const { signal } = request;
    return signal === undefined
      ? this.#channel.run(acquisition)
      : this.#unlessAborted(acquisition, signal).then((outcome) => acquisition.read(outcome));
  }

  /** Takes one lock, or answers the value of one that is held: `''` if it was freed meanwhile. */
  async #takeOrRead(name: string, request: AcquireRequest): Promise<HeldLock | string> {
    const { signal } = request;
    let holder = '';
    const take = async () => {
      // Only the answer to a request that waits names the holder.
      const acquisition = new Acquisition(this.#shared, name, { ...request, wait: 0 });
      const outcome = await (signal === undefined
        ? this.#channel.submit(acquisition)
        : this.#unlessAborted(acquisition, signal));
      if (outcome.code !== OutcomeCode.TimedOut) return acquisition.lock(outcome);
      holder = readTimeout(outcome).holder;
      return null;
    };
    return (await tracedAcquire({ name, errors: this.#errors }, signal, take)) ?? holder;
  }

  /** Rejects if `signal` is aborted before the grant arrives, and releases what is granted all the same. */
  async #unlessAborted(operation: Operation, signal: AbortSignal): Promise<Outcome> {
    const outcome = await this.#untilAborted(operation, signal);
    if (!signal.aborted) return outcome;
    if (isGrant(outcome)) {
      const { lease, label = '' } = readGrant(outcome);
      // What was taken over from an owner stays the owner's.
      const isOwned = ownerIn(label) !== null;
      const end = isOwned ? stopRenewingOperation(lease) : releaseOperation(lease, false);
      await this.#channel.submit(end);
    }
    throw signal.reason;
  }

  /** Starts an operation, and ends it early when `signal` is aborted. */
  async #untilAborted(operation: Operation, signal: AbortSignal | undefined): Promise<Outcome> {
    signal?.throwIfAborted();
    const pending = this.#channel.begin(operation);
    if (signal === undefined) return pending.outcome;
    const forget = onAbort(signal, () => this.#channel.cancel(pending));
    const outcome = await pending.outcome;
    forget();
    return outcome;
  }

  #notHeld(name: string, action = 'adopt', who = 'the token'): LockLostError {
    const message = `cannot ${action} lock "${name}" on ${this.#errors.server}: ${who} does not hold it any more`;
    return new LockLostError(message, name, 'expired');
  }

  #hold(grant: Grant, { origin }: AcquireRequest): HeldLock {
    const lock = HeldLock.begin(this.#shared, grant);
    setOrigin(lock, origin);
    return lock;
  }

  readonly #onLost = (lock: Lock, error: LockLostError): void => {
    const { server, client: clientId } = this.#errors;
    if (tracing.lost.hasSubscribers) {
      tracing.lost.publish({ lock: lock.name, server, clientId, error, holder: lock });
    }
    this.emit('lost', lock, error);
  };

  readonly #onElected = (term: Term): void => {
    this.#campaigns.count(term.name, 1);
    callListeners(() => this.emit('elected', term));
  };

  readonly #onSteppedDown = (term: Term, end: TermEnd): void => {
    this.#campaigns.count(term.name, -1);
    callListeners(() => this.emit('stepDown', term, end));
  };

  readonly #onAbandoned = (lock: Lock): void => {
    this.warn(abandonedWarning(lock.name, originOf(lock)));
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

// The types of Node accept any event, and refuse only its listener, with a message that names neither.
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
}

/** The share that an adopter of `token` gets, at most `share`: of a share with a limit all its permits. */
function adoptedShare(share: number, token: string): Pick<AcquireRequest, 'share' | 'permits'> {
  const { permits, limit } = shareOf(token);
  if (limit === null || share === SHARE_EXCLUSIVE) return { share, permits: 1 };
  return { share: limit, permits };
}
