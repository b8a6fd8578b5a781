/**
 * The records that holders of locks write, and the check of these records.
 *
 * Times are µs of CLOCK_MONOTONIC, which all processes of a machine share. A hold is recorded
 * shorter than it was, never longer: every finding of the check really happened.
 */

import { createClient, type Ledger } from './ledger.js';

/** One hold of one lock. */
export interface Hold {
  readonly who: string;
  readonly lock: string;
  readonly fence: number;
  /** When `acquire` had returned. */
  readonly begin: number;
  /** The end of the certain hold: its release, or the last check that saw it held. */
  end: number;
  /** If it was lost: its end as the holder could have known it. */
  lostAt?: number;
  /** It was lost when `acquire` returned: the holder never believed in it. */
  readonly stillborn: boolean;
  /** It was lost before its release. */
  lost: boolean;
  /** Until when the holder may believe in it, as it knew last; only while its end is not written. */
  until?: number;
  /** The request, where locks of several kinds are used. */
  readonly request?: HoldRequest;
  /** When it was about to be downgraded: from then on it is shared at least. */
  downgraded?: number;
}

/** The request of a holder. */
export interface HoldRequest {
  /** When `acquire` was about to be called. */
  readonly asked: number;
  readonly shared: boolean;
  /** The largest number of holders. */
  readonly limit?: number;
  /** It is one of several locks that were requested at once, and taken one after the other. */
  readonly several?: boolean;
  /** Handed from one process to another it is one lock still: all its holds have the same heritage. */
  readonly heritage?: string;
}

/** The properties of a lock that the recorder reads. */
export interface HeldLock {
  readonly name: string;
  readonly fence: number;
  readonly remaining: number;
}

export function now(): number {
  return Number(process.hrtime.bigint() / 1000n);
}

/** A hold that is being recorded. */
export class Recorded {
  readonly hold: Hold;
  /** How long the holder may believe to hold it, as it knew last. */
  #until: number;
  #ended = false;

  constructor(
    who: string,
    readonly lock: HeldLock,
    readonly id: string,
    request?: HoldRequest,
  ) {
    const begin = now();
    // The clock is read first, so this moment is never later than the lease's end by that clock.
    this.#until = begin + lock.remaining * 1000;
    const until = this.#until;
    const stillborn = until === begin;
    const { name, fence } = lock;
    this.hold = { who, lock: name, fence, begin, end: begin, stillborn, lost: stillborn, until };
    if (request !== undefined) this.hold = { ...this.hold, request };
  }

  /** Checks whether it is still held. */
  check(): boolean {
    if (this.#ended) return false;
    const at = now();
    const remaining = this.lock.remaining;
    if (remaining > 0 && !this.hold.lost) {
      this.hold.end = at;
      this.#until = Math.max(this.#until, at + remaining * 1000);
      return true;
    }
    this.lose(at);
    return false;
  }

  /** To be called, and written, right before `downgrade`. */
  downgrade(): void {
    if (this.check()) this.hold.downgraded = this.hold.end;
  }

  /** It was seen to be lost at `at`, or before. */
  lose(at: number): void {
    if (this.hold.lost || this.#ended) return;
    this.hold.lost = true;
    this.hold.lostAt = Math.min(at, this.#until);
  }

  /** To be called right before `release`: later checks of the lock do not count. */
  end(): void {
    this.check();
    this.#ended = true;
    delete this.hold.until;
  }
}

/** The writer of holds, see `Recorder`. */
export type Scribe = Pick<Recorder, 'who' | 'redis' | 'begin' | 'downgrade' | 'end' | 'flush'>;

/** Records holds, at once and outside this process, so that its sudden end loses almost nothing. */
export class Recorder {
  readonly #redis: ReturnType<typeof createClient>;
  #batch: string[] = [];
  #count = 0;
  #written: Promise<unknown> = Promise.resolve();

  constructor(
    readonly who: string,
    ledgerUrl: string,
  ) {
    this.#redis = createClient(ledgerUrl);
  }

  /** To be called when `acquire` has returned. */
  begin(lock: HeldLock, request?: HoldRequest): Recorded {
    this.#count += 1;
    const recorded = new Recorded(this.who, lock, `${this.who}.${this.#count}`, request);
    this.#write(recorded);
    return recorded;
  }

  /** To be called right before `downgrade`. */
  downgrade(recorded: Recorded): void {
    recorded.downgrade();
    this.#write(recorded);
  }

  /** To be called right before `release`. */
  end(recorded: Recorded): void {
    recorded.end();
    this.#write(recorded);
  }

  /** Resolves when all is written. A process that may be killed awaits it before a release, so that no end is missed. */
  async flush(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    await this.#written;
  }

  /** A record of the fence-checking store, see `Ledger`. */
  get redis(): ReturnType<typeof createClient> {
    return this.#redis;
  }

  #write({ id, hold }: Recorded): void {
    if (this.#batch.length === 0) setImmediate(() => this.#send());
    this.#batch.push(id, JSON.stringify(hold));
  }

  #send(): void {
    const batch = this.#batch;
    this.#batch = [];
    this.#written = this.#redis.hset('holds', ...batch);
  }
}

export interface Expected {
  /** The server lost data, so only fences protect meanwhile. */
  readonly dataLost?: boolean;
  /** The server was started again, so a lock may be lost ahead of the end of its lease. */
  readonly restarted?: boolean;
  /** No process was stopped, killed or cut off, so none may have lost a lock. */
  readonly noLosses?: boolean;
}

/** All contradictions, in words. Empty if there is none. */
export function problemsOf(holds: readonly Hold[], expected: Expected = {}): string[] {
  const problems: string[] = [];
  for (const lock of new Set(holds.map((hold) => hold.lock))) {
    const ofLock = holds.filter((hold) => hold.lock === lock);
    problems.push(...repeatedFences(ofLock), ...fencesOutOfOrder(ofLock, expected));
    if (expected.dataLost !== true) problems.push(...overlaps(ofLock, expected));
  }
  if (expected.noLosses === true) {
    problems.push(...holds.filter((hold) => hold.lost).map((hold) => `lost: ${tell(hold)}`));
  }
  return problems;
}

function repeatedFences(holds: readonly Hold[]): string[] {
  const byFence = new Map<number, Hold>();
  const problems: string[] = [];
  for (const hold of holds) {
    const other = byFence.get(hold.fence);
    if (other !== undefined) problems.push(`one fence twice: ${tell(other)} and ${tell(hold)}`);
    byFence.set(hold.fence, hold);
  }
  return problems;
}

/**
 * The owner that began later has the greater fence. A server that lost its data lets a new owner in beside
 * the old one; but then, too, the old one began earlier.
 */
function fencesOutOfOrder(holds: readonly Hold[], { dataLost }: Expected): string[] {
  const live = holds.filter((hold) => !hold.stillborn).sort((a, b) => a.begin - b.begin);
  const problems: string[] = [];
  for (const [i, hold] of live.entries()) {
    const before = live[i - 1];
    if (before === undefined || before.fence < hold.fence) continue;
    // Two concurrent holders, as of a share: the order in which they learned of their grants may differ from that of the grants.
    const areConcurrent = dataLost === true || hold.begin < before.end;
    if (areConcurrent && hold.begin - before.begin < LEARNING_US) continue;
    problems.push(`a smaller fence later: ${tell(before)} and then ${tell(hold)}`);
  }
  return problems;
}

const LEARNING_US = 1_000_000;

function overlaps(holds: readonly Hold[], { restarted }: Expected): string[] {
  const live = holds.filter((hold) => !hold.stillborn).sort((a, b) => a.begin - b.begin);
  const problems: string[] = [];
  const endOf = (hold: Hold) => Math.max(hold.end, restarted ? 0 : (hold.lostAt ?? 0));
  let longest: Hold | undefined;
  for (const hold of live) {
    if (longest !== undefined && hold.begin < endOf(longest)) {
      problems.push(`two at once: ${tell(longest)} and ${tell(hold)}`);
    }
    if (longest === undefined || endOf(hold) > endOf(longest)) longest = hold;
  }
  return problems;
}

function tell({ who, lock, fence, begin, end, lostAt }: Hold): string {
  const lost = lostAt === undefined ? '' : `, lost at ${lostAt}`;
  return `${who} ${lock} #${fence} [${begin} … ${end}${lost}]`;
}

/** The holds that a ledger has, and what is wrong with them and with its stores. */
export async function problemsIn(ledger: Ledger, expected: Expected = {}): Promise<string[]> {
  const holds = await ledger.holds();
  const problems = problemsOf(holds, expected);
  for (const [lock, store] of await ledger.stores()) {
    if (store.value !== store.accepted) {
      problems.push(`${lock}: ${store.accepted} guarded writes made ${store.value}`);
    }
    if (expected.noLosses === true && store.refused > 0) {
      problems.push(`${lock}: ${store.refused} guarded accesses were refused`);
    }
    if (expected.noLosses === true && store.plain !== store.accepted) {
      problems.push(`${lock}: ${store.accepted} unguarded writes made ${store.plain}`);
    }
  }
  return problems;
}
