/** Checks of the parts of a target: host, port, database, login, and whether there is TLS. */

import { checkText } from '../base/checks.js';
import { argumentError } from '../base/errors.js';
import { checkLoginParts, type Login } from './login.js';
import type { TlsOptions } from './tls.js';

/** The port of a server. @internal */
export const DEFAULT_PORT = 6379;
const DB_MAX = 99_999;

/** The login and database of a server that is given by its parts, checked. @internal */
export function checkParts({
  username,
  password,
  credentials,
  db = 0,
}: {
  readonly username?: unknown;
  readonly password?: unknown;
  readonly credentials?: unknown;
  readonly db?: number | undefined;
}): Login & { readonly db: number } {
  whole(db, 'db', 0, DB_MAX);
  return { ...checkLoginParts(username, password, credentials), db };
}

/** Throws unless `value` is a whole number from `least` to `most`. @internal */
export function whole(value: unknown, what: string, least: number, most: number): number {
  if (typeof value !== 'number') {
    const message = `${what} must be a number, got a value of type ${typeof value}`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  if (!Number.isInteger(value) || value < least || value > most) {
    const message = `${what} must be a whole number, ${least} to ${most}, got ${value}`;
    throw argumentError('ERR_OUT_OF_RANGE', message);
  }
  return value;
}

/** Throws unless `host` can be one. The message leaves out a URL, which may have a login. @internal */
export function checkHost(host: unknown, what: string): asserts host is string {
  checkText(host, what);
  if (host === '') throw invalid(`${what} must not be empty`);
  if (!/[/@]/.test(host)) return;
  throw invalid(`${what} must be the name or the IP address of a host, not a URL or a login`);
}

/** Throws unless the servers `who` speak TLS all, or none of them. @internal */
export function checkAllTls(
  all: readonly { readonly tls: TlsOptions | null }[],
  who: string,
): void {
  const speaking = all.filter(({ tls }) => tls !== null);
  if (speaking.length === 0 || speaking.length === all.length) return;
  throw invalid(`${who} speak TLS all or none of them: name each with rediss://, or none`);
}

/** Throws where no server listens on a socket file. @internal */
export function checkSockets(): void {
  if (process.platform !== 'win32') return;
  throw invalid(
    'on Windows a server is reached by TCP, as in redis://localhost:6379: socket files and named pipes do not work there',
  );
}

/** The error for a target that cannot be one. @internal */
export function invalid(message: string): Error {
  return argumentError('ERR_INVALID_ARG_VALUE', message);
}
