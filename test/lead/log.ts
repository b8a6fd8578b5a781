/** The log of an election, and its judge. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

/** One line: at this time, in ms of the monotonic clock, this candidate led in this term. */
export interface Entry {
  readonly who: string;
  readonly fence: number;
  readonly at: number;
}

/** A term as the log shows it. */
export interface LoggedTerm {
  readonly who: string;
  readonly fence: number;
  /** When it led first and last, as far as it is written. */
  readonly first: number;
  readonly last: number;
}

/** The terms of a log in the order of their fences. Throws if any two led at a time. */
export function judge(log: string): LoggedTerm[] {
  const terms = new Map<number, LoggedTerm>();
  for (const { who, fence, at } of entriesOf(log)) {
    const known = terms.get(fence);
    assert.ok(known === undefined || known.who === who, `${who} and ${known?.who} have ${fence}`);
    const first = Math.min(at, known?.first ?? at);
    const last = Math.max(at, known?.last ?? at);
    terms.set(fence, { who, fence, first, last });
  }
  const all = [...terms.values()].sort((a, b) => a.fence - b.fence);
  for (const [i, term] of all.entries()) {
    const before = all[i - 1];
    const alone = before === undefined || before.last < term.first;
    assert.ok(alone, `two led at a time: ${JSON.stringify([before, term])}`);
  }
  return all;
}

/** The lines of a log; a process that is killed may leave half a line. */
function entriesOf(log: string): Entry[] {
  return readFileSync(log, 'utf8')
    .split('\n')
    .flatMap((line) => (line.endsWith('}') ? [JSON.parse(line) as Entry] : []));
}
