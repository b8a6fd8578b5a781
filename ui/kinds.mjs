// What each lock is: its kind, how many permits are taken, how long it has been held and waited for.

/** The kinds by which people choose, in the order in which they are offered. */
export const KINDS = {
  exclusive: 'Exclusive',
  shared: 'Shared',
  semaphore: 'Semaphores',
  leader: 'Leaders',
  done: 'Finished slots',
  idle: 'Idle',
  free: 'Free',
};

/** A wait is shown as long, and as very long, from so many ms. */
const LONG_MS = 10_000;
const VERY_LONG_MS = 60_000;

export function kindOf({ kind, mode, limit, holders, votes }) {
  const [first] = holders;
  if (first === undefined) return votes === undefined ? 'free' : 'split';
  if (first.state !== 'held') return first.state;
  if (kind === 'leader' && mode === 'exclusive') return 'leader';
  if (limit !== null && mode === 'shared') return 'semaphore';
  return mode;
}

/** The kind as the badge of a row says it. */
export function badgeOf(lock) {
  const kind = kindOf(lock);
  if (kind === 'semaphore') return `${takenOf(lock)}/${lock.limit}${isFull(lock) ? ' full' : ''}`;
  if (kind === 'split') return 'no majority';
  return kind;
}

/** The kind in a sentence about one lock. */
export function describe(lock) {
  const [first] = lock.holders;
  const kind = kindOf(lock);
  if (kind === 'semaphore') {
    return `Semaphore: ${takenOf(lock)} of ${lock.limit} permits are taken${isFull(lock) ? ', it is full' : ''}.`;
  }
  if (kind === 'done') {
    return `A finished slot: its job does not run again while the mark lasts.${first.result ? ' It keeps its result.' : ''}`;
  }
  const words = {
    exclusive: 'Held exclusively.',
    shared: `Held by ${lock.holders.length} at once, without a limit.`,
    leader: 'Held by the leader.',
    idle: 'Idle: its process keeps it for its next caller.',
    split: 'Nobody has the votes of a majority.',
    free: 'It is held by nobody.',
  };
  return words[kind];
}

/** Whether to tell the permits of each holder and waiter: the lock is a semaphore, also while none of it is held. */
export function countsPermits({ limit, waiters }) {
  return limit !== null || waiters.some(({ permits }) => permits > 1);
}

/** How many permits are taken. */
export function takenOf({ holders }) {
  return holders.reduce((sum, { permits }) => sum + permits, 0);
}

export function isFull(lock) {
  return kindOf(lock) === 'semaphore' && takenOf(lock) >= lock.limit;
}

/** Since when somebody works under the lock; Infinity for one that nobody works under. */
export function heldSince({ holders }) {
  const working = holders.filter(({ state }) => state !== 'done' && state !== 'idle');
  return oldest(working.map(({ since }) => since));
}

/** Whether somebody waits who could be kept too long: a candidate waits for as long as another leads. */
export function isWaitedFor({ kind, waiters }) {
  return kind !== 'leader' && waiters.length > 0;
}

/** Since when the first waiter waits; Infinity if nobody does, or none but candidates. */
export function waitedSince(lock) {
  return isWaitedFor(lock) ? oldest(lock.waiters.map(({ since }) => since)) : oldest([]);
}

/** How much a wait matters: '' for none, then 'some', 'long', 'very-long'. */
export function urgencyOf(lock, now) {
  if (!isWaitedFor(lock)) return '';
  const wait = now - waitedSince(lock);
  if (wait < LONG_MS) return 'some';
  return wait < VERY_LONG_MS ? 'long' : 'very-long';
}

function oldest(times) {
  return times.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
}
