/** The channel of one manager to its native half. Nothing here knows what a lock is. */

import { availableParallelism, cpus } from 'node:os';
import type { native } from './addon.js';
import { callListeners, nextTurn, orFallback, retryOnce, soon } from './calls.js';
import { type LockHandle, LockHandles } from './handles.js';
import {
  deliver,
  type OutcomeReader,
  operations,
  type Resolve,
  type Ticket,
} from './operations.js';
import {
  CLOSED,
  CLOSED_LOSS,
  closeOperation,
  leasesOf,
  type Operation,
  OperationBatch,
  type Outcome,
} from './records.js';

/** The options of a manager for the native core. @internal */
export type ChannelOptions = Parameters<InstanceType<typeof native.Bridge>['connect']>[2];

/** An operation under way, and its outcome to be. @internal */
interface Pending extends Ticket {
  readonly outcome: Promise<Outcome>;
}

const US_PER_MS = 1_000;
/** The entry of an operation that was not started. */
const NO_ENTRY = -1;

/** On the only core of a machine a server that works meanwhile only interrupts. */
const HAS_CORES = availableParallelism() > 1 || cpus().length > 1;

/** Gets what happens to the connection: a `NoticeCode`, and its text. */
type NoticeListener = (code: number, text: string) => void;

const NOTHING = () => {};
/**
 * Resolves the promise that was made last, until that is taken. With a function for each promise an operation leaves a
 * tenth more garbage.
 */
let resolveLast: Resolve = NOTHING;
const keepResolve = (resolve: Resolve) => {
  resolveLast = resolve;
};
/** Keeps it no more: it would keep the promise, its lock and the manager from being collected. */
const takeResolve = (): Resolve => {
  const resolve = resolveLast;
  resolveLast = NOTHING;
  return resolve;
};

/** The operations, leases and notices of one manager. @internal */
export class NativeChannel {
  readonly #native: InstanceType<typeof native.NativeManager>;
  /** Start the operations of the buffers, count the requests without an answer, and tell how long a lease lasts: see `Submitter`. */
  readonly #submit: ReturnType<InstanceType<typeof native.NativeManager>['submitter']>;
  readonly #unanswered: ReturnType<InstanceType<typeof native.NativeManager>['counter']>;
  readonly #remaining: ReturnType<InstanceType<typeof native.NativeManager>['leases']>;
  readonly #handles = new LockHandles();
  #noticeListener: NoticeListener | undefined;
  /** Notices that came before the listener. */
  #earlyNotices: [code: number, text: string][] = [];
  /** Losses of this turn of leases whose handles are not known yet. */
  readonly #earlyLosses = new Map<number, number>();
  /** The operations of the current microtask. */
  readonly #batch = new OperationBatch();
  /** Whether a part of a batch is sent early. Several servers work at the same time as it is. */
  readonly #overlaps: boolean;
  /** Whether the locks are in a store of this process, which has a clock of its own. */
  readonly isMovable: boolean;
  /** The requests without an answer, and the operations sent since; unknown until a microtask starts an operation. */
  #underWay: number | undefined;
  /** The requests without an answer when the last operations were sent, and how often records had been read by then. */
  #lastUnanswered = 0;
  #knownAt = -1;
  /** The end of the manager, once it has begun. */
  #closing: Pending | undefined;
  /** Whether the manager has listeners. */
  #heard = false;
  #retained = false;

  /** Called when the manager is closed. */
  readonly #ended: () => void;

  /** Starts a manager; `opened` is called with whether it could connect, and `ended` when it is closed. */
  constructor(options: ChannelOptions, opened: Resolve, ended: () => void = NOTHING) {
    this.#ended = ended;
    const { cluster, memory, quorum } = options;
    this.#overlaps = HAS_CORES && (cluster ?? memory ?? quorum) === undefined;
    this.isMovable = memory !== undefined;
    const id = operations.nextId();
    const { numbers, text } = this.#batch;
    const buffers = { numbers, text, records: operations.records };
    const connect = (entry: number) => operations.bridge.connect(entry, id, options, buffers);
    this.#native = operations.takeFor(connect, opened, this);
    this.#submit = retryOnce(() => this.#native.submitter());
    this.#unanswered = retryOnce(() => this.#native.counter());
    this.#remaining = retryOnce(() => this.#native.leases());
    // Last: a manager that could not start has nothing to close.
    operations.register(id, this);
  }

  /** Ends the manager. Its locks count as lost from now on, and later operations are refused. */
  close(): Promise<Outcome> {
    this.loseAll(CLOSED_LOSS);
    this.#closing ??= this.begin(closeOperation());
    this.#ended();
    this.#updateRetention();
    return this.#closing.outcome;
  }

  /**
   * Starts an operation at the end of this microtask, or a little earlier, together with others. Answers what it makes of
   * its outcome, or rejects with what it throws.
   */
  run<T>(operation: Operation & OutcomeReader<T>): Promise<T> {
    const result = new Promise<T>(keepResolve);
    this.#start(operation, takeResolve(), operation);
    return result;
  }

  /** Starts an operation, and answers its outcome. */
  submit(operation: Operation): Promise<Outcome> {
    return this.begin(operation).outcome;
  }

  /** Does the same, and answers what `cancel` takes. */
  begin(operation: Operation): Pending {
    const outcome = new Promise<Outcome>(keepResolve);
    const entry = this.#start(operation, takeResolve());
    return { entry, generation: operations.generation(entry), outcome };
  }

  /** Starts an operation, and answers its entry. */
  #start(operation: Operation, resolve: Resolve, reader?: OutcomeReader<unknown>): number {
    if (this.#closing !== undefined) {
      deliver(CLOSED, resolve, reader);
      return NO_ENTRY;
    }
    const entry = operations.take(resolve, this, reader);
    operation.addTo(this.#batch, entry);
    this.#flushSoon();
    return entry;
  }

  /** Ends an operation early, if it has no outcome yet. */
  cancel(ticket: Ticket): void {
    if (this.#closing !== undefined || !operations.isOpen(ticket)) return;
    this.#batch.addCancel(ticket.entry);
    this.#flushSoon();
  }

  /** Ends all operations early whose reader `matches`. */
  cancelAll(matches: (reader: unknown) => boolean): void {
    if (this.#closing !== undefined) return;
    for (const entry of operations.entriesOf(this, matches)) {
      this.#batch.addCancel(entry);
      this.#flushSoon();
    }
  }

  /** The time of the grants that are read now, by the clock of what is held. */
  get now(): number {
    return this.isMovable ? Math.floor(this.clock()) : operations.now;
  }

  /** The clock of what is held, in ms. */
  clock(): number {
    if (!this.isMovable) return performance.now();
    return orFallback(() => this.#native.clock(), 0) / US_PER_MS;
  }

  /** Moves the clock of a store in this process by `ms`. JavaScript hears of each moment before the next. */
  async advance(ms: number): Promise<void> {
    const step = (until: number) => orFallback(() => this.#native.advance(until), false);
    // Operations that the caller has begun are under way once the event loop has turned.
    await nextTurn();
    step(0);
    const until = this.#native.clock() + ms * US_PER_MS;
    do {
      operations.drain();
      await nextTurn();
    } while (step(until));
  }

  /** Calls `handle.lose`, once, when its lease is lost. */
  watch(handle: LockHandle): void {
    const early = this.#closing === undefined ? this.#earlyLosses.get(handle.lease) : CLOSED_LOSS;
    this.#handles.add(handle);
    this.#updateRetention();
    operations.checkForAbandoned();
    if (early !== undefined) this.#lose(handle, early);
  }

  /** Refers to `handle` again: a stand-in that was made of it before lacks what has changed since. */
  refresh(handle: LockHandle): void {
    this.#handles.refresh(handle);
  }

  /** Forgets a lease whose handle knows that it is over. */
  forget(handle: LockHandle): void {
    this.#handles.delete(handle);
    this.#updateRetention();
  }

  /** The handles of all leases, or their stand-ins. */
  handles(): LockHandle[] {
    return this.#handles.all();
  }

  /** All leases were lost. */
  loseAll(reason: number): void {
    for (const handle of this.#handles.all()) this.#lose(handle, reason);
  }

  /** A lease was lost; `reason` is a `LossCode`. */
  lose(lease: number, reason: number): void {
    const handle = this.#handles.find(lease);
    if (handle === undefined) {
      // The lease was released; or it was lost while the event loop was blocked, and its grant is read in this turn.
      if (this.#earlyLosses.size === 0) setImmediate(() => this.#earlyLosses.clear());
      this.#earlyLosses.set(lease, reason);
      return;
    }
    this.#lose(handle, reason);
  }

  #lose(handle: LockHandle, reason: number): void {
    this.#handles.delete(handle);
    this.#updateRetention();
    const listeners = handle.lose(reason);
    // Later: a listener must not run in the middle of the code that finds the loss out.
    soon(() => callListeners(listeners));
  }

  /** Reports the locks that nothing refers to any more. Answers whether any lock is held. */
  findAbandoned(): boolean {
    for (const listeners of this.#handles.findAbandoned(this.clock())) callListeners(listeners);
    return this.#handles.size > 0;
  }

  /** How many locks nothing referred to any more while they were held, since the beginning. */
  get abandoned(): number {
    return this.#handles.abandoned;
  }

  /** For how long the oldest lock has been held that is to end before its process does, in ms. */
  get oldestHold(): number {
    return this.#ageOf(this.#handles.oldest) ?? 0;
  }

  /** The time since then, in ms. */
  #ageOf(since: number | undefined): number | undefined {
    return since === undefined ? undefined : Math.max(0, Math.floor(this.clock() - since));
  }

  /** For how long the lock with this token has been held, in ms; undefined if no caller of this manager holds it. */
  heldFor(tokenId: number): number | undefined {
    for (const lease of leasesOf(tokenId)) {
      const age = this.#ageOf(this.#handles.find(lease)?.since);
      if (age !== undefined) return age;
    }
    return undefined;
  }

  /** Reads at once what the event loop would read later. */
  catchUp(): void {
    orFallback(() => this.#native.turn(), false);
    operations.drain();
  }

  /** Takes note of whether the manager has listeners. */
  setHeard(heard: boolean): void {
    this.#heard = heard;
    this.#updateRetention();
  }

  /** Has `listener` called with all notices, also with those that came before. */
  onNotice(listener: NoticeListener): void {
    this.#noticeListener = listener;
    for (const [code, text] of this.#earlyNotices.splice(0)) this.notify(code, text);
  }

  /** Something happened to the connection. */
  notify(code: number, text: string): void {
    const listener = this.#noticeListener;
    if (listener === undefined) this.#earlyNotices.push([code, text]);
    else callListeners(() => listener(code, text));
  }

  /** The counters of the manager. */
  stats(): ReturnType<InstanceType<typeof native.NativeManager>['stats']> {
    return retryOnce(() => this.#native.stats());
  }

  /** The time by the clock of a lock's server, in ms since 1970; undefined if it is unknown. */
  serverTime(name: string): number | undefined {
    return orFallback(() => this.#native.serverTime(name), null) ?? undefined;
  }

  /** How long a lease is still valid, in ms, by the core's clock. */
  remaining(lease: number): number {
    return orFallback(() => this.#remaining(lease), 0);
  }

  /** Keeps the manager from being collected while it holds locks or has listeners. */
  #updateRetention(): void {
    const needed = (this.#heard || this.#handles.size > 0) && this.#closing === undefined;
    if (needed === this.#retained) return;
    this.#retained = needed;
    operations.retain(this, needed);
  }

  /**
   * Sends as soon as half as many operations wait as the server has requests to answer, so the first at once to a server
   * that has none: it works on some while JavaScript makes the next. Fewer at a time would keep the server busier, but
   * each write has its price. A batch that is full is sent in any case.
   */
  #flushSoon(): void {
    const { count, isFull } = this.#batch;
    if (count === 1) soon(() => this.#flushAll());
    if (this.#overlaps) this.#underWay ??= this.#countUnanswered();
    if (isFull || count >= (this.#underWay ?? Number.POSITIVE_INFINITY) / 2) this.#flush();
  }

  /** How many requests have no answer. The core is asked only if answers may have come since it last said so. */
  #countUnanswered(): number {
    const { reads } = operations;
    return reads === this.#knownAt ? this.#lastUnanswered : orFallback(this.#unanswered, 0);
  }

  #flushAll(): void {
    this.#flush();
    this.#underWay = undefined;
  }

  #flush(): void {
    if (this.#batch.count === 0) return;
    if (this.#underWay !== undefined) this.#underWay += this.#batch.count;
    let records = 0;
    const failed = this.#batch.flush((count, length, long) => {
      const submit = () => {
        records = this.#submit(count, length, operations.hasRoom, long);
        this.#lastUnanswered = operations.unanswered;
        this.#knownAt = operations.reads;
        return true;
      };
      return orFallback(submit, false);
    });
    operations.fail(failed);
    operations.readBetween(records);
  }
}
