/** Lengths of time and moments, as people read and write them: in options, messages, the command line and the page. */

import { argumentError } from './errors.js';

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/**
 * A length of time: a number of ms, or a text with the unit `ms`, `s`, `m`, `h` or `d`, such as `'500ms'`, `'30s'` or
 * `'1.5h'`.
 *
 * @example
 * ```ts
 * import type { Duration } from 'holdfast'
 *
 * const wait: Duration = '5s'
 * await using lock = await locks.acquire('item:42', { wait, ttl: 10_000 })
 * ```
 */
export type Duration = number | `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`;

/** Reads a length of time such as `30s`, in whole ms; answers undefined if it is none. @internal */
export function readDuration(text: string): number | undefined {
  const [, digits, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text) ?? [];
  if (digits === undefined) return undefined;
  return Math.round(Number(digits) * UNITS[unit as keyof typeof UNITS]);
}

/** Reads the text of an option in whole ms. Refuses a text without a unit, which may mean anything. @internal */
export function milliseconds(text: string, what: string): number {
  const ms = readDuration(text);
  if (ms !== undefined) return ms;
  const number = /^\d+$/.test(text)
    ? `: write ${Number(text)} for ms, or '${text}s' for seconds`
    : '';
  const shown = JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);
  const message = `${what} must be a number of ms, or a text with a unit such as '500ms', '30s', '5m', '1h' or '1d', got ${shown}${number}`;
  throw argumentError('ERR_INVALID_ARG_VALUE', message);
}

/** A length of time in ms: `850ms`, `8.2s`, `3m20s`, `2h05m`, `3d04h`. Rounded to the last unit shown. @internal */
export function human(ms: number): string {
  const whole = Math.round(Math.max(0, ms));
  if (whole < 1_000) return `${whole}ms`;
  if (whole < 59_950) return `${(whole / UNITS.s).toFixed(1)}s`;
  const seconds = Math.round(whole / UNITS.s);
  if (seconds < 3_600) return pair(seconds, 60, 'm', 's');
  const minutes = Math.round(whole / UNITS.m);
  if (minutes < 24 * 60) return pair(minutes, 60, 'h', 'm');
  return pair(Math.round(whole / UNITS.h), 24, 'd', 'h');
}

/** A whole number of small units, as large ones and the rest of small ones. */
function pair(total: number, parts: number, large: string, small: string): string {
  return `${Math.floor(total / parts)}${large}${pad(total % parts)}${small}`;
}

/** The time of day, 24 h. @internal */
export function clock(time: Date): string {
  return time.toTimeString().slice(0, 8);
}

/** A moment: the time of day, with its date unless that is today. @internal */
export function moment(time: Date): string {
  const isToday = time.toDateString() === new Date().toDateString();
  return isToday ? clock(time) : `${dateOf(time)} ${clock(time)}`;
}

function dateOf(time: Date): string {
  return [time.getFullYear(), time.getMonth() + 1, time.getDate()].map(pad).join('-');
}

function pad(number: number): string {
  return String(number).padStart(2, '0');
}
