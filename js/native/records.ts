/**
 * The records that cross the boundary, and the only code of this side that writes or reads one. The other half
 * is `src/node/records.rs`, which describes each code and its numbers. Codes, lengths and sentinels come from
 * the addon; a test compares the order of the numbers.
 */

import { Buffer } from 'node:buffer';
import type { QueryPage, ServerSurvey } from '../../native/binding.js';
import { native } from './addon.js';

const { LabelKind, LossCode, NoticeCode, OpKind, OutcomeCode, RecordKind } = native;
const { LEASE_ENDLESS, OPERATION_LENGTH, RECORD_LENGTH, REPLICAS_MAJORITY } = native;
const { SHARE_EXCLUSIVE, SHARE_UNLIMITED, TTL_UNCHANGED, WAIT_NEVER, WAIT_STEAL } = native;

/** @internal */
export {
  LabelKind,
  LossCode,
  NoticeCode,
  OutcomeCode,
  RECORD_LENGTH,
  REPLICAS_MAJORITY,
  SHARE_EXCLUSIVE,
  SHARE_UNLIMITED,
  WAIT_NEVER,
  WAIT_STEAL,
};

const { Acquire: ACQUIRE, Release: RELEASE } = OpKind;

/** A `LossCode` of this side: closing a manager gives its locks up. @internal */
export const CLOSED_LOSS = -1;

/** How a lock is held: times in ms. @internal */
export interface HoldNumbers {
  readonly ttl: number;
  readonly renew: boolean;
  readonly maxHold: number;
  readonly stallTimeout: number;
  /** Whether the end of the manager leaves the lock to expire. */
  readonly leaveToExpire: boolean;
  /** How long the lock is kept for its next caller here. */
  readonly linger: number;
}

/**
 * `wait` is in ms, `WAIT_NEVER` or `WAIT_STEAL`; `share` is one of the sentinels, or the limit, of which `permits` are
 * asked for.
 *
 * @internal
 */
export interface AcquireNumbers extends HoldNumbers {
  readonly wait: number;
  readonly share: number;
  readonly permits: number;
  readonly label: string;
  /** A `LabelKind`: whether `label` is the whole token, which only an adopt can have. */
  readonly labelKind?: number;
}

/** One operation for the core. */
export interface Operation {
  /** Adds it to a batch, under an entry. */
  addTo(batch: OperationBatch, entry: number): void;
}

/** The most operations of a batch. */
const OPERATIONS_MAX = 256;
/** The bytes that the strings of nearly every batch have room in. */
const TEXT_BYTES = 32 * 1024;
/** All batches write their strings here when they are flushed. As one text they would take memory there each time. */
const TEXT = Buffer.allocUnsafeSlow(TEXT_BYTES);
/** The most bytes of UTF-8 for a unit of UTF-16. */
const UNIT_BYTES = 3;
const NO_STRINGS: readonly string[] = [];

/** The acquire of one lock. @internal */
export class AcquireOperation implements Operation {
  constructor(
    protected readonly name: string,
    protected readonly request: AcquireNumbers,
  ) {}

  addTo(batch: OperationBatch, entry: number): void {
    const { ttl, wait, share, permits, maxHold, stallTimeout, linger } = this.request;
    const flags = holdFlags(this.request);
    // One by one: this is the most frequent operation.
    batch.add(entry, ACQUIRE, ttl, wait, share, permits, flags, maxHold, stallTimeout, linger);
    batch.addString(this.name);
    batch.addLabel(this.request.label);
  }
}

/** An operation that is too rare to have a class of its own. */
class OtherOperation implements Operation {
  readonly #kind: number;
  readonly #numbers: readonly number[];
  readonly #strings: readonly string[];

  /** `numbers`: eight at most; missing ones are 0. */
  constructor(kind: number, numbers: readonly number[], strings = NO_STRINGS) {
    this.#kind = kind;
    this.#numbers = numbers;
    this.#strings = strings;
  }

  addTo(batch: OperationBatch, entry: number): void {
    batch.add(entry, this.#kind, ...this.#numbers);
    for (const string of this.#strings) batch.addString(string);
  }
}

/** @internal */
export function acquireAllOperation(names: readonly string[], request: AcquireNumbers): Operation {
  const { ttl, label } = request;
  const numbers = [ttl, names.length, 0, 0, ...holdNumbers(request)];
  return new OtherOperation(OpKind.AcquireAll, numbers, [label, ...names]);
}

/** Without a label the lock keeps the one in its `token`. @internal */
export function adoptOperation(name: string, token: string, request: AcquireNumbers): Operation {
  const { ttl, share, label, labelKind = LabelKind.Text } = request;
  const numbers = [ttl, labelKind, share, 0, ...holdNumbers(request)];
  return new OtherOperation(OpKind.Adopt, numbers, [name, token, label]);
}

/** @internal */
export function closeOperation(): Operation {
  return new OtherOperation(OpKind.Close, []);
}

/** @internal */
export function downgradeOperation(lease: number): Operation {
  return new OtherOperation(OpKind.Downgrade, [lease]);
}

/** Without a `ttl` the lease gets its own length. @internal */
export function extendOperation(lease: number, ttl = TTL_UNCHANGED): Operation {
  return new OtherOperation(OpKind.Extend, [lease, ttl]);
}

/** @internal */
export function forceReleaseOperation(
  name: string,
  foreign: boolean,
  tokens: readonly string[],
): Operation {
  const numbers = [Number(foreign), tokens.length];
  return new OtherOperation(OpKind.ForceRelease, numbers, [name, ...tokens]);
}

/** @internal */
export function expireInOperation(lease: number, ttl: number): Operation {
  return new OtherOperation(OpKind.ExpireIn, [lease, ttl]);
}

/** @internal */
export function keepForeignOperation(
  key: string,
  value: string,
  { ttl, age, stallTimeout }: Pick<HoldNumbers, 'ttl' | 'stallTimeout'> & { readonly age: number },
): Operation {
  const endless = {
    renew: true,
    leaveToExpire: true,
    maxHold: Number.POSITIVE_INFINITY,
    linger: 0,
  };
  const numbers = [ttl, age, 0, 0, ...holdNumbers({ ...endless, ttl, stallTimeout })];
  return new OtherOperation(OpKind.KeepForeign, numbers, [key, value]);
}

/** Which keys a query looks at. `wholeKey`: `keysStartWith` is a key. @internal */
interface QueryNumbers {
  readonly keysStartWith: string;
  readonly wholeKey: boolean;
  readonly count: number;
}

/** @internal */
export function queryOperation(
  cursor: string,
  { keysStartWith, wholeKey, count }: QueryNumbers,
): Operation {
  const numbers = [count, Number(wholeKey)];
  return new OtherOperation(OpKind.Query, numbers, [cursor, keysStartWith]);
}

/** @internal */
export function stopRenewingOperation(lease: number): Operation {
  return new OtherOperation(OpKind.StopRenewing, [lease]);
}

/** @internal */
export function releaseOperation(lease: number, exported: boolean): Operation {
  return { addTo: (batch, entry) => addRelease(batch, entry, lease, exported) };
}

/** `exported`: whether the token was read, so that other code may have it. @internal */
export function addRelease(
  batch: OperationBatch,
  entry: number,
  lease: number,
  exported: boolean,
): void {
  batch.add(entry, RELEASE, lease, Number(exported));
}

/** What `HoldTerms::read` takes: its flags, and the times in its order. */
function holdNumbers(hold: HoldNumbers): number[] {
  return [holdFlags(hold), hold.maxHold, hold.stallTimeout, hold.linger];
}

function holdFlags({ renew, leaveToExpire }: HoldNumbers): number {
  return (renew ? 1 : 0) + (leaveToExpire ? 2 : 0);
}

/** Operations on their way to the core. @internal */
export class OperationBatch {
  readonly numbers = new Float64Array(OPERATION_LENGTH * OPERATIONS_MAX);
  /** Each string with its length before it; `=` for the label of the operation before. */
  #strings = '';
  /** Where the strings are written for the core. */
  readonly text = TEXT;
  #label: string | undefined;
  #count = 0;

  get count(): number {
    return this.#count;
  }

  /** Whether it must be flushed before another operation is added. */
  get isFull(): boolean {
    return this.#count === OPERATIONS_MAX;
  }

  /** Adds an operation. Its strings follow. */
  add(entry: number, kind: number, a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0): void {
    const at = this.#count * OPERATION_LENGTH;
    const all = this.numbers;
    this.#count += 1;
    all[at] = kind;
    all[at + 1] = entry;
    all[at + 2] = a;
    all[at + 3] = b;
    all[at + 4] = c;
    all[at + 5] = d;
    all[at + 6] = e;
    all[at + 7] = f;
    all[at + 8] = g;
    all[at + 9] = h;
  }

  addString(string: string): void {
    this.#strings += `${string.length}:${string}`;
  }

  /** Adds a string that is likely to be that of the acquire before. */
  addLabel(label: string): void {
    if (label === this.#label) {
      this.#strings += '=';
    } else {
      this.addString(label);
      this.#label = label;
    }
  }

  /** Ends the operation in `entry` early. */
  addCancel(entry: number): void {
    this.add(entry, OpKind.Cancel);
  }

  /**
   * Calls `submit` with the number of operations and of bytes of their strings, and with `long` if those do not fit into
   * `text`; empties the batch. If `submit` answers `false`, returns the entries of the operations, which have not begun.
   */
  flush(submit: (count: number, length: number, long?: Buffer) => boolean): readonly number[] {
    const count = this.#count;
    const strings = this.#strings;
    const bytes = UNIT_BYTES * strings.length;
    const long = bytes <= TEXT_BYTES ? undefined : Buffer.allocUnsafe(bytes);
    const length = strings === '' ? 0 : (long ?? this.text).write(strings);
    this.#count = 0;
    this.#strings = '';
    this.#label = undefined;
    return submit(count, length, long) ? [] : entriesOf(this.numbers, count);
  }
}

/** The entries of the first `count` operations. A cancel has none: its entry is another operation's. */
function entriesOf(numbers: Float64Array, count: number): number[] {
  const starts = Array.from({ length: count }, (_, i) => i * OPERATION_LENGTH);
  const own = starts.filter((at) => numbers[at] !== OpKind.Cancel);
  return own.map((at) => numbers[at + 1] as number);
}

/** Receives the contents of records. @internal */
export interface RecordReader {
  /** The operation in `entry` has ended; `a` and `b` depend on the `OutcomeCode`. */
  settle(entry: number, code: number, a: number, b: number): void;
  /** A manager has lost a lease; `reason` is a `LossCode`. */
  lose(manager: number, lease: number, reason: number): void;
  /** Something happened to a manager; `code` is a `NoticeCode`. */
  notify(manager: number, code: number): void;
}

/** Reads the record that begins at `at`. @internal */
export function readRecord(records: Float64Array, at: number, reader: RecordReader): void {
  const kind = records[at] as number;
  const first = records[at + 1] as number;
  const second = records[at + 2] as number;
  const third = records[at + 3] as number;
  if (kind >= 0) reader.settle(kind, first, second, third);
  else if (kind === RecordKind.Loss) reader.lose(first, second, third);
  else if (kind === RecordKind.Notice) reader.notify(first, second);
}

/** How an operation ended. The functions below read `a`, `b` and `text`, which depend on `code`. */
export interface Outcome {
  readonly code: number;
  readonly a: number;
  readonly b: number;
  readonly text: {
    readonly message: string;
    readonly serverCode?: string;
    readonly key?: string;
    readonly holder?: string;
    readonly holders?: number;
    readonly position?: number;
    readonly page?: QueryPage;
    readonly surveys?: ServerSurvey[];
  } | null;
}

/** @internal */
export const CLOSED: Outcome = { code: OutcomeCode.Closed, a: 0, b: 0, text: null };
/** @internal */
export const INTERNAL: Outcome = { code: OutcomeCode.Internal, a: 0, b: 0, text: null };
/** @internal */
export const DONE: Outcome = { code: OutcomeCode.Done, a: 0, b: 0, text: null };

/** Whether an outcome has a text, which the core hands out apart from the record. @internal */
export function hasText(code: number): boolean {
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

/** The outcome whose text could not be had: what was granted must still be given back. @internal */
export function withoutText(code: number, a: number, b: number): Outcome {
  const granted = code === OutcomeCode.AcquiredAs || code === OutcomeCode.AcquiredAll;
  return granted ? { code, a, b, text: null } : INTERNAL;
}

/** Whether an operation has done what was asked, to one lock. @internal */
export function isSuccess({ code }: Outcome): boolean {
  return code === OutcomeCode.Acquired || code === OutcomeCode.Done;
}

/** Whether one lock was granted. @internal */
export function isGrant({ code }: Outcome): boolean {
  return code === OutcomeCode.Acquired || code === OutcomeCode.AcquiredAs;
}

/** One lock that was granted. `label` is the one in its token, if that is not the caller's own. @internal */
export function readGrant({ a, b, text }: Outcome): {
  lease: number;
  fence: number;
  label: string | undefined;
} {
  return { lease: a, fence: b, label: text?.message };
}

/** Several locks that were granted at once; their fences are missing if the text is. @internal */
export function readGrants(
  { a, text }: Outcome,
  count: number,
): { leases: number[]; fences: number[] | undefined } {
  const leases = Array.from({ length: count }, (_, i) => a + i * LEASES_PER_TOKEN);
  return { leases, fences: text?.message.split(',').map(Number) };
}

/** A lock that was not free in time: ms waited, and what is left of the holder's lease, if that ends. @internal */
export function readTimeout({ a, b, text }: Outcome): {
  waited: number;
  remaining: number | undefined;
  holder: string;
  holders: number;
  position: number | undefined;
} {
  const remaining = b === LEASE_ENDLESS ? undefined : b;
  const { holder = '', holders = 0, position } = text ?? {};
  return { waited: a, remaining, holder, holders, position };
}

/** The cause of each server of a quorum, in their order; empty where there was none. @internal */
export function readCauses({ text }: Outcome): string[] {
  return (text?.message ?? '').split('\n');
}

/** How long a lease in a page of a query still lasts, in ms; `null` if it never ends by itself. @internal */
export function readTtl(ttl: number): number | null {
  return ttl === LEASE_ENDLESS ? null : ttl;
}

/** The number of a lease is made of the id of the token that acquired it, and of the number of hand-offs since. */
const LEASES_PER_TOKEN = 256;

/** The id of the token that acquired a lease. @internal */
export function tokenIdOf(lease: number): number {
  return Math.floor(lease / LEASES_PER_TOKEN);
}

/** The leases that one token may have had. @internal */
export function leasesOf(tokenId: number): number[] {
  return Array.from({ length: LEASES_PER_TOKEN }, (_, i) => tokenId * LEASES_PER_TOKEN + i);
}
