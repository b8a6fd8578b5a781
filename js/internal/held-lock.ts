import { traced, tracing } from '../api/diagnostics.js';
import { LockLostError, type LockLostReason } from '../api/errors.js';
import type { Lock, LockJson, SharedHandle } from '../api/lock.js';
import { checkTtl, type LockMode } from '../api/options.js';
import { CLOSED_LOSS, LossCode, OpKind, OutcomeCode, type Port } from '../native/bridge.js';
import type { Holder } from './holds.js';
import { NestedLock } from './nested-lock.js';
import { originOf, setOrigin } from './origins.js';
import { type Context, toError } from './outcome.js';
import { refuseOnQuorum } from './quorum.js';

/** What all locks of a manager have in common. @internal */
export interface Home {
  readonly port: Port;
  readonly context: Context;
  readonly onLost: (lock: Lock, error: LockLostError) => void;
  readonly onAbandoned: (lock: Lock) => void;
}

/** What was granted. @internal */
export interface Grant {
  readonly name: string;
  readonly label: string;
  readonly mode: LockMode;
  readonly lease: number;
  readonly fence: number;
  /** Whether the lock is to be left to its lease. */
  readonly keep: boolean;
}

/** What is true of a lock, in one number: there may be very many locks. */
const RELEASED = 1;
/** Anybody may have the token: no other caller may own the lock with it. */
const EXPORTED = 2;
const SHARED = 4;
const KEPT = 8;
const ABANDONED = 16;

/**
 * A lock with a lease of its own.
 *
 * @internal
 */
export class HeldLock implements Holder, SharedHandle {
  readonly name: string;
  readonly fence: number;

  /** Kept in one place: there may be very many locks. */
  readonly #home: Home;
  readonly #lease: number;
  readonly #label: string;
  readonly #since: number;
  #state: number;
  #lostBecause: LockLostReason | undefined;
  /** Made when somebody asks for it: most locks are released unwatched. */
  #abort: AbortController | undefined;
  /** Its owner, and the nested requests that share it. */
  #users = 1;

  constructor(home: Home, { name, label, mode, lease, fence, keep }: Grant, since = home.port.now) {
    this.name = name;
    this.fence = fence;
    this.#home = home;
    this.#lease = lease;
    this.#label = label;
    this.#since = since;
    this.#state = (mode === 'shared' ? SHARED : 0) | (keep ? KEPT : 0);
  }

  /** The lock that was granted just now. @internal */
  static begin(home: Home, grant: Grant): HeldLock {
    const lock = new HeldLock(home, grant);
    home.port.watch(grant.lease, lock);
    return lock;
  }

  /** @internal */
  get since(): number {
    return this.#since;
  }

  /** @internal */
  lose(code: number): () => void {
    const reason = REASONS[code] ?? 'expired';
    this.#lostBecause = reason;
    // Its own end is what its caller asked for: nothing that a listener of all losses has to know.
    const quiet = code === CLOSED_LOSS || code === LossCode.Ended;
    return () => {
      if (quiet && (this.#is(RELEASED) || this.#abort === undefined)) return;
      const error = this.#lost(reason);
      this.#abort?.abort(error);
      if (!quiet) this.#home.onLost(this, error);
    };
  }

  /**
   * None for a lock whose signal was asked for: a listener of that signal uses the lock, and cannot be seen from
   * here. None for a lock that is left to its lease, which may be forgotten.
   *
   * @internal
   */
  twin(): HeldLock | undefined {
    if (this.#isOver || this.#abort !== undefined || this.#is(KEPT | ABANDONED)) return undefined;
    const { name, fence, mode } = this;
    const grant = { name, fence, mode, label: this.#label, lease: this.#lease, keep: false };
    const twin = new HeldLock(this.#home, grant, this.#since);
    setOrigin(twin, originOf(this));
    return twin;
  }

  /** @internal */
  abandon(): () => void {
    this.#state |= ABANDONED;
    return () => this.#home.onAbandoned(this);
  }

  get mode(): LockMode {
    return this.#is(SHARED) ? 'shared' : 'exclusive';
  }

  get token(): string {
    this.#state |= EXPORTED;
    const attempt = Math.floor(this.#lease / GENERATIONS);
    const token = `hf1.${this.#home.context.client}.${attempt}`;
    return this.#label === '' ? token : `${token}.${this.#label}`;
  }

  get held(): boolean {
    return !this.#isOver && this.#home.port.remaining(this.#lease) > 0;
  }

  get remaining(): number {
    return this.#isOver ? 0 : Math.floor(this.#home.port.remaining(this.#lease));
  }

  get signal(): AbortSignal {
    this.#noticeLoss();
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      this.#home.port.refresh(this.#lease, this);
      if (this.#lostBecause !== undefined) this.#abort.abort(this.#lost());
    }
    return this.#abort.signal;
  }

  assertHeld(): void {
    if (this.held) return;
    this.#noticeLoss();
    throw this.#lost();
  }

  async extend(ttl?: number): Promise<void> {
    if (ttl !== undefined) checkTtl(ttl);
    return traced(tracing.extend, this.name, this.#home.context.server, () => this.#extend(ttl));
  }

  async #extend(ttl?: number): Promise<void> {
    if (this.#is(RELEASED)) throw this.#lost();
    const outcome = await this.#home.port.submit(OpKind.Extend, [this.#lease, ttl ?? -1]);
    if (outcome.code === OutcomeCode.Done) return;
    this.#noticeLoss();
    if (outcome.code === OutcomeCode.Lost) throw this.#lost();
    throw toError(outcome, this.#home.context, 'extend', this.name);
  }

  async downgrade(): Promise<boolean> {
    if (!this.held) return false;
    if (this.#is(SHARED)) return true;
    refuseOnQuorum(this.#home.context, 'downgrade');
    const outcome = await this.#home.port.submit(OpKind.Downgrade, [this.#lease]);
    if (outcome.code === OutcomeCode.Lost || outcome.code === OutcomeCode.Closed) return false;
    if (outcome.code !== OutcomeCode.Done) {
      throw toError(outcome, this.#home.context, 'downgrade', this.name);
    }
    this.#state |= SHARED;
    this.#home.port.refresh(this.#lease, this);
    return true;
  }

  release(): Promise<boolean> {
    return traced(tracing.release, this.name, this.#home.context.server, () => this.#release());
  }

  async #release(): Promise<boolean> {
    if (this.#is(RELEASED)) return false;
    this.#state |= RELEASED;
    const exported = this.#is(EXPORTED) ? 1 : 0;
    const outcome = await this.#home.port.submit(OpKind.Release, [this.#lease, exported]);
    // Not before: a loss that the core had found ahead of it is told first.
    this.#home.port.forget(this.#lease);
    if (outcome.code === OutcomeCode.Done) return true;
    // A manager that is closed has given everything back.
    if (outcome.code === OutcomeCode.Lost || outcome.code === OutcomeCode.Closed) return false;
    throw toError(outcome, this.#home.context, 'release', this.name);
  }

  toJSON(): LockJson {
    const { name, mode, token, fence } = this;
    return { name, mode, token, fence };
  }

  enter(): SharedHandle {
    this.#users += 1;
    return new NestedLock(this);
  }

  leave(): Promise<boolean> {
    this.#users -= 1;
    return this.#users === 0 ? this.release() : Promise.resolve(true);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  get #isOver(): boolean {
    return this.#is(RELEASED) || this.#lostBecause !== undefined;
  }

  /** The event loop may have been blocked since: what the core's clock says is told before anything else. */
  #noticeLoss(): void {
    if (!this.#isOver && !this.held) this.#home.port.catchUp();
  }

  /** Whether one of `facts` is true of it. */
  #is(facts: number): boolean {
    return (this.#state & facts) !== 0;
  }

  #lost(
    reason = this.#is(RELEASED) ? 'released' : (this.#lostBecause ?? 'expired'),
  ): LockLostError {
    return new LockLostError(`lock "${this.name}" ${WHAT_HAPPENED[reason]}`, this.name, reason);
  }
}

/** A lease is numbered by its attempt and by how often the lock was handed on since. */
const GENERATIONS = 16;

/** The lease of the attempt that is so many behind the one of `lease`. @internal */
export function nextLease(lease: number, behind: number): number {
  return lease + behind * GENERATIONS;
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

const WHAT_HAPPENED: Readonly<Record<LockLostReason, string>> = {
  adopted: 'is not held any more: another process has adopted it',
  closed: 'is not held any more: its manager was closed',
  expired: 'is not held any more: its lease ran out, or its key was deleted',
  maxHold: 'is not held any more: it was held for maxHold',
  released: 'was released',
  stalled: 'is not held any more: the event loop was blocked for longer than stallTimeout',
  stolen: 'is not held any more: somebody has stolen it, or released it by force',
};
