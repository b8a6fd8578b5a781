/** The check of a round's records, and the waits of its callers. */

import type { Hold } from '../../support/history.js';
import { type Known, problemsOfKinds } from '../../support/kinds.js';
import type { Ledger } from '../../support/ledger.js';
import type { History, Operation } from './journal.js';

/** The facts of a round besides the records of its processes. */
export interface Case {
  /** When the last fault was over, by the clock of the history. */
  readonly healed: number;
  /** The end of the last request. */
  readonly ended: number;
  /** The longest lease, in µs. */
  readonly lease: number;
  readonly names: readonly string[];
  /** How many managers waited in the queue; 0 where there is none. */
  readonly managers: number;
}

/** Times in µs. */
export interface Verdict {
  readonly problems: readonly string[];
  /** The longest wait of one that was granted, under faults and after. */
  readonly longestWait: number;
  readonly longestCalmWait: number;
  /** The longest time after the faults without a grant of a contended lock. */
  readonly longestGap: number;
  /** The largest number of later callers that were served first. */
  readonly mostOvertaken: number;
}

/** The longest time without a grant of a lock, and until a caller is served, without faults. */
const PATIENCE_US = 15_000_000;
/** By then all processes are connected again, and dead ones are forgotten. */
export const RECOVERY_US = 4_000_000;
/** The largest number of holds in a row within a process. */
const TURN = 16;

/** Weighs a history. */
export function judge(history: History, facts: Case): Verdict {
  const { counts, holds, operations } = history;
  const known: Known = { ...history, deaths: allDeaths(history), lease: facts.lease };
  const waits = holds.filter(
    ({ request }) => request !== undefined && request.heritage === undefined,
  );
  const calm = waits.filter((hold) => askedOf(hold) > facts.healed);
  const gaps = facts.names.map((lock) => gapOf(lock, holds, facts));
  const overtaken = facts.managers === 0 ? [] : overtakings(calm, facts);
  const verdict = {
    longestWait: longest(waits.map(waitOf)),
    longestCalmWait: longest(calm.map(waitOf)),
    longestGap: longest(gaps),
    mostOvertaken: longest(overtaken.map(({ by }) => by)),
  };
  const problems = [
    ...problemsOfKinds(holds, known),
    ...operations.filter(isUnknown).map((each) => `unexpected: ${tell(each)}`),
    ...counts
      .filter(({ left }) => left > 0)
      .map(({ who, left }) => `${who} holds or waits for ${left} locks that nobody wants`),
    ...unwell(operations, facts).map((each) => `after all faults: ${tell(each)}`),
    ...calm.filter((hold) => waitOf(hold) > PATIENCE_US).map((hold) => `starved: ${show(hold)}`),
    ...facts.names
      .filter((_, i) => (gaps[i] as number) > PATIENCE_US)
      .map((lock) => `${lock} was not granted for ${PATIENCE_US / 1e6} s after all faults`),
    ...overtaken
      .filter(({ by }) => by > 2 * TURN * facts.managers)
      .map(({ hold, by }) => `overtaken by ${by}: ${show(hold)}`),
  ];
  return { ...verdict, problems };
}

/** The writes that a store accepted behind those with greater fences. */
export function staleWrites(fences: readonly number[]): number {
  let seen = 0;
  let stale = 0;
  for (const fence of fences) {
    if (fence < seen) stale += 1;
    seen = Math.max(seen, fence);
  }
  return stale;
}

/** The state of the stores of a round. */
export interface StoresVerdict {
  readonly problems: readonly string[];
  readonly accepted: number;
  readonly refused: number;
  readonly stale: number;
}

/** Judges the accepted writes by the logs of the stores, not by their own verdict. */
export async function judgeStores(ledger: Ledger): Promise<StoresVerdict> {
  const problems: string[] = [];
  const [stores, writes] = await Promise.all([ledger.stores(), ledger.writes()]);
  const sum = { accepted: 0, refused: 0, stale: 0 };
  for (const [lock, { value, accepted, refused }] of stores) {
    const stale = staleWrites(writes.get(lock) ?? []);
    if (stale > 0) problems.push(`${lock}: the store accepted ${stale} stale writes`);
    if (value !== accepted) problems.push(`${lock}: ${accepted} writes made ${value}`);
    sum.accepted += accepted;
    sum.refused += refused;
    sum.stale += stale;
  }
  return { problems, ...sum };
}

/** With a process its threads end. */
function allDeaths({ deaths, holds }: History): Map<string, number> {
  const all = new Map(deaths);
  for (const { who } of holds) {
    const process = who.replace(/\.t\d+$/, '');
    const died = Math.min(deaths.get(who) ?? Infinity, deaths.get(process) ?? Infinity);
    if (Number.isFinite(died)) all.set(who, died);
  }
  return all;
}

/** The allowed outcomes of an operation during faults. */
const KNOWN = [
  ...['ok', 'nothing', 'refused', 'cancelled', 'unanswered'],
  ...['ERR_LOCK_CLOSED', 'ERR_LOCK_CONNECTION', 'ERR_LOCK_LOST', 'ERR_LOCK_QUORUM'],
  ...['ERR_LOCK_SERVER', 'ERR_LOCK_TIMEOUT'],
];

function isUnknown({ outcome }: Operation): boolean {
  return !KNOWN.includes(outcome);
}

/** The operations that failed without faults; a patient caller must never fail then. */
function unwell(operations: readonly Operation[], { healed }: Case): Operation[] {
  const impatient = ['hastily', 'untilCancelled'];
  return operations.filter(
    ({ way, asked, outcome }) =>
      asked > healed + RECOVERY_US &&
      !impatient.includes(way) &&
      outcome.startsWith('ERR_') &&
      // A lease that is not renewed may be shorter than the work.
      outcome !== 'ERR_LOCK_LOST',
  );
}

/** The longest time after the faults without a grant of `lock`. */
function gapOf(lock: string, holds: readonly Hold[], { healed, ended }: Case): number {
  const begins = holds.filter((hold) => hold.lock === lock).map(({ begin }) => begin);
  const grants = begins.filter((begin) => begin > healed && begin < ended).sort((a, b) => a - b);
  const moments = [healed, ...grants, ended];
  return longest(moments.slice(1).map((moment, i) => moment - (moments[i] as number)));
}

/** For each hold of a whole lock the number of later callers that were served first. */
function overtakings(calm: readonly Hold[], { healed }: Case): { hold: Hold; by: number }[] {
  const alone = calm.filter(
    ({ request }) =>
      request?.shared === false && request.several !== true && request.asked > healed + RECOVERY_US,
  );
  return alone.map((hold) => {
    const asked = askedOf(hold);
    const later = alone.filter(
      (other) => other.lock === hold.lock && askedOf(other) > asked && other.fence < hold.fence,
    );
    return { hold, by: later.length };
  });
}

function askedOf({ request, begin }: Hold): number {
  return request?.asked ?? begin;
}

function waitOf(hold: Hold): number {
  return hold.begin - askedOf(hold);
}

function longest(times: readonly number[]): number {
  return times.reduce((most, time) => Math.max(most, time), 0);
}

function tell({ who, way, asked, ended, outcome }: Operation): string {
  return `${who} ${way} [${asked} … ${ended}] ${outcome}`;
}

function show({ who, lock, fence, begin, request }: Hold): string {
  return `${who} ${lock} #${fence} asked at ${request?.asked}, had it at ${begin}`;
}
