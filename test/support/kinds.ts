/**
 * Whether what was written down about holds of all kinds of locks may have been so: exclusive and shared
 * ones, those with a limit, downgraded ones, and those of other code, which have no fence.
 */

import type { Hold } from './history.js';

/** When processes were killed, by their names and the clock of the history. */
export type Deaths = ReadonlyMap<string, number>;

/** A hold whose end is known. */
interface Ended extends Hold {
  /** Until when the holder believed in it. */
  readonly over: number;
}

/** Everything that cannot have been so, in words. Empty if all is well. */
export function problemsOfKinds(holds: readonly Hold[], deaths: Deaths = new Map()): string[] {
  const problems: string[] = [];
  for (const lock of new Set(holds.map((hold) => hold.lock))) {
    const ofLock = holds.filter((hold) => hold.lock === lock);
    const ended = ofLock.map((hold) => ({ ...hold, over: overOf(hold, deaths) }));
    const live = ended.filter((hold) => !hold.stillborn);
    live.sort((a, b) => a.begin - b.begin);
    problems.push(...excluded(live), ...limits(live), ...repeatedFences(ended), ...order(live));
  }
  return problems;
}

/** Who was killed believed until then, or as long as it could know that it might. */
function overOf({ who, end, lostAt, until }: Hold, deaths: Deaths): number {
  const died = deaths.get(who);
  const ended = until === undefined || died === undefined ? end : Math.min(died, until);
  return Math.max(ended, lostAt ?? 0);
}

/** A time during which a lock was held in one way. */
interface Span {
  readonly hold: Hold;
  readonly alone: boolean;
  readonly from: number;
  readonly to: number;
}

function spansOf(hold: Ended): Span[] {
  const { begin, over, downgraded } = hold;
  const whole = { hold, alone: hold.wish?.shared !== true, from: begin, to: over };
  if (downgraded === undefined) return [whole];
  return [
    { ...whole, to: downgraded },
    { ...whole, alone: false, from: downgraded },
  ];
}

/** Whoever holds a lock alone is the only one. */
function excluded(holds: readonly Ended[]): string[] {
  const problems: string[] = [];
  let alone: Span | undefined;
  let longest: Span | undefined;
  const spans = holds.flatMap(spansOf).sort((a, b) => a.from - b.from);
  for (const span of spans) {
    const other = span.alone ? longest : alone;
    if (other !== undefined && span.from < other.to) {
      problems.push(`not alone: ${tell(other.hold)} and ${tell(span.hold)}`);
    }
    if (span.alone && span.to > (alone?.to ?? 0)) alone = span;
    if (span.to > (longest?.to ?? 0)) longest = span;
  }
  return problems;
}

/**
 * At each grant with a limit so many had the lock at most. Fences tell the order of the grants: whoever
 * has a smaller one, and holds the lock still when this holder knows, had it at the grant for certain.
 */
function limits(holds: readonly Ended[]): string[] {
  const problems: string[] = [];
  const granted = holds.filter(hasFence).sort((a, b) => a.fence - b.fence);
  const soonest = soonestBegins(granted);
  let earlier: Ended[] = [];
  for (const [i, hold] of granted.entries()) {
    // Those that ended before anybody who is yet to come began are of no concern any more.
    earlier = earlier.filter(({ over }) => over > (soonest[i] as number));
    const limit = hold.wish?.limit ?? Number.POSITIVE_INFINITY;
    const others = earlier.filter(({ over }) => over > hold.begin);
    if (others.length >= limit) {
      problems.push(`over ${limit}: ${tell(hold)} beside ${others.map(tell).join(', ')}`);
    }
    earlier.push(hold);
  }
  return problems;
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
    if (other !== undefined) problems.push(`one fence twice: ${tell(other)} and ${tell(hold)}`);
    byFence.set(hold.fence, hold);
  }
  return problems;
}

/**
 * Whoever asked when another had the lock already has the greater fence. Where one of two held it alone,
 * so has whoever began later; those who share learn of their grants in any order.
 */
function order(holds: readonly Ended[]): string[] {
  const fenced = holds.filter(hasFence);
  const all = greatestFences(fenced);
  const alone = greatestFences(fenced.filter((hold) => hold.wish?.shared !== true));
  const problems: string[] = [];
  for (const hold of fenced) {
    const isAlone = hold.wish?.shared !== true;
    const before = [
      all(isAlone ? hold.begin : (hold.wish?.asked ?? hold.begin)),
      alone(hold.begin),
    ];
    for (const other of before) {
      if (other === undefined || other.fence <= hold.fence) continue;
      problems.push(`a smaller fence later: ${tell(other)} and then ${tell(hold)}`);
    }
  }
  return problems;
}

/** Tells who has the greatest fence of those that began before a moment. */
function greatestFences(holds: readonly Hold[]): (moment: number) => Hold | undefined {
  const greatest: Hold[] = [];
  for (const hold of holds) {
    const last = greatest.at(-1);
    greatest.push(last === undefined || hold.fence > last.fence ? hold : last);
  }
  return (moment) => {
    let [low, high] = [0, holds.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((holds[middle] as Hold).begin < moment) low = middle + 1;
      else high = middle;
    }
    return greatest[low - 1];
  };
}

/** Other code has none. */
function hasFence({ fence }: Hold): boolean {
  return fence > 0;
}

function tell(hold: Hold): string {
  const { who, lock, fence, begin, end, until, lostAt, downgraded, wish } = hold;
  const kind = wish?.shared === true ? `shared${wish.limit ?? ''}` : 'alone';
  const more = Object.entries({ until, lostAt, downgraded })
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => `, ${key} ${value}`);
  return `${who} ${lock} ${kind} #${fence} [${begin} … ${end}${more.join('')}]`;
}
