// The order of the list: sorted, and on demand in groups by prefix.

import { nameOf } from './format.mjs';
import { badgeOf, heldSince, isWaitedFor, kindOf, waitedSince } from './kinds.mjs';

/** What each column is sorted by. A first click shows the greatest first, except for text. */
export const KEYS = {
  name: ({ name }) => name,
  kind: (lock) => kindOf(lock) + badgeOf(lock),
  holder: ({ holders }) => holders.map(nameOf).join(),
  held: (lock, now) => now - heldSince(lock),
  waiting: (lock) => (isWaitedFor(lock) ? lock.waiters.length : 0),
  longest: (lock, now) => now - waitedSince(lock),
  lease: ({ holders }, now) =>
    holders.reduce((least, { ends }) => Math.min(least, ends ?? Infinity), Infinity) - now,
  fence: ({ holders }) => holders[0]?.fence ?? 0,
  changes: ({ changes }) => changes,
};
/** The columns whose least value comes first at the first click. */
export const RISING = ['name', 'kind', 'holder', 'lease'];

/** The locks in order. */
export function sorted(locks, { by, rising }, now) {
  const key = KEYS[by];
  const sign = rising ? 1 : -1;
  return locks
    .map((lock) => [key(lock, now), lock])
    .sort(([a, one], [b, other]) => sign * compare(a, b) || compare(one.name, other.name))
    .map(([, lock]) => lock);
}

/** What stands before the first colon, slash or at sign, with it; names without any are together. */
export function prefixOf(name) {
  const [found] = /^[^:/@]+[:/@]/.exec(name) ?? [''];
  return found;
}

/** The items of the list: locks, and ahead of each group its head; the locks of a closed group are left out. */
export function grouped(locks, closed) {
  const groups = new Map();
  for (const lock of locks) {
    const prefix = prefixOf(lock.name);
    if (!groups.has(prefix)) groups.set(prefix, []);
    groups.get(prefix).push(lock);
  }
  return [...groups].flatMap(([prefix, own]) => {
    const open = !closed.has(prefix);
    const waiting = own.filter(isWaitedFor).reduce((sum, { waiters }) => sum + waiters.length, 0);
    const head = { name: `group ${prefix}`, group: prefix, open, count: own.length, waiting };
    return open ? [head, ...own] : [head];
  });
}

/** Texts as people count: 2-59 before 2-509. */
const NATURAL = new Intl.Collator('en', { numeric: true });

function compare(a, b) {
  if (typeof a === 'string') return NATURAL.compare(a, b) || Number(a > b) - Number(a < b);
  return a < b ? -1 : Number(a > b);
}
