/** The operations of this environment that have no outcome yet. Many share a submit, and one drain reads many. */

import { native } from './addon.js';
import { orFallback, retryOnce } from './calls.js';
import {
  DONE,
  hasText,
  INTERNAL,
  isSuccess,
  LossCode,
  type Outcome,
  OutcomeCode,
  RECORD_LENGTH,
  type RecordReader,
  readRecord,
  withoutText,
} from './records.js';

/** Gets the outcome of an operation, or what a reader makes of it, once. @internal */
export type Resolve = (value: never) => void;

/** Makes of an outcome what a caller gets. An object, not a function, since there may be very many. @internal */
export interface OutcomeReader<T> {
  read(outcome: Outcome): T;
}

/** Resolves an operation. @internal */
export function deliver(
  outcome: Outcome,
  resolve: Resolve,
  reader: OutcomeReader<unknown> | undefined,
): void {
  (resolve as (value: unknown) => void)(reader === undefined ? outcome : read(outcome, reader));
}

function read(outcome: Outcome, reader: OutcomeReader<unknown>): unknown {
  if (!isSuccess(outcome)) return readLater(outcome, reader);
  try {
    return reader.read(outcome);
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Reads an outcome after an `await`: so the stack of an error shows the callers that wait for it. */
async function readLater<T>(outcome: Outcome, reader: OutcomeReader<T>): Promise<T> {
  await undefined;
  return reader.read(outcome);
}

/** The manager that records are about. @internal */
interface RecordOwner {
  /** A lease was lost; `reason` is a `LossCode`. */
  lose(lease: number, reason: number): void;
  /** All leases were lost. */
  loseAll(reason: number): void;
  /** Something happened to the connection: a `NoticeCode`, and its text. */
  notify(code: number, text: string): void;
  /** Reports the locks that nothing refers to any more. Answers whether any lock is held. */
  findAbandoned(): boolean;
}

/** An operation under way. Entries are used again, so `generation` tells it from later operations of the same entry. @internal */
export interface Ticket {
  readonly entry: number;
  readonly generation: number;
}

const DRAIN_RECORDS = 256;
/** Stands for a `drain` that throws: no count is negative. */
const BROKEN = -1;
/** How often the managers look for locks that nothing refers to any more, in ms. */
const ABANDONED_CHECK_MS = 1_000;

/**
 * Whether the event loop reads the sockets: only that of Node can. `HOLDFAST_READER=keeper` has the core's own thread
 * read there too, should a platform's event loop not do its part.
 */
function eventLoopReads(): boolean {
  const { versions, env } = process;
  if (versions['bun'] !== undefined || versions['deno'] !== undefined) return false;
  return env['HOLDFAST_READER'] !== 'keeper';
}

/** How often records are read by code that starts operations, before the event loop has to turn. */
const DRAINS_PER_TURN = 100;

/** The timers of the process: the fake ones that a test puts in their place may have no `unref`. */
const { clearInterval, setImmediate, setInterval } = globalThis;

/** `Deno.exit` ends a process with this event alone. */
const deno =
  process.versions['deno'] === undefined ? undefined : (globalThis as object as EventTarget);

/** The operations under way, and the managers that records are about. @internal */
class Operations implements RecordReader {
  readonly #resolvers: (Resolve | undefined)[] = [];
  readonly #readers: (OutcomeReader<unknown> | undefined)[] = [];
  /** The manager of each operation: an operation under way keeps its manager from being collected. */
  readonly #owners: (RecordOwner | undefined)[] = [];
  readonly #free: number[] = [];
  /** How often each entry was taken. */
  readonly #generations: number[] = [];
  /** Room for records, and for one number behind them: that of the requests without an answer after a submit. */
  readonly records = new Float64Array(RECORD_LENGTH * DRAIN_RECORDS + 1);
  /** The part of the records that is still to be read. */
  #at = 0;
  #end = 0;
  readonly #bridge = retryOnce(
    () => new native.Bridge(() => this.drain(), eventLoopReads(), this.records),
  );
  /** Moves records into the room for them, and answers their number. */
  readonly #drain = retryOnce(() => this.#bridge.drainer());
  /** Operations under way keep the process alive; held locks do not. */
  readonly #keepAlive = setInterval(() => {}, 2 ** 30).unref();
  /** The managers by their number. One that was collected needs no records. */
  readonly #managers = new Map<number, WeakRef<RecordOwner>>();
  readonly #collected = new FinalizationRegistry<number>((id) => this.#managers.delete(id));
  /** Managers that hold locks or have listeners. If one were collected, it would release what it holds. */
  readonly #retained = new Set<RecordOwner>();
  #abandonedCheck: NodeJS.Timeout | undefined;
  #nextId = 0;
  #open = 0;
  #now = 0;
  /** How often the records of all managers were read. */
  #reads = 0;
  /** How often records were read by code that starts operations since the event loop has turned. */
  #drains = 0;
  /** Whether there are records that a call could not deliver, since others were being read. */
  #left = false;

  /** A number for a manager that is about to start. */
  nextId(): number {
    return this.#nextId++;
  }

  /** Routes records about the manager `id` to `owner`. */
  register(id: number, owner: RecordOwner): void {
    this.#managers.set(id, new WeakRef(owner));
    this.#collected.register(owner, id);
  }

  /** Keeps `owner` from being collected, or does so no more. */
  retain(owner: RecordOwner, wanted: boolean): void {
    if (wanted) this.#retained.add(owner);
    else this.#retained.delete(owner);
  }

  /** Looks from time to time for locks that nothing refers to any more, as long as any is held. */
  checkForAbandoned(): void {
    this.#abandonedCheck ??= setInterval(() => {
      let holding = false;
      for (const owner of this.#retained) holding = owner.findAbandoned() || holding;
      if (holding) return;
      clearInterval(this.#abandonedCheck);
      this.#abandonedCheck = undefined;
    }, ABANDONED_CHECK_MS).unref();
  }

  /**
   * When records were last read: the time of a grant, without asking the clock for each. In whole ms, which V8 keeps
   * in less memory than others.
   */
  get now(): number {
    return this.#now;
  }

  /** How often replies may have arrived: it grows with each reading of the records of all managers. */
  get reads(): number {
    return this.#reads;
  }

  get bridge(): InstanceType<typeof native.Bridge> {
    return this.#bridge;
  }

  get open(): number {
    return this.#open;
  }

  /**
   * Takes an entry; `resolve` is called once with the outcome that arrives in it, or what `reader` makes of that. `owner`
   * lives until then.
   */
  take(resolve: Resolve, owner?: RecordOwner, reader?: OutcomeReader<unknown>): number {
    const entry = this.#free.pop() ?? this.#resolvers.length;
    this.#resolvers[entry] = resolve;
    this.#readers[entry] = reader;
    this.#owners[entry] = owner;
    this.#generations[entry] = (this.#generations[entry] ?? 0) + 1;
    this.#open += 1;
    if (this.#open === 1) this.#keepAlive.ref();
    return entry;
  }

  /** Takes an entry for what `start` begins. If it throws, the entry is free again. */
  takeFor<T>(start: (entry: number) => T, resolve: Resolve, owner?: RecordOwner): T {
    const entry = this.take(resolve, owner);
    try {
      return start(entry);
    } catch (error) {
      this.#release(entry);
      throw error;
    }
  }

  /** How often `entry` was taken so far. */
  generation(entry: number): number {
    return this.#generations[entry] ?? 0;
  }

  /** Whether an operation has no outcome yet. */
  isOpen({ entry, generation }: Ticket): boolean {
    return this.#resolvers[entry] !== undefined && this.#generations[entry] === generation;
  }

  /** The entries of `owner` that have no outcome yet, and a reader that `matches`. */
  entriesOf(owner: RecordOwner, matches: (reader: unknown) => boolean): number[] {
    return [...this.#owners.keys()].filter(
      (entry) => this.#owners[entry] === owner && matches(this.#readers[entry]),
    );
  }

  /** Frees an entry whose outcome has come, or never will. */
  #release(entry: number): void {
    this.#resolvers[entry] = undefined;
    this.#readers[entry] = undefined;
    this.#owners[entry] = undefined;
    this.#free.push(entry);
    this.#open -= 1;
    if (this.#open === 0) this.#keepAlive.unref();
  }

  /** Reads all records that are ready. A listener may call this again: the inner call goes on from here. */
  drain(): void {
    this.#reads += 1;
    this.#now = Math.floor(performance.now());
    this.#read();
    do {
      this.#left = false;
      const count = orFallback(this.#drain, BROKEN);
      if (count === BROKEN) {
        this.#failAll();
        return;
      }
      this.#left = count === DRAIN_RECORDS;
      this.#end = count * RECORD_LENGTH;
      this.#read();
    } while (this.#left);
  }

  /** Reads the records that are there, to the last one. */
  #read(): void {
    while (this.#at < this.#end) {
      const at = this.#at;
      this.#at += RECORD_LENGTH;
      readRecord(this.records, at, this);
    }
    this.#at = 0;
    this.#end = 0;
  }

  /**
   * Whether there is room for the records that starting an operation leaves: not while others are being read. Code that
   * awaits only such operations would let no timer and no other event through, so there is none either after a number of
   * times, until the event loop has turned.
   */
  get hasRoom(): boolean {
    return this.#end === 0 && this.#drains < DRAINS_PER_TURN;
  }

  /** How many requests had no answer after the last submit. */
  get unanswered(): number {
    // `at(-1)` is no compiled code, and costs a tenth of a lone acquire.
    return this.records[this.records.length - 1] ?? 0;
  }

  /** Reads the records that starting an operation has left: `count` of them are there, or some elsewhere if negative. */
  readBetween(count: number): void {
    if (count === 0) return;
    this.#drains += 1;
    if (this.#drains === 1) setImmediate(this.#turned);
    if (count < 0) {
      this.#left = true;
      return;
    }
    this.#now = Math.floor(performance.now());
    this.#end = count * RECORD_LENGTH;
    this.#read();
    if (count === DRAIN_RECORDS || this.#left) this.drain();
  }

  readonly #turned = () => {
    this.#drains = 0;
    if (this.#left) this.drain();
  };

  settle(entry: number, code: number, a: number, b: number): void {
    const resolve = this.#resolvers[entry];
    if (resolve === undefined) return;
    const reader = this.#readers[entry];
    if (code === OutcomeCode.Done) {
      this.#release(entry);
      deliver(DONE, resolve, reader);
      return;
    }
    const text = hasText(code) ? orFallback(() => this.#bridge.takeText(entry), undefined) : null;
    this.#release(entry);
    const outcome = text === undefined ? withoutText(code, a, b) : { code, a, b, text };
    deliver(outcome, resolve, reader);
  }

  lose(manager: number, lease: number, reason: number): void {
    this.#managers.get(manager)?.deref()?.lose(lease, reason);
  }

  notify(manager: number, code: number): void {
    const text = orFallback(() => this.#bridge.takeNotice(), null) ?? '';
    this.#managers.get(manager)?.deref()?.notify(code, text);
  }

  /** Ends operations of which the core has never heard. */
  fail(entries: readonly number[]): void {
    for (const entry of entries) {
      const resolve = this.#resolvers[entry];
      if (resolve === undefined) continue;
      const reader = this.#readers[entry];
      this.#release(entry);
      deliver(INTERNAL, resolve, reader);
    }
  }

  /** The core cannot be read any more: ends every operation, and gives every lock up as lost. */
  #failAll(): void {
    this.#resolvers.forEach((resolve, entry) => {
      if (resolve === undefined) return;
      this.#resolvers[entry] = undefined;
      this.#open -= 1;
      deliver(INTERNAL, resolve, this.#readers[entry]);
    });
    if (this.#open === 0) this.#keepAlive.unref();
    for (const owner of this.#managers.values()) owner.deref()?.loseAll(LossCode.Expired);
  }

  /**
   * Releases what all managers hold while the environment exits, when its event loop turns no more, and waits for the
   * server a moment. Without this `process.exit` and uncaught errors would leave the locks to expire.
   */
  readonly #endAtExit = () => orFallback(() => this.#bridge.end(), undefined);

  endWithProcess(): void {
    process.once('exit', this.#endAtExit);
    deno?.addEventListener('unload', this.#endAtExit);
  }

  leaveToExpire(): void {
    process.off('exit', this.#endAtExit);
    deno?.removeEventListener('unload', this.#endAtExit);
  }
}

/**
 * The name under which the copies of this package find the operations of the first: a reload in a running process must not
 * leave an addon's threads, a listener and a module behind each time.
 */
const SHARED = Symbol.for(`holdfast.operations@${version()}`);

function version(): string {
  return (require('../../package.json') as { version: string }).version;
}

/** @internal */
export const operations = shared();

/** The operations of this realm, started by the first copy of the package. */
function shared(): Operations {
  const place = globalThis as { [SHARED]?: Operations };
  const found = place[SHARED];
  if (found !== undefined) return found;
  const started = new Operations();
  Object.defineProperty(place, SHARED, { value: started });
  started.endWithProcess();
  return started;
}

/** Leaves the locks that are held when the process exits to expire. @internal */
export function leaveToExpireAtExit(): void {
  operations.leaveToExpire();
}

/** How many operations have no outcome yet, in this environment. @internal */
export function openOperations(): number {
  return operations.open;
}
