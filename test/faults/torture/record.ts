/**
 * The form in which histories are published: one JSON object in each line. `tools/judge/README.md` describes it, and `tools/judge`
 * reads it.
 */

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** One call of a process, and its answer. Times are µs of CLOCK_MONOTONIC. */
export interface CallRecord {
  readonly process: string;
  /** Without a name it concerns all locks. */
  readonly lock?: string;
  readonly action:
    | 'acquire'
    | 'adopt'
    | 'downgrade'
    | 'extend'
    | 'forget'
    | 'held'
    | 'leave'
    | 'lost'
    | 'reenter'
    | 'release';
  /** Right before the call. */
  readonly call: number;
  /** Right after its answer; nothing if there was none. */
  readonly return?: number;
  readonly outcome?: 'ok' | 'refused' | 'unknown';
  /** A name of its own for each hold. */
  readonly hold?: string;
  readonly mode?: 'exclusive' | 'shared';
  /** The largest number of holders at the grant. */
  readonly limit?: number;
  readonly fence?: number;
  /** The fence of the hold that was adopted. */
  readonly from?: number;
  /** Until when the process was told that it holds the lock. */
  readonly until?: number;
}

/** What an answer adds to its call. */
export type Answer = Omit<CallRecord, 'process' | 'lock' | 'action' | 'call'>;

const FORMAT = 'holdfast-history/1';

/** Writes a history to `folder`; answers the name of the file. */
export function publish(
  folder: string,
  name: string,
  title: string,
  records: readonly CallRecord[],
): string {
  const file = join(folder, `${name}.jsonl`);
  const sorted = [...records].sort((a, b) => a.call - b.call);
  const lines = [{ format: FORMAT, title }, ...sorted].map((line) => JSON.stringify(line));
  mkdirSync(folder, { recursive: true });
  writeFileSync(file, `${lines.join('\n')}\n`);
  return file;
}
