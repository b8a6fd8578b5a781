/** The checks of lock names. */

import { isWellFormed, show } from './checks.js';
import { argumentError } from './errors.js';
import { hashTagOf } from './hash-slots.js';

const NAME_BYTES_MAX = 1024;
/** The limit of one call: each name costs the event loop the work of a lock, and maybe a round trip. */
const NAMES_MAX = 1000;

/**
 * The ends of the keys beside those of locks.
 *
 * @internal
 */
export const RESERVED_SUFFIXES = new Set([':fence', ':queue', ':shared', ':waiters', ':waiting']);
const SUFFIX_LENGTHS = [...RESERVED_SUFFIXES].map(({ length }) => length);
const SUFFIX_MIN = Math.min(...SUFFIX_LENGTHS);
const SUFFIX_MAX = Math.max(...SUFFIX_LENGTHS);
/** The ends of these ends. Only a name that is one of them makes a key with such an end, whatever the prefix is. */
const SUFFIX_ENDS = new Set(
  [...RESERVED_SUFFIXES].flatMap((suffix) => [...suffix].map((_, from) => suffix.slice(from))),
);
const LEADER = 'leader:';
const MARK = 'once:';
const BEFORE_SLOT = '@';
const COLON = ':'.charCodeAt(0);
/** The two forms of these keys: without and with a hash tag in the lock's own key. */
const PLAIN = /^\{(.+)\}:(?:fence|queue|shared|waiters|waiting)$/s;
const TAGGED = /^(.+)::(?:fence|queue|shared|waiters|waiting)$/s;
/** The counters of fences: of a server, and of the slots of a Cluster. */
const COUNTER = /^holdfast:(?:\{\d+\}:)?fence$/;

/**
 * Joins two names to one, so that no two pairs have the same: the first `separator` is the one between them, since `first` has
 * `%` and two digits in place of its own, and of `%`. Names without these two stay as they are.
 *
 * @param separator - One ASCII character other than `%` and the digits of a code.
 * @internal
 */
export function joinNames(first: string, last: string, separator: string): string {
  const written = (character: string) =>
    `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
  const escaped = first.replaceAll('%', written).replaceAll(separator, written);
  return `${escaped}${separator}${last}`;
}

/**
 * The name of the key that marks a slot of `runOnce` as done; `''` stands for all planned times of a job. Marks begin alike, so
 * that no job has one for its lock, see `checkJob`.
 *
 * @internal
 */
export function markOf(job: string, slot: string): string {
  return `${MARK}${joinNames(job, slot, BEFORE_SLOT)}`;
}

/** The job of which a lock is a mark, so that both can be counted together; of any other lock its name. @internal */
export function jobOf(lock: string): string {
  return isMark(lock) ? lock.slice(MARK.length, lock.indexOf(BEFORE_SLOT)) : lock;
}

function isMark(lock: string): boolean {
  return lock.startsWith(MARK) && lock.includes(BEFORE_SLOT);
}

/**
 * Refuses a job whose lock would have the name of a mark.
 *
 * @internal
 */
export function checkJob(key: string): void {
  if (!isMark(key)) return;
  const message = `the key of runOnce must not begin with "${MARK}" and have an "${BEFORE_SLOT}", as the marks of slots that are done, got ${show(key)}`;
  throw argumentError('ERR_INVALID_ARG_VALUE', message);
}

/**
 * The name of the lock for which `lead` campaigns. By its beginning the command line, the page and the metrics tell it from
 * other locks, so nothing more has to be stored.
 *
 * @internal
 */
export function leaderLockOf(name: string): string {
  return `${LEADER}${name}`;
}

/** Whether a lock is a leader's: it is held, and waited for, for as long as its processes live. @internal */
export function isLeaderLock(lock: string): boolean {
  return lock.startsWith(LEADER);
}

/**
 * Whether the fences of all locks come from this key.
 *
 * @internal
 */
export function isCounter(key: string): boolean {
  return COUNTER.test(key);
}

/**
 * Refuses keys such as `a}b` and `{}x`: on Cluster their side keys would hash to another slot.
 *
 * @internal
 */
export function checkSlot(key: string): void {
  if (!hasTag(key) && key.includes('}')) {
    const message = `on a Cluster a lock's key with a "}" must have a hash tag, such as "cart:{42}", got ${show(key)}`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
}

/** Whether Cluster hashes only a part of the key. */
function hasTag(key: string): boolean {
  return hashTagOf(key) !== undefined;
}

/**
 * Refuses a key that other locks need: `prefix` and a name may form one together, as `{x}:` and `queue` form a side
 * key of the lock `x`, and `holdfast:` and `fence` the counter of all fences.
 *
 * @internal
 */
export function checkKey(prefix: string, name: string): void {
  // Most names need no joined key. A longer one would have to end in a whole suffix, which `checkName` refuses.
  if (name.length >= SUFFIX_MAX || !SUFFIX_ENDS.has(name)) return;
  const key = prefix + name;
  if (reservedSuffixOf(key) === undefined) return;
  if (isCounter(key)) throw neededBy(prefix, name, 'the fences of all locks come from it');
  const [plain, tagged] = [PLAIN.exec(key)?.[1], TAGGED.exec(key)?.[1]];
  const lock = plain !== undefined && !hasTag(plain) ? plain : tagged;
  if (lock === undefined || (lock === tagged && !hasTag(lock))) return;
  throw neededBy(prefix, name, `the lock whose key is ${show(lock)} keeps its own data there`);
}

function neededBy(prefix: string, name: string, reason: string): Error {
  const message = `prefix and name must not form a key that another lock needs, got ${show(prefix)} and ${show(name)}: ${reason}`;
  return argumentError('ERR_INVALID_ARG_VALUE', message);
}

/** @internal */
export function checkName(name: unknown): asserts name is string {
  if (typeof name !== 'string') {
    throw argumentError(
      'ERR_INVALID_ARG_TYPE',
      `a lock's name must be a string, got ${show(name)}`,
    );
  }
  if (name === '') {
    throw argumentError('ERR_INVALID_ARG_VALUE', "a lock's name must not be empty");
  }
  if (!isWellFormed(name)) {
    const message = `a lock's name must be well-formed Unicode, got ${show(name)}`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  // A UTF-16 unit is at most three bytes of UTF-8: short names need no count.
  if (name.length * 3 > NAME_BYTES_MAX && Buffer.byteLength(name) > NAME_BYTES_MAX) {
    const message = `a lock's name must be at most ${NAME_BYTES_MAX} bytes of UTF-8, got ${Buffer.byteLength(name)}`;
    throw argumentError('ERR_OUT_OF_RANGE', message);
  }
  const suffix = reservedSuffixOf(name);
  if (suffix !== undefined) {
    const message = `a lock's name must not end in "${suffix}", which is the end of a key that another lock needs, got ${show(name)}`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
}

/** The reserved suffix with which a text ends, if any. */
function reservedSuffixOf(text: string): string | undefined {
  // Most names have no colon just there, and need no copy of their end.
  const first = Math.max(0, text.length - SUFFIX_MAX);
  for (let at = text.length - SUFFIX_MIN; at >= first; at--) {
    if (text.charCodeAt(at) !== COLON) continue;
    const end = text.slice(at);
    if (RESERVED_SUFFIXES.has(end)) return end;
  }
  return undefined;
}

/**
 * Checks the names of one acquire.
 *
 * @internal
 */
export function checkNames(names: readonly unknown[]): asserts names is readonly string[] {
  if (names.length === 0) {
    throw argumentError('ERR_INVALID_ARG_VALUE', 'a list of names must not be empty');
  }
  if (names.length > NAMES_MAX) {
    const message = `a list of names must have at most ${NAMES_MAX}, got ${names.length}`;
    throw argumentError('ERR_OUT_OF_RANGE', message);
  }
  const seen = new Set<string>();
  for (const name of names) {
    checkName(name);
    if (seen.has(name)) {
      const message = `a list of names must not have a name twice, got ${show(name)} again`;
      throw argumentError('ERR_INVALID_ARG_VALUE', message);
    }
    seen.add(name);
  }
}
