/**
 * The way to the native core and back: a table of slots, one submit per microtask, one drain per
 * wake-up. Nothing here knows what a lock is.
 */

import type { QueryPage, ServerSurvey } from '../../native/binding.js';
import { type Holder, Holds } from '../internal/holds.js';
import { native } from './addon.js';

const { LossCode, NewsCode, Notice, OpKind, OutcomeCode } = native;

/** @internal */
export { LossCode, NewsCode, OpKind, OutcomeCode };

/** A `LossCode` of this side: whoever closes a manager gives its locks up. @internal */
export const CLOSED_LOSS = -1;

/** How an operation ended. `a` and `b` depend on `code`, see `OutcomeCode`. */
export interface Outcome {
  readonly code: number;
  readonly a: number;
  readonly b: number;
  /** What happened, for outcomes that have a text. */
  readonly text: {
    readonly message: string;
    readonly serverCode?: string;
    readonly key?: string;
    readonly holder?: string;
    readonly position?: number;
    readonly page?: QueryPage;
    readonly surveys?: ServerSurvey[];
  } | null;
}

const CLOSED: Outcome = { code: OutcomeCode.Closed, a: 0, b: 0, text: null };
const INTERNAL: Outcome = { code: OutcomeCode.Internal, a: 0, b: 0, text: null };

/** Numbers per record and per operation: fixed by the native side. */
const RECORD_LENGTH = 4;
const OP_LENGTH = 7;
const DRAIN_RECORDS = 256;
/** Room for so many operations is kept from one microtask to the next. */
const OPS_KEPT = 256;
/** How often the bridge looks whether the locks that are held are still referred to, in ms. */
const LOOK_MS = 1_000;
/** How long the end of a process waits for what it gives back, in ms. */
const FAREWELL_MS = 100;

/** The timers of the process: the fake ones that a test puts in their place may have no `unref`. */
const { clearInterval, setInterval } = globalThis;

type Resolve = (outcome: Outcome) => void;

const NOW = Promise.resolve();

/** `queueMicrotask`, which fake timers replace: under them an acquire would never be sent. */
function soon(job: () => void): void {
  void NOW.then(job);
}

/** A call that panics in the core throws, and has done nothing: it is made once more. */
function again<T>(call: () => T): T {
  try {
    return call();
  } catch {
    return call();
  }
}

/** The same, where there is something to go on with if it throws each time. */
function orElse<T>(call: () => T, otherwise: T): T {
  try {
    return again(call);
  } catch {
    return otherwise;
  }
}

/** Calls listeners. What one throws is the process's affair, as with an EventTarget, and stops nothing here. */
function tell(listeners: () => void): void {
  try {
    listeners();
  } catch (error) {
    process.nextTick(() => {
      throw error;
    });
  }
}

/** The operations of this environment that have no outcome yet. */
class Slots {
  readonly #resolvers: (Resolve | undefined)[] = [];
  /** Whose operations they are: what is under way keeps its manager. */
  readonly #owners: (Port | undefined)[] = [];
  readonly #free: number[] = [];
  /** How often each slot was taken: its name alone may be that of a later operation. */
  readonly #uses: number[] = [];
  readonly #records = new Float64Array(RECORD_LENGTH * DRAIN_RECORDS);
  /** Which part of the records is still to be read. */
  #at = 0;
  #end = 0;
  readonly #bridge = again(() => new native.Bridge(() => this.drain()));
  /** Operations under way keep the process alive; held locks do not. */
  readonly #keepAlive = setInterval(() => {}, 2 ** 30).unref();
  /** Which manager a notice is about. A manager that was collected needs none. */
  readonly #ports = new Map<number, WeakRef<Port>>();
  readonly #forgotten = new FinalizationRegistry<number>((id) => this.#ports.delete(id));
  /** Managers that hold or are listened to. If nothing else refers to one, its end would give up what it holds. */
  readonly #kept = new Set<Port>();
  #look: NodeJS.Timeout | undefined;
  #nextPort = 0;
  #open = 0;
  #now = 0;

  /** A number for a port that is about to start. */
  number(): number {
    return this.#nextPort++;
  }

  /** Has notices that have the number `id` brought to `port`. */
  enlist(id: number, port: Port): void {
    this.#ports.set(id, new WeakRef(port));
    this.#forgotten.register(port, id);
  }

  /** Keeps `port` from being collected, or does so no more. */
  keep(port: Port, wanted: boolean): void {
    if (wanted) this.#kept.add(port);
    else this.#kept.delete(port);
  }

  /** Looks from time to time which of the locks are still referred to, as long as any is held. */
  lookAround(): void {
    this.#look ??= setInterval(() => {
      const now = performance.now();
      let holding = false;
      for (const port of this.#kept) holding = port.look(now) || holding;
      if (holding) return;
      clearInterval(this.#look);
      this.#look = undefined;
    }, LOOK_MS).unref();
  }

  /**
   * When records were last read: the time of a grant, without asking the clock for each. In whole ms, which V8 keeps
   * in less memory than others.
   */
  get now(): number {
    return this.#now;
  }

  get bridge(): InstanceType<typeof native.Bridge> {
    return this.#bridge;
  }

  get open(): number {
    return this.#open;
  }

  /** Takes a slot; `resolve` is called once with the outcome that arrives in it. `owner` lives until then. */
  take(resolve: Resolve, owner?: Port): number {
    const slot = this.#free.pop() ?? this.#resolvers.length;
    this.#resolvers[slot] = resolve;
    this.#owners[slot] = owner;
    this.#uses[slot] = (this.#uses[slot] ?? 0) + 1;
    this.#open += 1;
    if (this.#open === 1) this.#keepAlive.ref();
    return slot;
  }

  /** How often `slot` was taken so far. */
  use(slot: number): number {
    return this.#uses[slot] ?? 0;
  }

  /** Whether the operation that took `slot` as its `use` has no outcome yet. */
  isOpen(slot: number, use: number): boolean {
    return this.#resolvers[slot] !== undefined && this.#uses[slot] === use;
  }

  /** Gives a slot back whose outcome has come, or never will. */
  free(slot: number): void {
    this.#resolvers[slot] = undefined;
    this.#owners[slot] = undefined;
    this.#free.push(slot);
    this.#open -= 1;
    if (this.#open === 0) this.#keepAlive.unref();
  }

  /** Reads all that is ready. A listener that is told of it may come here again: it goes on from there. */
  drain(): void {
    const records = this.#records;
    this.#now = Math.floor(performance.now());
    do {
      while (this.#at < this.#end) {
        const at = this.#at;
        this.#at += RECORD_LENGTH;
        this.#handle(
          records[at] as number,
          records[at + 1] as number,
          records[at + 2] as number,
          records[at + 3] as number,
        );
      }
      this.#at = 0;
      const count = orElse(() => this.#bridge.drain(records), BROKEN);
      this.#end = Math.max(0, count * RECORD_LENGTH);
      if (count === BROKEN) this.#giveUp();
    } while (this.#end > 0);
  }

  /** Nothing can be learned from the core any more: ends all that waits for it. */
  #giveUp(): void {
    this.#resolvers.forEach((resolve, slot) => {
      if (resolve === undefined) return;
      this.#resolvers[slot] = undefined;
      this.#open -= 1;
      resolve(INTERNAL);
    });
    if (this.#open === 0) this.#keepAlive.unref();
    for (const port of this.#ports.values()) port.deref()?.loseAll(LossCode.Expired);
  }

  /**
   * The process exits, and the event loop turns no more: gives back what all managers hold, and waits for
   * it a moment. `process.exit` and uncaught errors would leave it to the leases.
   */
  farewell(): void {
    const ends = [...this.#ports.values()].flatMap((port) => {
      try {
        return port.deref()?.farewell() ?? [];
      } catch {
        // Nobody is left who could be told, and the others have to give back theirs.
        return [];
      }
    });
    const never = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    // By counting: the clock may be that of a test, which stands still.
    for (let ms = 0; ms < FAREWELL_MS; ms++) {
      this.drain();
      if (!ends.some(({ slot, use }) => this.isOpen(slot, use))) return;
      Atomics.wait(never, 0, 0, 1);
    }
  }

  #handle(slot: number, code: number, a: number, b: number): void {
    if (slot >= 0) this.#settle(slot, code, a, b);
    else if (slot === Notice.Loss) this.#ports.get(code)?.deref()?.lose(a, b);
    else if (slot === Notice.News) {
      const text = orElse(() => this.#bridge.takeNews(), null) ?? '';
      this.#ports.get(code)?.deref()?.news(a, text);
    }
  }

  #settle(slot: number, code: number, a: number, b: number): void {
    const resolve = this.#resolvers[slot];
    if (resolve === undefined) return;
    const text = hasText(code) ? orElse(() => this.#bridge.takeText(slot), undefined) : null;
    this.free(slot);
    // Whoever has got something must be able to give it back.
    if (text !== undefined) resolve({ code, a, b, text });
    else resolve(isGrant(code) ? { code, a, b, text: null } : INTERNAL);
  }

  /** Ends operations of which the core has never heard. */
  fail(slots: readonly number[]): void {
    for (const slot of slots) {
      const resolve = this.#resolvers[slot];
      if (resolve === undefined) continue;
      this.free(slot);
      resolve(INTERNAL);
    }
  }
}

/** The slots of the first `count` operations. That of a cancel is another operation's. */
function slotsOf(ops: Float64Array, count: number): number[] {
  const starts = Array.from({ length: count }, (_, i) => i * OP_LENGTH);
  const own = starts.filter((at) => ops[at] !== OpKind.Cancel);
  return own.map((at) => ops[at + 1] as number);
}

/** What `drain` never answers. */
const BROKEN = -1;

function isGrant(code: number): boolean {
  return code === OutcomeCode.AcquiredAs || code === OutcomeCode.AcquiredAll;
}

function hasText(code: number): boolean {
  return (
    code === OutcomeCode.Connection ||
    code === OutcomeCode.Quorum ||
    code === OutcomeCode.Server ||
    code === OutcomeCode.TimedOut ||
    code === OutcomeCode.AcquiredAs ||
    code === OutcomeCode.Page ||
    code === OutcomeCode.Surveyed ||
    code === OutcomeCode.AcquiredAll
  );
}

/** What a manager tells the native core about itself. */
export type PortOptions = Parameters<InstanceType<typeof native.Bridge>['connect']>[2];

/** What an operation carries besides its slot; unused numbers are 0. */
type Numbers = readonly [a: number, b?: number, c?: number, d?: number, e?: number];

/** An operation under way, and a way to end it early. */
export interface Operation {
  readonly slot: number;
  /** Tells the operation from later ones in the same slot. */
  readonly use: number;
  readonly outcome: Promise<Outcome>;
}

/** One manager's line to its native half. */
export class Port {
  readonly #native: InstanceType<typeof native.NativeManager>;
  readonly #holds = new Holds();
  /** Who is told of what happens to the connection. */
  #reporter: ((code: number, text: string) => void) | undefined;
  /** News from before somebody listened. */
  #unread: [code: number, text: string][] = [];
  /** Losses of this turn whose holders are not known yet. */
  readonly #early = new Map<number, number>();
  /** What the current microtask has collected. */
  #ops = new Float64Array(OP_LENGTH * OPS_KEPT);
  #count = 0;
  #strings: string[] = [];
  /** The end of the manager, once it has begun. */
  #closing: Operation | undefined;
  /** Whether somebody listens for what happens to the manager. */
  #heard = false;

  /** Starts a manager; `opened` is called with whether it could connect. */
  constructor(options: PortOptions, opened: Resolve) {
    const slot = slots.take(opened, this);
    const id = slots.number();
    try {
      this.#native = slots.bridge.connect(slot, id, options);
    } catch (error) {
      slots.free(slot);
      throw error;
    }
    // Not before: what could not start has nothing to give back.
    slots.enlist(id, this);
  }

  /** Ends the manager. Its locks count as lost from now on; whatever is submitted afterwards is refused. */
  close(): Promise<Outcome> {
    this.loseAll(CLOSED_LOSS);
    this.#closing ??= this.begin(OpKind.Close, [0]);
    this.#keep();
    return this.#closing.outcome;
  }

  /** Ends the manager in this very turn of the event loop, which is the last. */
  farewell(): Operation {
    this.#closing ??= this.begin(OpKind.Close, [0]);
    if (this.#count > 0) this.#flush();
    return this.#closing;
  }

  /** Starts an operation at the end of this microtask, together with all others of it. */
  submit(kind: number, numbers: Numbers): Promise<Outcome> {
    return this.begin(kind, numbers).outcome;
  }

  /** Like `submit`, with the strings that an operation may carry and with its slot. */
  begin(kind: number, numbers: Numbers, ...strings: readonly string[]): Operation {
    if (this.#closing !== undefined) return { slot: -1, use: 0, outcome: Promise.resolve(CLOSED) };
    this.#strings.push(...strings);
    let slot = -1;
    const outcome = new Promise<Outcome>((resolve) => {
      slot = slots.take(resolve, this);
    });
    this.#add(kind, slot, numbers);
    return { slot, use: slots.use(slot), outcome };
  }

  /** Ends an operation early, if it has no outcome yet. */
  cancel({ slot, use }: Operation): void {
    if (this.#closing === undefined && slots.isOpen(slot, use)) this.#add(OpKind.Cancel, slot, [0]);
  }

  /** The time of the grants that are read now, by the clock of what is held. */
  get now(): number {
    return slots.now;
  }

  /** Has `holder` told, once, when `lease` is lost. */
  watch(lease: number, holder: Holder): void {
    const early = this.#closing === undefined ? this.#early.get(lease) : CLOSED_LOSS;
    this.#holds.add(lease, holder);
    this.#keep();
    slots.lookAround();
    if (early !== undefined) this.lose(lease, early);
  }

  /** A twin that was made of `holder` before lacks what has changed since. */
  refresh(lease: number, holder: Holder): void {
    this.#holds.refresh(lease, holder);
  }

  /** The lease is over in a way that its holder knows. */
  forget(lease: number): void {
    this.#holds.delete(lease);
    this.#keep();
  }

  /** All leases were lost. */
  loseAll(reason: number): void {
    for (const lease of this.#holds.leases()) this.lose(lease, reason);
  }

  /** A lease was lost. */
  lose(lease: number, reason: number): void {
    const holder = this.#holds.delete(lease);
    if (holder === undefined) {
      // Lost while the event loop was blocked, its grant is read in this very turn; or released.
      if (this.#early.size === 0) setImmediate(() => this.#early.clear());
      this.#early.set(lease, reason);
      return;
    }
    this.#keep();
    const told = holder.lose(reason);
    // No listener runs in the middle of other code, which may be what finds the loss out.
    soon(() => tell(told));
  }

  /** Looks which locks are still referred to, and tells of the others. Answers whether any is held. */
  look(now: number): boolean {
    for (const told of this.#holds.look(now)) tell(told);
    return this.#holds.size > 0;
  }

  /** How many locks nothing referred to any more while they were held, since the beginning. */
  get abandoned(): number {
    return this.#holds.abandoned;
  }

  /** For how long the oldest lock has been held, in ms. */
  get oldestHold(): number {
    const { oldest } = this.#holds;
    return oldest === undefined ? 0 : Math.max(0, Math.floor(performance.now() - oldest));
  }

  /** Learns at once what the event loop would bring later. */
  catchUp(): void {
    slots.drain();
  }

  /** Tells whether somebody listens for what happens to the manager. */
  listen(heard: boolean): void {
    this.#heard = heard;
    this.#keep();
  }

  /** Has `reporter` called with all news of the connection, also those that came before. */
  report(reporter: (code: number, text: string) => void): void {
    this.#reporter = reporter;
    for (const [code, text] of this.#unread.splice(0)) this.news(code, text);
  }

  /** Something happened to the connection. */
  news(code: number, text: string): void {
    const reporter = this.#reporter;
    if (reporter === undefined) this.#unread.push([code, text]);
    else tell(() => reporter(code, text));
  }

  /** What the manager has counted. */
  stats(): ReturnType<InstanceType<typeof native.NativeManager>['stats']> {
    return again(() => this.#native.stats());
  }

  /** How long a lease is still valid, in ms, by the core's clock. */
  remaining(lease: number): number {
    return orElse(() => this.#native.remaining(lease), 0);
  }

  /** A manager that holds or is listened to must not be collected. */
  #keep(): void {
    const needed = this.#heard || this.#holds.size > 0;
    slots.keep(this, needed && this.#closing === undefined);
  }

  #add(kind: number, slot: number, [a, b = 0, c = 0, d = 0, e = 0]: Numbers): void {
    const at = this.#count * OP_LENGTH;
    if (at === this.#ops.length) {
      const grown = new Float64Array(at * 2);
      grown.set(this.#ops);
      this.#ops = grown;
    }
    this.#ops[at] = kind;
    this.#ops[at + 1] = slot;
    this.#ops[at + 2] = a;
    this.#ops[at + 3] = b;
    this.#ops[at + 4] = c;
    this.#ops[at + 5] = d;
    this.#ops[at + 6] = e;
    this.#count += 1;
    if (this.#count === 1) soon(() => this.#flush());
  }

  #flush(): void {
    const count = this.#count;
    const strings = this.#strings;
    const ops = this.#ops;
    this.#count = 0;
    this.#strings = [];
    const submit = () => {
      this.#native.submit(count, ops, strings);
      return true;
    };
    if (!orElse(submit, false)) slots.fail(slotsOf(ops, count));
    if (count > OPS_KEPT) this.#ops = new Float64Array(OP_LENGTH * OPS_KEPT);
  }
}

const slots = new Slots();
const farewell = () => slots.farewell();
process.once('exit', farewell);

/** `process.exit` is to leave what is held to its leases. */
export function leaveToLeases(): void {
  process.off('exit', farewell);
}

/** Asks every server of a place the questions, each a command; `asked` is called with the answers. */
export function askServers(
  options: PortOptions,
  questions: readonly string[][],
  asked: Resolve,
): void {
  const slot = slots.take(asked);
  try {
    slots.bridge.survey(slot, options, [...questions]);
  } catch (error) {
    slots.free(slot);
    throw error;
  }
}

/** How many operations have no outcome yet, in this environment. */
export function openOperations(): number {
  return slots.open;
}
