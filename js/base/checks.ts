/** Checks of values. Their errors say what was expected and what was given. */

import { argumentError } from './errors.js';
import { type Duration, milliseconds } from './time.js';

/** @internal */
export function checkBoolean(value: unknown, what: string): asserts value is boolean {
  if (typeof value === 'boolean') return;
  throw argumentError('ERR_INVALID_ARG_TYPE', `${what} must be a boolean, got ${show(value)}`);
}

/** Checks a number of ms. @internal */
export function checkWhole(value: unknown, what: string, least: number, most: number): void {
  checkWholeNumber(value, what, least, most, 'whole ms');
}

/** @internal */
export function checkWholeNumber(
  value: unknown,
  what: string,
  least: number,
  most: number,
  kind = 'a whole number',
): void {
  if (typeof value !== 'number') {
    throw argumentError('ERR_INVALID_ARG_TYPE', `${what} must be a number, got ${show(value)}`);
  }
  if (!Number.isInteger(value) || value < least || value > most) {
    // The largest number that can be told is worth a word only to those who give more.
    const isEndless = most === Number.MAX_SAFE_INTEGER && !(value > most);
    const range = isEndless ? `${least} or more` : `${least} to ${most}`;
    throw argumentError('ERR_OUT_OF_RANGE', `${what} must be ${kind}, ${range}, got ${value}`);
  }
}

/** @internal */
export function checkText(value: unknown, what: string): asserts value is string {
  if (typeof value !== 'string') {
    throw argumentError('ERR_INVALID_ARG_TYPE', `${what} must be a string, got ${show(value)}`);
  }
  if (!isWellFormed(value)) {
    const message = `${what} must be well-formed Unicode, got ${show(value)}`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
}

/** Like `checkText`, but never shows the value. @internal */
export function checkSecret(value: unknown, what: string): void {
  if (typeof value !== 'string') {
    throw argumentError('ERR_INVALID_ARG_TYPE', `${what} must be a string, got a ${typeof value}`);
  }
}

/** Options without those that are `undefined`, which count as not given; lengths of time in ms. @internal */
export type Given<T> = { [K in keyof T]: Exclude<T[K], undefined | Exclude<Duration, number>> };

const NO_TIMES: ReadonlySet<string> = new Set();

/** The copy of a caller's options. It inherits from no other object, so an option that the caller left out is undefined. */
class Checked {}
Object.setPrototypeOf(Checked.prototype, null);

/**
 * Checks that `options` is an object of known options, its own or inherited, and copies them; `undefined` becomes an empty
 * object. Those named in `times` are lengths of time, and become ms where they are texts.
 *
 * @internal
 */
export function checkObject<T extends object>(
  options: unknown,
  known: readonly string[],
  caller: string,
  times = NO_TIMES,
): Given<T> {
  const checked = new Checked() as Given<T>;
  if (options === undefined) return checked;
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    const time = typeof options === 'number' || typeof options === 'string';
    const meant = ['ttl', 'wait'].filter((key) => time && known.includes(key));
    const written = meant.map((key) => `{ ${key}: ${show(options).replace(/^number /, '')} }`);
    const advice = written.length > 0 ? `: write ${written.join(' or ')}` : '';
    const message = `the options of ${caller} must be an object, got ${show(options)}${advice}`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  // A plain object inherits no options. Other objects may, also by getters, which are not enumerated.
  const isPlain = Object.getPrototypeOf(options) === Object.prototype;
  for (const key in options) {
    if (!known.includes(key) && isGiven(options, key)) {
      const message = `${caller} has no option "${key}"; ${advice(key, known)}`;
      throw argumentError('ERR_INVALID_ARG_TYPE', message);
    }
    copyOption(options, key, checked, times);
  }
  if (!isPlain) for (const key of known) copyOption(options, key, checked, times);
  return checked;
}

function copyOption(
  options: object,
  key: string,
  checked: object,
  times: ReadonlySet<string>,
): void {
  if (!isGiven(options, key)) return;
  const value = (options as Record<string, unknown>)[key];
  if (value === undefined) return;
  const isText = typeof value === 'string' && times.has(key);
  (checked as Record<string, unknown>)[key] = isText ? milliseconds(value, key) : value;
}

/** Whether the caller has set a property: what other code has added to all objects is no option. */
function isGiven(options: object, key: string): boolean {
  return Object.hasOwn(options, key) || (key in options && !(key in Object.prototype));
}

/** The option that `word` may be a slip of, or else the list of all options. */
function advice(word: string, known: readonly string[]): string {
  const distances = known.map((candidate) => ({
    candidate,
    distance: editDistance(word.toLowerCase(), candidate.toLowerCase()),
  }));
  const nearest = distances.reduce((a, b) => (b.distance < a.distance ? b : a));
  // A change of two letters makes another word of a word of three.
  if (nearest.distance <= (word.length < 4 ? 1 : Math.max(2, word.length / 3)))
    return `did you mean "${nearest.candidate}"?`;
  return `it has ${[...known].sort().join(', ')}`;
}

/** Levenshtein distance: <https://en.wikipedia.org/wiki/Levenshtein_distance>. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const [diagonal, above, left] = [row[j - 1], row[j], next[j - 1]] as Triple;
      const substitute = diagonal + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(substitute, above + 1, left + 1));
    }
    row = next;
  }
  return row[b.length] as number;
}

type Triple = [number, number, number];

/** `String.prototype.isWellFormed`, which the types of ES2022 do not know. @internal */
export function isWellFormed(text: string): boolean {
  return (text as string & { isWellFormed(): boolean }).isWellFormed();
}

/** A value in an error message: short, quoted, with its type. @internal */
export function show(value: unknown): string {
  if (typeof value === 'string') {
    const text = value.length > 60 ? `${value.slice(0, 60)}…` : value;
    return JSON.stringify(text);
  }
  if (value === null || value === undefined) return String(value);
  if (typeof value === 'object') return Array.isArray(value) ? 'an array' : 'an object';
  return typeof value === 'function' ? 'a function' : `${typeof value} ${String(value)}`;
}

/** @internal */
export function checkFunction(value: unknown, what: string): void {
  if (typeof value === 'function') return;
  throw argumentError('ERR_INVALID_ARG_TYPE', `${what} must be a function, got ${show(value)}`);
}
