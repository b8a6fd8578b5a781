/** Takes locks from the server: the one place between the methods of a manager and the calls of the addon. */

import { onAbort } from '../base/abort.js';
import { argumentError, LockLostError } from '../base/errors.js';
import { checkKey, checkName, checkNames, checkSlot } from '../base/names.js';
import { ownerIn } from '../base/owners.js';
import { shareOf } from '../base/tokens.js';
import { isTraced, tracedAcquire, tracing } from '../lock/diagnostics.js';
import type { HeldLock, ManagerContext } from '../lock/held-lock.js';
import type { LockJson, SharedHandle } from '../lock/lock.js';
import { type ErrorContext, toError } from '../lock/outcome.js';
import {
  gather,
  type HeldLockInfo,
  type LockSnapshot,
  type QueryRequest,
  readPages,
} from '../lock/query.js';
import { refuseOnQuorum } from '../lock/quorum.js';
import type { AcquireRequest } from '../lock/request.js';
import { checkTtl, type HoldOptions } from '../lock/times.js';
import type { NativeChannel } from '../native/channel.js';
import {
  adoptOperation,
  forceReleaseOperation,
  isGrant,
  LabelKind,
  type Operation,
  type Outcome,
  OutcomeCode,
  readGrant,
  readTimeout,
  releaseOperation,
  SHARE_EXCLUSIVE,
  SHARE_UNLIMITED,
  stopRenewingOperation,
  WAIT_STEAL,
} from '../native/records.js';
import type { NestedCall } from '../request/nested-call.js';
import { Acquisition } from './acquisition.js';
import { checkAcquireOptions, type LockDefaults } from './check-options.js';

/** Warns of a call that waits for a lock of the request around it. */
type WarnOfNested = (name: string, advice: string, calls: string) => void;

/** How many keys a look at one lock may read. */
const KEYS_MAX = 1_000;

/** @internal */
export class Taker {
  readonly context: ManagerContext;
  readonly defaults: LockDefaults;
  /** The request of an acquire without options. */
  readonly defaultRequest: AcquireRequest;
  readonly #channel: NativeChannel;
  readonly #warnOfNested: WarnOfNested;

  constructor(context: ManagerContext, defaults: LockDefaults, warnOfNested: WarnOfNested) {
    this.context = context;
    this.defaults = defaults;
    this.defaultRequest = checkAcquireOptions(undefined, defaults);
    this.#channel = context.channel;
    this.#warnOfNested = warnOfNested;
  }

  get errors(): ErrorContext {
    return this.context.errors;
  }

  /** The clock of the store, in ms. */
  now(): number {
    return this.#channel.clock();
  }

  /** The time by the clock of a lock's server, in ms since 1970; undefined if it is unknown. */
  serverTime(name: string): number | undefined {
    return this.#channel.serverTime(name);
  }

  /** Refuses names that no lock can have here. */
  checkNames(name: string | readonly string[]): void {
    if (Array.isArray(name)) {
      checkNames(name);
      for (const each of name) this.#checkKey(each);
    } else {
      this.checkName(name as string);
    }
  }

  /** Refuses what is no name of one lock. */
  checkName(name: string): void {
    checkName(name);
    this.#checkKey(name);
  }

  #checkKey(name: string): void {
    const { prefix } = this.defaults;
    checkKey(prefix, name);
    if (this.errors.sharded) checkSlot(prefix + name);
  }

  /** Refuses a request that the target does not support. */
  checkRequest({ share, wait, owner }: AcquireRequest, name: string | readonly string[]): void {
    if (owner !== undefined && typeof name !== 'string') {
      const message = 'owner is for one name: acquire the locks of an owner one by one';
      throw argumentError('ERR_INVALID_ARG_VALUE', message);
    }
    const { errors } = this;
    if (errors.servers.length === 0) return;
    if (owner !== undefined) refuseOnQuorum(errors, 'owner');
    if (share > 0) refuseOnQuorum(errors, 'limit');
    if (share !== SHARE_EXCLUSIVE) refuseOnQuorum(errors, 'shared');
    if (wait === WAIT_STEAL) refuseOnQuorum(errors, 'steal');
  }

  /**
   * Takes one lock, or answers `null` if it is held and `request` says not to wait. `nested`: the call is made under a request
   * that holds the lock.
   */
  take(name: string, request: AcquireRequest, nested?: NestedCall): Promise<SharedHandle | null> {
    if (nested === undefined) return this.#takeFromServer(name, request);
    return this.takeOrShare(name, request, nested, () => this.#takeFromServer(name, request));
  }

  /** Shares the lock of a request around the call if `request` may, or else has `take` take it. */
  takeOrShare(
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
    return nested.watch(name, taken, (advice, calls) => this.#warnOfNested(name, advice, calls));
  }

  #takeFromServer(name: string, request: AcquireRequest): Promise<HeldLock | null> {
    if (!isTraced(tracing.acquire)) return this.takeUntraced(name, request);
    const take = () => this.takeUntraced(name, request);
    return tracedAcquire({ name, errors: this.errors }, request.signal, take);
  }

  /** Takes one lock from the server, without a trace of its own: one of several is a part of their trace. */
  takeUntraced(name: string, request: AcquireRequest): Promise<HeldLock | null> {
    const acquisition = new Acquisition(this.context, name, request);
    const { signal } = request;
    return signal === undefined
      ? this.#channel.run(acquisition)
      : this.#unlessAborted(acquisition, signal).then((outcome) => acquisition.read(outcome));
  }

  /**
   * Takes one lock, or answers the value of one that is held: `''` if it was freed meanwhile, undefined if holders share it, each
   * with a value of its own.
   */
  async takeOrRead(name: string, request: AcquireRequest): Promise<HeldLock | string | undefined> {
    const { signal } = request;
    let value: string | undefined;
    const take = async () => {
      // Only the answer to a request that waits names the holder.
      const acquisition = new Acquisition(this.context, name, { ...request, wait: 0 });
      const outcome = await (signal === undefined
        ? this.#channel.submit(acquisition)
        : this.#unlessAborted(acquisition, signal));
      if (outcome.code !== OutcomeCode.TimedOut) return acquisition.lock(outcome);
      const { holder, holders } = readTimeout(outcome);
      value = holders > 0 ? undefined : holder;
      return null;
    };
    return (await tracedAcquire({ name, errors: this.errors }, signal, take)) ?? value;
  }

  /** Takes a lock over from the hold with `token`; undefined if that does not hold it. */
  async adopt(name: string, token: string, request: AcquireRequest): Promise<HeldLock | undefined> {
    const outcome = await this.#channel.submit(adoptOperation(name, token, request));
    if (outcome.code === OutcomeCode.Lost) return undefined;
    return new Acquisition(this.context, name, request).lock(outcome, 'adopt');
  }

  /** Takes a lock over under a token that the caller chooses; see `LockManager.adoptAs`. */
  async adoptAs(
    { name, token, mode }: Pick<LockJson, 'name' | 'token' | 'mode'>,
    value: string,
    {
      ttl,
      renew,
      leaveToExpire = false,
      isMade = false,
    }: Pick<HoldOptions, 'ttl' | 'renew'> & {
      readonly leaveToExpire?: boolean;
      readonly isMade?: boolean;
    },
  ): Promise<HeldLock> {
    this.checkName(name);
    checkTtl(ttl);
    const labelKind = isMade ? LabelKind.Made : LabelKind.Chosen;
    const share = adoptedShare(mode === 'shared' ? SHARE_UNLIMITED : SHARE_EXCLUSIVE, token);
    const held = { ttl, renew, leaveToExpire, ...share, maxHold: Number.POSITIVE_INFINITY };
    const request = { ...this.defaultRequest, ...held, label: value, labelKind };
    const lock = await this.adopt(name, token, request);
    if (lock === undefined) throw this.notHeld(name);
    return lock;
  }

  /** Releases a lock in place of its holder: one of `tokens` if there are any. Answers whether it was held so. */
  async force(name: string, foreign: boolean, tokens: readonly string[]): Promise<boolean> {
    const operation = forceReleaseOperation(name, foreign, tokens);
    const outcome = await this.#channel.submit(operation);
    if (outcome.code === OutcomeCode.Lost) return false;
    if (outcome.code === OutcomeCode.Done) return true;
    throw toError(outcome, this.errors, 'release', name);
  }

  /** Holders and waiters, page by page. */
  pages(request: QueryRequest): AsyncGenerator<LockSnapshot, void, undefined> {
    refuseOnQuorum(this.errors, 'query');
    return readPages(this.#channel, this.errors, this.defaults.prefix, request);
  }

  /** The holders of a lock without other code. */
  async holdersOf(name: string): Promise<HeldLockInfo[]> {
    const { held } = await gather(this.pages({ count: KEYS_MAX, text: name, whole: true }));
    return held.filter(({ state }) => state !== 'foreign');
  }

  /** Starts an operation, and ends it early when `signal` is aborted. */
  async untilAborted(operation: Operation, signal: AbortSignal | undefined): Promise<Outcome> {
    signal?.throwIfAborted();
    const pending = this.#channel.begin(operation);
    if (signal === undefined) return pending.outcome;
    const forget = onAbort(signal, () => this.#channel.cancel(pending));
    const outcome = await pending.outcome;
    forget();
    return outcome;
  }

  /** Rejects if `signal` is aborted before the grant arrives, and releases what is granted all the same. */
  async #unlessAborted(operation: Operation, signal: AbortSignal): Promise<Outcome> {
    const outcome = await this.untilAborted(operation, signal);
    if (!signal.aborted) return outcome;
    if (isGrant(outcome)) {
      const { lease, label = '' } = readGrant(outcome);
      // A lock that was taken over from an owner stays the owner's.
      const isOwned = ownerIn(label) !== null;
      const end = isOwned ? stopRenewingOperation(lease) : releaseOperation(lease, false);
      await this.#channel.submit(end);
    }
    throw signal.reason;
  }

  /** The error for a lock that `who` does not hold any more. */
  notHeld(name: string, who = 'the token'): LockLostError {
    const message = `cannot adopt lock "${name}" on ${this.errors.server}: ${who} does not hold it any more`;
    return new LockLostError(message, name, 'expired');
  }
}

/** The share that an adopter of `token` gets, at most `share`: of a share with a limit all its permits. @internal */
export function adoptedShare(
  share: number,
  token: string,
): Pick<AcquireRequest, 'share' | 'permits'> {
  const { permits, limit } = shareOf(token);
  if (limit === null || share === SHARE_EXCLUSIVE) return { share, permits: 1 };
  return { share: limit, permits };
}
