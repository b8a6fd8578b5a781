/** The kinds of locks: a label must not have as many values as there are names. */

import { show } from '../base/checks.js';
import { argumentError } from '../base/errors.js';
import { jobOf } from '../base/names.js';
import { kindsWarning, type Warning } from '../manager/warnings.js';

/**
 * How `measureLocks` groups the names of locks: a list of kinds, or a function from a name to its kind. A name is of the
 * longest kind in the list that it begins with, up to the end of the name, a separator or a digit; a name of none is of
 * the kind `other`. A function may make 100 kinds; the names of later ones are of the kind `other`.
 *
 * @example
 * ```ts
 * import { measureLocks } from 'holdfast/prometheus'
 *
 * measureLocks(locks, { kinds: ['item', 'cron:settle'] })
 * measureLocks(others, { manager: 'others', kinds: (name) => name.split('/')[1] ?? 'other' })
 * ```
 */
export type LockKinds = readonly string[] | ((name: string) => string);

/** The kind of each name that has no other. */
const OTHER = 'other';
const KINDS_MAX = 100;
/** The characters that end the constant part of a name. */
const SEPARATOR = /[:/._@#|,;=+~\s{}-]/u;
const END_OF_KIND = new RegExp(`^(?:$|\\d|${SEPARATOR.source})`, 'u');

/** Finds the kinds of names, of which there is a bounded number. @internal */
export class Kinds {
  readonly #kindOf: (name: string) => string;
  readonly #isBounded: boolean;
  readonly #met = new Set<string>();
  readonly #warn: (warning: Warning) => void;

  /** `warn` may be called any number of times with the same warning. */
  constructor(given: unknown, warn: (warning: Warning) => void) {
    this.#isBounded = Array.isArray(given);
    this.#kindOf = readKinds(given);
    this.#warn = warn;
  }

  /** The kind of a lock. */
  of(name: string): string {
    const kind = this.#kind(name);
    if (this.#isBounded || kind === OTHER || this.#met.has(kind)) return kind;
    if (this.#met.size >= KINDS_MAX) {
      this.#warn(
        kindsWarning(
          `the names of locks have more than ${KINDS_MAX} kinds, now also ${show(kind)}`,
        ),
      );
      return OTHER;
    }
    this.#met.add(kind);
    return kind;
  }

  #kind(name: string): string {
    // It runs in the middle of an acquire or a release, which must not fail for a label.
    try {
      // The marks of a job are of its own kind.
      const kind: unknown = this.#kindOf(jobOf(name));
      if (typeof kind === 'string') return kind;
      this.#warn(kindsWarning(`the function kinds answered ${show(kind)}, not a string`));
    } catch (error) {
      this.#warn(kindsWarning(`the function kinds threw an error: ${error}`));
    }
    return OTHER;
  }
}

function readKinds(given: unknown): (name: string) => string {
  if (given === undefined) return firstPart;
  if (typeof given === 'function') return given as (name: string) => string;
  if (Array.isArray(given) && given.every((kind) => typeof kind === 'string' && kind !== '')) {
    // The longest first.
    const kinds = [...(given as string[])].sort((a, b) => b.length - a.length);
    return (name) => kinds.find((kind) => isOf(name, kind)) ?? OTHER;
  }
  const message = `kinds must be a list of names, or a function from a lock's name to its kind, got ${show(given)}`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}

function isOf(name: string, kind: string): boolean {
  return name.startsWith(kind) && END_OF_KIND.test(name.slice(kind.length));
}

/** The part in front of the first separator: `item` of `item:42`. One with a digit in it is taken for an id. */
function firstPart(name: string): string {
  const [part = ''] = name.split(SEPARATOR, 1);
  return part === '' || /\d/.test(part) ? OTHER : part;
}
