/**
 * Owner tokens of holdfast, `hf1.<client>.<n>[/<limit>[/<permits>]][.<label>]`, and the marks of `runOnce` that begin with one.
 * `src/protocol/token.rs` is the other parser; a test has both read the same texts.
 */

import { readLabel } from './label.js';
import { ownerIn } from './owners.js';

const PREFIX = 'hf1.';
/** Client, number, limit, permits, label, and the text behind a space, which no token has. */
const TOKEN = /^hf1\.([^. /]+)\.(\d+)(?:\/(\d+)(?:\/(\d+))?)?(?:\.([^ ]*))?(?: (.*))?$/s;

/** `n` is the time since the start of the client, in units of 4 µs. */
const TICKS_PER_MS = 250;

/** A UUID v7 without its hyphens: 48 bits for the ms since 1970, then the version and the variant. */
const CLIENT = /^([0-9a-f]{12})7[0-9a-f]{3}[89ab][0-9a-f]{15}$/;

/** The parts of a token. */
interface Parts {
  /** The manager that made it. */
  readonly client: string;
  readonly number: number;
  /** `null` if it is no share with a limit. */
  readonly limit: number | null;
  readonly permits: number;
  /** As it is written; empty for none. */
  readonly label: string;
  /** The text behind a space; undefined for none. */
  readonly rest: string | undefined;
}

function parse(token: string): Parts | undefined {
  const found = TOKEN.exec(token);
  if (found === null) return undefined;
  const [, client = '', number, limit, permits = 1, label = '', rest] = found;
  return {
    client,
    number: Number(number),
    limit: limit === undefined ? null : Number(limit),
    permits: Number(permits),
    label,
    rest,
  };
}

/** Writes a token; `terms` as `termsOf` writes them, `label` as it is to stand there. @internal */
export function writeToken(client: string, number: number, terms: string, label = ''): string {
  const token = `${PREFIX}${client}.${number}${terms}`;
  return label === '' ? token : `${token}.${label}`;
}

/** Whether other code has written this value. */
export function isForeign(token: string): boolean {
  return !token.startsWith(PREFIX);
}

/** When the owner asked for the lock, by the clock of its machine; `null` if the token does not tell it. */
export function askedAt(token: string): Date | null {
  const { client = '', number = 0 } = parse(token) ?? {};
  const [, start] = CLIENT.exec(client) ?? [];
  if (start === undefined) return null;
  const asked = new Date(Number.parseInt(start, 16) + number / TICKS_PER_MS);
  return Number.isNaN(asked.getTime()) ? null : asked;
}

/** The manager in a token of holdfast; `null` in any other value. */
export function clientOf(token: string): string | null {
  return parse(token)?.client ?? null;
}

/** The number in a token of `client`; `NaN` for any other. */
export function numberOf(token: string, client: string): number {
  const parts = parse(token);
  return parts?.client === client ? parts.number : Number.NaN;
}

/** The label of a token as its caller has given it; undefined for none. An owner is its own label. */
export function labelOf(token: string): string | undefined {
  const label = parse(token)?.label ?? '';
  return label === '' ? undefined : (ownerIn(label) ?? readLabel(label));
}

/** The owner in the token of a hold; `null` if none is named. */
export function ownerOf(token: string): string | null {
  const { label = '', rest } = parse(token) ?? {};
  return rest === undefined ? ownerIn(label) : null;
}

/** How many permits the holder of a token has or asks for, and of how many; `limit` is `null` if there is none. */
export function shareOf(token: string): Pick<Parts, 'limit' | 'permits'> {
  const { permits = 1, limit = null } = parse(token) ?? {};
  return { permits, limit };
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

/**
 * The value of the key that marks a slot of `runOnce` as done, `<token> done[@<planned time>][ <JSON of the result>]`: the token
 * is that of the lock under which it was marked.
 *
 * @internal
 */
export interface DoneMark {
  /** The last planned time that is done, as `toISOString()` writes it; only of a job with planned times. */
  readonly time?: string | undefined;
  /** The result that the slot keeps. */
  readonly json?: string | undefined;
}

const DONE = /^done(?:@([^ ]+))?(?: (.*))?$/s;

/** @internal */
export function writeMark(token: string, { time, json }: DoneMark): string {
  const planned = time === undefined ? '' : `@${time}`;
  return `${token} done${planned}${json === undefined ? '' : ` ${json}`}`;
}

/** Reads the mark of a slot that is done; undefined for any other value. @internal */
export function readMark(value: string): DoneMark | undefined {
  // Other code may hold a lock by any value.
  const [found, time, json] = DONE.exec(parse(value)?.rest ?? '') ?? [];
  return found === undefined ? undefined : { time, json };
}
