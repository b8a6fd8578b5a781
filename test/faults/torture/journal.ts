/**
 * The journal of a round of the campaign. Every process and thread appends to a file of its own, at once:
 * its records outlive it, however it ends.
 */

import { closeSync, openSync, readdirSync, readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import {
  type HeldLock,
  type Hold,
  type HoldRequest,
  now,
  Recorded,
  type Scribe,
} from '../../support/history.js';
import type { Rift } from '../../support/kinds.js';
import { createClient } from '../../support/ledger.js';
import type { CallRecord } from './record.js';

/** A request, and its outcome. Times as in `Hold`. */
export interface Operation {
  readonly who: string;
  /** The name of a `Way`. */
  readonly way: string;
  readonly asked: number;
  readonly ended: number;
  /** The answer of `roam`. */
  readonly outcome: string;
}

/** The counts of a manager when it was closed. */
export interface Counts {
  readonly who: string;
  /** Locks that went from caller to caller without the server. */
  readonly handedOff: number;
  /** The locks that it still held or waited for, though all its callers had ended. */
  readonly left: number;
}

/** A line of a file; of those with the same id the last one counts. */
export type Line =
  | { readonly hold: Hold; readonly id: string }
  | { readonly rift: Rift; readonly id: string }
  | { readonly call: CallRecord; readonly id: string }
  | { readonly operation: Operation }
  | { readonly counts: Counts }
  | { readonly death: { readonly who: string; readonly at: number } };

/** The time for which a request may lie in a buffer after its caller has given up, in µs. */
const LATE_US = 10_000_000;

/** The journal of one process or thread. */
export class Journal implements Scribe {
  readonly redis: ReturnType<typeof createClient>;
  readonly #file: number;
  readonly #live = new Set<Recorded>();
  #count = 0;
  /** The locks that were granted since this was emptied last. */
  readonly granted = new Set<string>();

  /** `ledgerUrl` leads to the stores that the locks protect. */
  constructor(
    readonly who: string,
    folder: string,
    ledgerUrl: string,
  ) {
    this.redis = createClient(ledgerUrl);
    this.#file = openSync(join(folder, `${who}.jsonl`), 'a');
  }

  begin(lock: HeldLock, request?: HoldRequest): Recorded {
    const recorded = new Recorded(this.who, lock, this.uniqueId(), request);
    this.#live.add(recorded);
    this.granted.add(lock.name);
    this.#write(recorded);
    return recorded;
  }

  downgrade(recorded: Recorded): void {
    recorded.downgrade();
    this.#write(recorded);
  }

  /** It was seen to be lost right now. */
  lose(recorded: Recorded): void {
    recorded.lose(now());
    this.#write(recorded);
  }

  end(recorded: Recorded): void {
    recorded.end();
    this.#live.delete(recorded);
    this.#write(recorded);
  }

  /** To be called right before the manager is closed. */
  endAll(): void {
    for (const recorded of this.#live) this.end(recorded);
  }

  /** Resolves when everything is written. */
  async flush(): Promise<void> {}

  /** Has `action` take `lock` away from its holder, and records that first. */
  async rift<T>(lock: string, action: () => Promise<T>): Promise<T> {
    const id = this.uniqueId();
    const from = now();
    const told = (to: number) => this.write({ id, rift: { lock, from, to } });
    told(from + LATE_US);
    const result = await action();
    // If it fails, the time of its execution is unknown.
    told(now());
    return result;
  }

  uniqueId(): string {
    this.#count += 1;
    return `${this.who}.${this.#count}`;
  }

  write(line: Line): void {
    writeSync(this.#file, `${JSON.stringify(line)}\n`);
  }

  close(): void {
    this.redis.disconnect();
    closeSync(this.#file);
  }

  #write({ id, hold }: Recorded): void {
    this.write({ id, hold });
  }
}

/** All records. */
export interface History {
  readonly holds: readonly Hold[];
  readonly rifts: readonly Rift[];
  readonly operations: readonly Operation[];
  readonly counts: readonly Counts[];
  readonly deaths: ReadonlyMap<string, number>;
  /** The calls of a round that records them. */
  readonly calls: readonly CallRecord[];
}

/** The records of the files of a folder. */
export function readHistory(folder: string): History {
  const holds = new Map<string, Hold>();
  const rifts = new Map<string, Rift>();
  const calls = new Map<string, CallRecord>();
  const operations: Operation[] = [];
  const counts: Counts[] = [];
  const deaths = new Map<string, number>();
  for (const line of readdirSync(folder).flatMap((file) => linesOf(join(folder, file)))) {
    if ('hold' in line) holds.set(line.id, line.hold);
    else if ('rift' in line) rifts.set(line.id, line.rift);
    else if ('call' in line) calls.set(line.id, line.call);
    else if ('death' in line) deaths.set(line.death.who, line.death.at);
    else if ('counts' in line) counts.push(line.counts);
    else operations.push(line.operation);
  }
  const byId = {
    holds: [...holds.values()],
    rifts: [...rifts.values()],
    calls: [...calls.values()],
  };
  return { ...byId, operations, counts, deaths };
}

/** Drops a last line without an end: its process was killed while it wrote. */
function linesOf(file: string): Line[] {
  const lines = readFileSync(file, 'utf8').split('\n');
  return lines.slice(0, -1).map((line) => JSON.parse(line) as Line);
}
