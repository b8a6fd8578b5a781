/**
 * Owner tokens of holdfast, `hf1.<client>.<n>[/<limit>[/<permits>]][.<label>]`: what they tell about the holder of a lock.
 */

import { readLabel } from './label.js';
import { ownerIn } from './owners.js';

/** `n` is the time since the start of the client, in units of 4 µs. */
const TICKS_PER_MS = 250;

/** A UUID v7 without its hyphens: 48 bits for the ms since 1970, then the version and the variant. */
const CLIENT = /^([0-9a-f]{12})7[0-9a-f]{3}[89ab][0-9a-f]{15}$/;

/** When the owner asked for the lock, by the clock of its machine; `null` if the token does not tell it. */
export function askedAt(token: string): Date | null {
  const [, client = '', n = ''] = /^hf1\.([^.]+)\.(\d+)(?:[. /]|$)/.exec(token) ?? [];
  const [, start] = CLIENT.exec(client) ?? [];
  if (start === undefined) return null;
  const asked = new Date(Number.parseInt(start, 16) + Number(n) / TICKS_PER_MS);
  return Number.isNaN(asked.getTime()) ? null : asked;
}

/**
 * The value of the key that marks a slot of `runOnce` as done, `<token> done[@<planned time>][ <JSON of the result>]`: the token
 * is that of the lock under which it was marked, and no token has a space.
 *
 * @internal
 */
export interface DoneMark {
  /** The last planned time that is done, as `toISOString()` writes it; only of a job with planned times. */
  readonly time?: string | undefined;
  /** The result that the slot keeps. */
  readonly json?: string | undefined;
}

const MARK = /^(hf1\.[^ ]+) done(?:@([^ ]+))?(?: (.*))?$/s;

/** @internal */
export function writeMark(token: string, { time, json }: DoneMark): string {
  const planned = time === undefined ? '' : `@${time}`;
  return `${token} done${planned}${json === undefined ? '' : ` ${json}`}`;
}

/** Reads the mark of a slot that is done; undefined for any other value. @internal */
export function readMark(value: string): DoneMark | undefined {
  const [, token, time, json] = MARK.exec(value) ?? [];
  // Other code may hold a lock by any value.
  return token === undefined || clientOf(token) === null ? undefined : { time, json };
}

/**
 * The label of a token of holdfast, `hf1.<client>.<n>.<label>`, as its caller has given it. Behind a space stands
 * what a mark says. An owner that its caller has named is its own label.
 */
export function labelOf(token: string): string | undefined {
  const written = /^hf1\.[^.]+\.\d+(?:\/\d+){0,2}\.([^ ]+)/.exec(token)?.[1];
  return written === undefined ? undefined : (ownerIn(written) ?? readLabel(written));
}

/** Whether other code has written this value. */
export function isForeign(token: string): boolean {
  return !token.startsWith('hf1.');
}

/** The manager in a token of holdfast: `hf1.<client>.<n>`; `null` in any other value. */
export function clientOf(token: string): string | null {
  return /^hf1\.([^.]+)\.\d+(?:[. /]|$)/.exec(token)?.[1] ?? null;
}

/** The number in a token of `client`, as in `hf1.<client>.<n>`; `NaN` for any other. */
export function numberOf(token: string, client: string): number {
  return clientOf(token) === client ? Number.parseInt(token.split('.')[2] ?? '', 10) : Number.NaN;
}

/** The limit and the permits of a share, as they stand behind the number in its token; empty without a limit. */
export function termsOf(limit: number, permits: number): string {
  if (limit <= 0) return '';
  return permits === 1 ? `/${limit}` : `/${limit}/${permits}`;
}

/** The permits in what `termsOf` tells. */
export function permitsIn(terms: string): number {
  return Number(terms.split('/')[2] ?? 1);
}

/** The limit in what `termsOf` tells; `null` if there is none. */
export function limitIn(terms: string): number | null {
  const [, limit] = terms.split('/');
  return limit === undefined ? null : Number(limit);
}

/** How many permits the holder of a token has or asks for, and of how many; `limit` is `null` if there is none. */
export function shareOf(token: string): {
  readonly permits: number;
  readonly limit: number | null;
} {
  const [, limit, permits = '1'] =
    /^hf1\.[^.]+\.\d+\/(\d+)(?:\/(\d+))?(?:[. ]|$)/.exec(token) ?? [];
  if (limit === undefined) return { permits: 1, limit: null };
  return { permits: Number(permits), limit: Number(limit) };
}
