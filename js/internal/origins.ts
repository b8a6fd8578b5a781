/**
 * Where locks were acquired, if the environment variable `HOLDFAST_TRACE` is 1: a stack trace for each acquire, as long
 * as its lock is held. They cost too much for everyday use.
 */

import type { Wanted } from '../api/options.js';

const KNOWN = process.env['HOLDFAST_TRACE'] === '1';

const origins = new WeakMap<object, string>();

/** What is wanted, with the calls that led to `method`, if these are to be known. @internal */
export function withOrigin(wanted: Wanted, method: (...args: never[]) => unknown): Wanted {
  if (!KNOWN) return wanted;
  const at: { stack?: string } = {};
  Error.captureStackTrace(at, method);
  return { ...wanted, origin: at.stack?.split('\n').slice(1).join('\n') };
}

/** Remembers where `lock` was acquired, if that is known. @internal */
export function setOrigin(lock: object, origin: string | undefined): void {
  if (origin !== undefined) origins.set(lock, origin);
}

/** Where `lock` was acquired, if that is known. @internal */
export function originOf(lock: object): string | undefined {
  return origins.get(lock);
}
