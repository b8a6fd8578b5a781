import { noticing } from '../base/abort.js';
import {
  argumentError,
  isUnreachable,
  LockLostError,
  type LockLostReason,
} from '../base/errors.js';
import { isLeaderLock } from '../base/names.js';
import { ownerIn } from '../base/owners.js';
import type { Duration } from '../base/time.js';
import { limitIn, permitsIn, writeToken } from '../base/tokens.js';
import type { NativeChannel } from '../native/channel.js';
import type { LockHandle } from '../native/handles.js';
import type { OutcomeReader } from '../native/operations.js';
import {
  addRelease,
  CLOSED_LOSS,
  downgradeOperation,
  expireInOperation,
  extendOperation,
  LossCode,
  type Operation,
  type OperationBatch,
  type Outcome,
  OutcomeCode,
  stopRenewingOperation,
  tokenIdOf,
} from '../native/records.js';
import { isTraced, traced, tracing } from './diagnostics.js';
import type { Lock, LockJson, LockMode, SharedHandle } from './lock.js';
import { NestedLock } from './nested-lock.js';
import { originOf, setOrigin } from './origins.js';
import { type ErrorContext, toError } from './outcome.js';
import { refuseOnQuorum } from './quorum.js';
import { readTtl } from './times.js';

/** The state that all locks of a manager share. @internal */
export interface ManagerContext {
  readonly channel: NativeChannel;
  readonly errors: ErrorContext;
  readonly onLost: (lock: Lock, error: LockLostError) => void;
  readonly onAbandoned: (lock: Lock) => void;
  /** A release failed whose outcome nobody awaits. */
  readonly onUnreleased: (lock: Lock, error: unknown) => void;
}

/** A lock that was granted. @internal */
interface Grant {
  readonly name: string;
  readonly label: string;
  /** Whether `label` is the whole token, which the caller has given. */
  readonly isToken: boolean;
  readonly mode: LockMode;
  /** The limit and the permits of a share, as `termsOf` writes them. */
  readonly terms: string;
  readonly lease: number;
  readonly fence: number;
  /** Whether the end of the manager leaves the lock to expire. */
  readonly leaveToExpire: boolean;
  /** Whether the end of a request or a block awaits the release. */
  readonly awaitRelease: boolean;
}

// The flags of a lock are bits of one number, since there may be very many locks.
const RELEASED = 1;
/** The token was read and may be anywhere, so no other caller of this manager may own the lock with it. */
const EXPORTED = 2;
const SHARED = 4;
const LEFT_TO_EXPIRE = 8;
const ABANDONED = 16;
const UNAWAITED = 32;
/** The label is the whole token. */
const TOKEN = 64;
/** It was lost before its release, or the release has found out that it was. */
const LOST_BEFORE = 128;
/** Its release has no answer yet. */
const RELEASING = 256;
/** Another caller than the one that has begun the release waits for that answer. */
const AWAITED = 512;

/** The outcome of a release that nobody awaits. */
const UNREAD = Promise.resolve(true);

/** The function that is called when the release of a lock is answered: none for most. */
const answered = new WeakMap<HeldLock, (freed: boolean) => void>();

/** How many requests share a lock besides one: none for most. */
const others = new WeakMap<HeldLock, number>();

/**
 * A lock with a lease of its own.
 *
 * @internal
 */
export class HeldLock implements LockHandle, Operation, OutcomeReader<boolean>, SharedHandle {
  readonly name: string;
  readonly fence: number;

  /** Shared by all locks of the manager, since there may be very many. */
  readonly #manager: ManagerContext;
  readonly #lease: number;
  #place = 0;
  readonly #label: string;
  readonly #terms: string;
  readonly #since: number;
  #flags: number;
  #lostBecause: LockLostReason | undefined;
  /** Made on the first access to `signal`: most locks never need one. */
  #abort: AbortController | undefined;

  constructor(manager: ManagerContext, grant: Grant, since = manager.channel.now) {
    const { name, label, isToken, mode, terms, lease, fence, leaveToExpire, awaitRelease } = grant;
    this.name = name;
    this.fence = fence;
    this.#manager = manager;
    this.#lease = lease;
    this.#label = label;
    this.#terms = terms;
    this.#since = since;
    this.#flags =
      (mode === 'shared' ? SHARED : 0) |
      (leaveToExpire ? LEFT_TO_EXPIRE : 0) |
      (isToken ? TOKEN : 0) |
      (awaitRelease ? 0 : UNAWAITED);
  }

  /** The lock that was granted just now. @internal */
  static begin(manager: ManagerContext, grant: Grant): HeldLock {
    const lock = new HeldLock(manager, grant);
    manager.channel.watch(lock);
    return lock;
  }

  /** @internal */
  get lease(): number {
    return this.#lease;
  }

  /** @internal */
  get place(): number {
    return this.#place;
  }

  /** @internal */
  set place(place: number) {
    this.#place = place;
  }

  /** @internal */
  get since(): number {
    return this.#since;
  }

  /** How long ago it was granted, in ms. @internal */
  get age(): number {
    return this.#manager.channel.clock() - this.#since;
  }

  /** @internal */
  get lasts(): boolean {
    return isLeaderLock(this.name);
  }

  /** @internal */
  lose(code: number): () => void {
    const reason = REASONS[code] ?? 'expired';
    // The caller asked for this end itself, so the listeners of all losses need not know.
    const quiet = code === CLOSED_LOSS || code === LossCode.Ended;
    if (quiet && this.#is(RELEASED)) return () => {};
    this.#lostBecause = reason;
    return () => {
      this.#abort?.abort(this.#lost(reason));
      if (!quiet) this.#manager.onLost(this, this.#abort?.signal.reason ?? this.#lost(reason));
    };
  }

  /**
   * None for a lock whose signal was read: a listener of that signal may use the lock, unseen from here. None for a
   * lock that is left to expire: its caller may forget it.
   *
   * @internal
   */
  standIn(): HeldLock | undefined {
    if (this.#isOver() || this.#abort !== undefined || this.#is(LEFT_TO_EXPIRE | ABANDONED))
      return undefined;
    const { name, fence, mode } = this;
    const grant = {
      name,
      fence,
      mode,
      label: this.#label,
      isToken: this.#is(TOKEN),
      terms: this.#terms,
      lease: this.#lease,
      leaveToExpire: false,
      awaitRelease: !this.#is(UNAWAITED),
    };
    const standIn = new HeldLock(this.#manager, grant, this.#since);
    setOrigin(standIn, originOf(this));
    return standIn;
  }

  /** @internal */
  abandon(): () => void {
    this.#flags |= ABANDONED;
    return () => this.#manager.onAbandoned(this);
  }

  get mode(): LockMode {
    return this.#is(SHARED) ? 'shared' : 'exclusive';
  }

  get permits(): number {
    return permitsIn(this.#terms);
  }

  /** The limit of its semaphore; `null` if it gave none. @internal */
  get limit(): number | null {
    return limitIn(this.#terms);
  }

  get token(): string {
    // The next caller of this manager may own the lock with it.
    if (this.#is(RELEASED)) return '';
    this.#flags |= EXPORTED;
    if (this.#is(TOKEN)) return this.#label;
    const { client } = this.#manager.errors;
    return writeToken(client, tokenIdOf(this.#lease), this.#terms, this.#label);
  }

  get held(): boolean {
    return !this.#isOver() && this.#manager.channel.remaining(this.#lease) > 0;
  }

  get remaining(): number {
    return this.#isOver() ? 0 : Math.floor(this.#manager.channel.remaining(this.#lease));
  }

  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      noticing(this.#abort.signal, () => this.#abortIfLost());
      this.#manager.channel.refresh(this);
    }
    this.#abortIfLost();
    return this.#abort.signal;
  }

  /** A loss aborts the signal later, and at once if that is read. */
  #abortIfLost(): void {
    this.#noticeLoss();
    if (this.#lostBecause !== undefined) this.#abort?.abort(this.#lost(this.#lostBecause));
  }

  assertHeld(): void {
    if (this.held) return;
    this.#noticeLoss();
    throw this.#lost();
  }

  async extend(ttl?: Duration): Promise<void> {
    const ms = ttl === undefined ? undefined : readTtl(ttl);
    return this.#traced(tracing.extend, () => this.#extend(ms));
  }

  async #extend(ttl?: number): Promise<void> {
    if (this.#is(RELEASED)) throw this.#lost();
    const outcome = await this.#manager.channel.submit(extendOperation(this.#lease, ttl));
    if (outcome.code === OutcomeCode.Done) return;
    this.#noticeLoss();
    if (outcome.code === OutcomeCode.Lost) throw this.#lost();
    throw toError(outcome, this.#manager.errors, 'extend', this.name);
  }

  async stopRenewing(): Promise<boolean> {
    if (!this.held) return false;
    this.#flags |= LEFT_TO_EXPIRE;
    // A stand-in would not know that its caller may forget the lock from now on.
    this.#manager.channel.refresh(this);
    const outcome = await this.#manager.channel.submit(stopRenewingOperation(this.#lease));
    return outcome.code === OutcomeCode.Done;
  }

  /**
   * The owner that the caller has named; `null` if it has named none.
   *
   * @internal
   */
  get owner(): string | null {
    return this.#is(TOKEN) ? null : ownerIn(this.#label);
  }

  /**
   * Ends this handle alone, of a lock without renewal that is left to expire: another token is about to get it.
   *
   * @internal
   */
  disown(): void {
    if (this.#is(RELEASED)) return;
    this.#flags |= RELEASED;
    this.#manager.channel.forget(this);
  }

  async downgrade(): Promise<boolean> {
    if (!this.held) return false;
    if (this.#is(SHARED)) return true;
    refuseOnQuorum(this.#manager.errors, 'downgrade');
    this.#refuseOwned();
    const outcome = await this.#manager.channel.submit(downgradeOperation(this.#lease));
    if (outcome.code === OutcomeCode.Lost || outcome.code === OutcomeCode.Closed) return false;
    if (outcome.code !== OutcomeCode.Done) {
      throw toError(outcome, this.#manager.errors, 'downgrade', this.name);
    }
    this.#flags |= SHARED;
    this.#manager.channel.refresh(this);
    return true;
  }

  /** The lock of an owner stays exclusive: each hold of a shared lock has an owner of its own. */
  #refuseOwned(): void {
    const { name, owner } = this;
    if (owner === null) return;
    const message =
      `lock "${name}" has the owner "${owner}", and cannot be downgraded: a lock that is shared has no single owner; ` +
      `release it and acquire it with mode 'shared', without owner`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }

  /** Makes the lease last at least `ttl` ms from now, and leaves the lock to expire. @internal */
  async expireIn(ttl: number): Promise<void> {
    if (this.#is(RELEASED)) throw this.#lost();
    const outcome = await this.#manager.channel.submit(expireInOperation(this.#lease, ttl));
    this.#noticeLoss();
    if (outcome.code === OutcomeCode.Lost) throw this.#lost();
    if (outcome.code !== OutcomeCode.Done) {
      throw toError(outcome, this.#manager.errors, 'extend', this.name);
    }
    this.#flags |= RELEASED;
    this.#manager.channel.forget(this);
  }

  release(): Promise<boolean> {
    if (!isTraced(tracing.release)) return this.#release();
    return this.#traced(tracing.release, () => this.#release());
  }

  /** As `release`, but another manager comes first that waits longer than the callers of this one. @internal */
  releaseToAll(): Promise<boolean> {
    this.#flags |= EXPORTED;
    return this.release();
  }

  #release(): Promise<boolean> {
    if (this.#is(RELEASED)) return Promise.resolve(false);
    if (this.#lostBecause !== undefined) this.#flags |= LOST_BEFORE;
    this.#flags |= RELEASED | RELEASING;
    return this.#manager.channel.run(this);
  }

  /**
   * Adds its release to a batch.
   *
   * @internal
   */
  addTo(batch: OperationBatch, entry: number): void {
    addRelease(batch, entry, this.#lease, this.#is(EXPORTED));
  }

  /**
   * Reads the outcome of the release.
   *
   * @internal
   */
  read(outcome: Outcome): boolean {
    // Only now: a loss that the core has found before the release is reported first.
    this.#manager.channel.forget(this);
    if (outcome.code === OutcomeCode.Lost) this.#flags |= LOST_BEFORE;
    if (this.#is(AWAITED)) answered.get(this)?.(outcome.code === OutcomeCode.Done);
    this.#flags &= ~(RELEASING | AWAITED);
    if (outcome.code === OutcomeCode.Done) return true;
    // Closing a manager releases everything.
    if (outcome.code === OutcomeCode.Closed || outcome.code === OutcomeCode.Lost) return false;
    throw toError(outcome, this.#manager.errors, 'release', this.name);
  }

  toJSON(): LockJson {
    const { name, mode, token, fence, owner } = this;
    return { name, mode, token, fence, ...(owner === null ? {} : { owner }) };
  }

  enter(): SharedHandle {
    others.set(this, (others.get(this) ?? 0) + 1);
    return new NestedLock(this);
  }

  exit(awaited = !this.#is(UNAWAITED)): Promise<boolean> {
    const count = others.get(this) ?? 0;
    if (count === 0) return this.#end(awaited);
    others.set(this, count - 1);
    return Promise.resolve(true);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end(!this.#is(UNAWAITED));
  }

  #end(awaited: boolean): Promise<boolean> {
    if (awaited) return this.#releaseOnce();
    const isOver = this.#is(RELEASED) && !this.#is(RELEASING);
    if (!isOver) this.#releaseUnawaited();
    return UNREAD;
  }

  /** Releases it, or waits for the answer to a release under way. */
  #releaseOnce(): Promise<boolean> {
    if (!this.#is(RELEASING)) return this.release();
    this.#flags |= AWAITED;
    const before = answered.get(this);
    return new Promise((resolve) => {
      answered.set(this, (freed) => {
        before?.(freed);
        resolve(freed);
      });
    });
  }

  /** Hands the release to the connection. Later operations of this manager on the lock follow it there. */
  #releaseUnawaited(): void {
    this.#releaseOnce().then(
      () => this.#tellLossBefore(),
      (error: unknown) => {
        // A release without an answer is repeated.
        if (!isUnreachable(error)) this.#manager.onUnreleased(this, error);
      },
    );
  }

  /** Tells of a loss that only the release has found out, once. That of a lock that was left to expire is none. */
  #tellLossBefore(): void {
    const isNew = this.#is(LOST_BEFORE) && this.#lostBecause === undefined;
    if (!isNew || this.#is(LEFT_TO_EXPIRE)) return;
    this.#lostBecause = 'expired';
    this.#manager.onLost(this, this.#lost());
  }

  #traced<T>(on: typeof tracing.extend, operation: () => Promise<T>): Promise<T> {
    const { name } = this;
    return traced(on, { name, errors: this.#manager.errors, holder: this }, operation);
  }

  // Not a getter: V8 calls its runtime for each use of a private one.
  #isOver(): boolean {
    return this.#is(RELEASED) || this.#lostBecause !== undefined;
  }

  /** Reports a loss by the core's clock at once, though the event loop may have been blocked since. */
  #noticeLoss(): void {
    if (!this.#isOver() && !this.held) this.#manager.channel.catchUp();
  }

  /** Whether one of `flags` is set. */
  #is(flags: number): boolean {
    return (this.#flags & flags) !== 0;
  }

  #lost(
    reason = this.#is(RELEASED) && !this.#is(LOST_BEFORE)
      ? 'released'
      : (this.#lostBecause ?? 'expired'),
  ): LockLostError {
    const elsewhere = this.owner === null ? '' : (OWNER_HAS[reason] ?? '');
    const what = `lock "${this.name}" ${WHAT_HAPPENED[reason]}${elsewhere}`;
    const advice = `; it was held on ${this.#manager.errors.server}: acquire it again before the work continues`;
    const message = reason === 'released' ? what : `${what}${advice}`;
    return new LockLostError(message, this.name, reason);
  }
}

const REASONS: Readonly<Record<number, LockLostReason>> = {
  [CLOSED_LOSS]: 'closed',
  [LossCode.Adopted]: 'adopted',
  [LossCode.Ended]: 'expired',
  [LossCode.Expired]: 'expired',
  [LossCode.MaxHold]: 'maxHold',
  [LossCode.Stalled]: 'stalled',
  [LossCode.Stolen]: 'stolen',
};

/** The acts of an owner elsewhere that end a hold so. */
const OWNER_HAS: Readonly<Partial<Record<LockLostReason, string>>> = {
  adopted: ', or its owner has acquired it again',
  expired: ', or its owner has released it elsewhere',
  stolen: ', or its owner has released it elsewhere',
};

const WHAT_HAPPENED: Readonly<Record<LockLostReason, string>> = {
  adopted: 'is not held any more: another process has adopted it',
  closed: 'is not held any more: its manager was closed',
  expired: 'is not held any more: its lease ran out, or its key was deleted',
  maxHold: 'is not held any more: it was held for maxHold',
  released: 'was released',
  stalled: 'is not held any more: the event loop was blocked for longer than stallTimeout',
  stolen: 'is not held any more: somebody has stolen it, or released it by force',
};
