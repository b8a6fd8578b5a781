/**
 * Whether what was written down about holds of all kinds of locks may have been so: exclusive and shared
 * ones, those with a limit, downgraded ones, and those of other code, which have no fence.
 */

import type { Hold } from './history.js';

/** How late a process may learn of its lock that nothing blocks, in µs. */
const MOMENT = 300_000;

/** When processes were killed, by their names and the clock of the history. */
export type Deaths = ReadonlyMap<string, number>;

/**
 * A time at which the server may have let somebody in beside those who held a lock: it lost data, or
 * the lock was taken away by force.
 */
export interface Rift {
  /** The lock; without a name it goes through all. */
  readonly lock?: string;
  readonly from: number;
  readonly to: number;
  /**
   * Two servers granted locks at once, and fences rise in the history of each. Where grants are confirmed by others, the
   * one that is cut off can grant nothing more: who had a lock before, and lengthens it there, may be one too many.
   */
  readonly fork?: 'confirmed' | 'unconfirmed';
}

/** What else is known about a history. */
export interface Known {
  readonly deaths?: Deaths;
  readonly rifts?: readonly Rift[];
  /** The longest lease, in µs: so long after a rift everybody knows what he has lost. */
  readonly lease?: number;
}

/** A hold whose end is known. */
interface Ended extends Hold {
  /** Until when the holder believed in it. */
  readonly over: number;
}

/** All contradictions, in words. Empty if there is none. */
export function problemsOfKinds(holds: readonly Hold[], known: Known = {}): string[] {
  const { deaths = new Map(), rifts = [], lease = 0 } = known;
  const problems: string[] = [];
  for (const lock of new Set(holds.map((hold) => hold.lock))) {
    const ofLock = holds.filter((hold) => hold.lock === lock);
    const ended = ofLock.map((hold) => ({ ...hold, over: overOf(hold, deaths) }));
    const live = ended.filter((hold) => !hold.stillborn);
    live.sort((a, b) => a.begin - b.begin);
    const through = rifts.filter((rift) => (rift.lock ?? lock) === lock);
    const apart = (a: Ended, b: Ended) => parted(a, b, through, lease);
    const aside = (a: Ended, b: Ended) => forked(a, b, through);
    problems.push(
      ...excluded(live, apart),
      ...limits(live, apart),
      ...repeatedFences(ended),
      ...order(live, apart, aside),
    );
  }
  return problems;
}

/** Whether two holds have nothing to do with each other. */
type Apart = (a: Ended, b: Ended) => boolean;

/** Whether a rift lies between two holds: one was granted before it, the other began after it. */
function parted(a: Ended, b: Ended, rifts: readonly Rift[], lease: number): boolean {
  const survives = (hold: Ended, { from, to, fork }: Rift) => {
    const { begin, over, request } = hold;
    const asked = request?.asked ?? begin;
    // Its caller may have been blocked for two leases before it knew.
    const had = fork === 'confirmed' ? grantedBy(hold) <= from + 2 * lease + MOMENT : asked <= to;
    return had && over >= from && over <= to + lease;
  };
  return rifts.some(
    (rift) =>
      (survives(a, rift) && b.begin >= rift.from) || (survives(b, rift) && a.begin >= rift.from),
  );
}

/** When a hold had been granted at the latest: handed from one process to another it is one grant still. */
function grantedBy({ begin, request }: Hold): number {
  return request?.heritage === undefined ? begin : request.asked;
}

/** Whether one was granted by a server that was cut off, beside what another had granted. */
function forked({ request, begin }: Hold, other: Ended, rifts: readonly Rift[]): boolean {
  return rifts.some(
    ({ fork, from, to }) =>
      fork === 'unconfirmed' &&
      (request?.asked ?? begin) <= to &&
      begin >= from &&
      other.over >= from,
  );
}

/** Who was killed believed until then, or as long as it could know that it might. */
function overOf({ who, end, lostAt, until }: Hold, deaths: Deaths): number {
  const died = deaths.get(who);
  const ended = until === undefined || died === undefined ? end : Math.min(died, until);
  return Math.max(ended, lostAt ?? 0);
}

/** A time during which a lock was held in one way. */
interface Span {
  readonly hold: Ended;
  readonly alone: boolean;
  readonly from: number;
  readonly to: number;
}

function spansOf(hold: Ended): Span[] {
  const { begin, over, downgraded } = hold;
  const whole = { hold, alone: isAlone(hold), from: begin, to: over };
  if (downgraded === undefined) return [whole];
  return [
    { ...whole, to: downgraded },
    { ...whole, alone: false, from: downgraded },
  ];
}

/** An exclusive holder is the only one. */
function excluded(holds: readonly Ended[], apart: Apart): string[] {
  const problems: string[] = [];
  let current: Span[] = [];
  for (const span of holds.flatMap(spansOf).sort((a, b) => a.from - b.from)) {
    current = current.filter(({ to }) => to > span.from);
    for (const other of current) {
      if (!(span.alone || other.alone) || other.hold === span.hold) continue;
      if (apart(other.hold, span.hold)) continue;
      problems.push(`not alone: ${tell(other.hold)} and ${tell(span.hold)}`);
    }
    current.push(span);
  }
  return problems;
}

/**
 * At each grant with a limit so many had the lock at most. Fences tell the order of the grants: the holder that
 * has a smaller one, and holds the lock still when this holder knows, had it at the grant for certain. A share
 * that was handed from one process to another was granted once: others may have joined it since, without a limit.
 */
function limits(holds: readonly Ended[], apart: Apart): string[] {
  const problems: string[] = [];
  const granted = holds.filter(hasFence).sort((a, b) => a.fence - b.fence);
  const soonest = soonestBegins(granted);
  const shares = new Set<string | number>();
  let earlier: Ended[] = [];
  for (const [i, hold] of granted.entries()) {
    // Those that ended before anybody who is yet to come began are of no concern any more.
    earlier = earlier.filter(({ over }) => over > (soonest[i] as number));
    const limit = hold.request?.limit ?? Number.POSITIVE_INFINITY;
    const others = earlier.filter((other) => other.over > hold.begin && !apart(other, hold));
    const isGrant = !shares.has(shareOf(hold));
    if (isGrant && new Set(others.map(shareOf)).size >= limit) {
      problems.push(`over ${limit}: ${tell(hold)} beside ${others.map(tell).join(', ')}`);
    }
    shares.add(shareOf(hold));
    earlier.push(hold);
  }
  return problems;
}

/** The key that all holds of one share have in common. */
function shareOf({ fence, request }: Hold): string | number {
  return request?.heritage ?? fence;
}

/** For each hold when the first of it and all behind it began. */
function soonestBegins(holds: readonly Hold[]): number[] {
  const soonest: number[] = [];
  let first = Number.POSITIVE_INFINITY;
  for (const { begin } of [...holds].reverse()) {
    first = Math.min(first, begin);
    soonest.push(first);
  }
  return soonest.reverse();
}

function repeatedFences(holds: readonly Hold[]): string[] {
  const byFence = new Map<number, Hold>();
  const problems: string[] = [];
  for (const hold of holds.filter(hasFence)) {
    const other = byFence.get(hold.fence);
    if (other !== undefined) {
      problems.push(`one fence twice: ${tell(other)} and ${tell(hold)}`);
    }
    byFence.set(hold.fence, hold);
  }
  return problems;
}

/**
 * A caller that asked when another had the lock already has the greater fence. Where one of two held it alone,
 * so has the one that began later, unless the other was granted the lock before a rift and learned of it
 * after that; those who share learn of their grants in any order.
 */
function order(holds: readonly Ended[], apart: Apart, aside: Apart): string[] {
  const fenced = holds.filter(hasFence);
  const all = fencesBefore(fenced);
  const alone = fencesBefore(fenced.filter(isAlone));
  const problems: string[] = [];
  for (const hold of fenced) {
    const asked = all(hold.request?.asked ?? hold.begin, hold);
    const began = (isAlone(hold) ? all : alone)(hold.begin, hold);
    // One is enough: behind a fence that fell all are smaller.
    const [other] = [
      ...asked.filter((each) => !aside(hold, each)),
      ...began.filter((each) => !apart(each, hold)),
    ];
    if (other === undefined) continue;
    problems.push(`a smaller fence later: ${tell(other)} and then ${tell(hold)}`);
  }
  return problems;
}

/** Tells which of `holds`, in the order of their begins, began before a moment with a greater fence than a hold. */
function fencesBefore(holds: readonly Ended[]): (moment: number, hold: Ended) => Ended[] {
  const greatest: number[] = [];
  for (const { fence } of holds) greatest.push(Math.max(fence, greatest.at(-1) ?? 0));
  return (moment, hold) => {
    let [low, high] = [0, holds.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((holds[middle] as Ended).begin < moment) low = middle + 1;
      else high = middle;
    }
    if ((greatest[low - 1] ?? 0) <= hold.fence) return [];
    return holds.slice(0, low).filter(({ fence }) => fence > hold.fence);
  };
}

function isAlone({ request }: Hold): boolean {
  return request?.shared !== true;
}

/** Other code has none. */
function hasFence({ fence }: Hold): boolean {
  return fence > 0;
}

function tell(hold: Hold): string {
  const { who, lock, fence, begin, end, until, lostAt, downgraded, request } = hold;
  const kind = request?.shared === true ? `shared${request.limit ?? ''}` : 'alone';
  const more = Object.entries({ until, lostAt, downgraded })
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => `, ${key} ${value}`);
  return `${who} ${lock} ${kind} #${fence} [${begin} … ${end}${more.join('')}]`;
}
