/** A target in one form, whichever it was given in: hosts, ports, a login and a database. */

import { checkText } from '../base/checks.js';
import { argumentError } from '../base/errors.js';
import { checkLoginParts, type Login, NO_LOGIN } from './credentials.js';
import type { TlsOptions } from './tls.js';

/** @internal */
export interface Target extends Login {
  readonly host: string | null;
  readonly port: number;
  /** Whether the server speaks TLS. */
  readonly tls: boolean;
  /** The options of TLS that the target had in it. */
  readonly tlsOptions: TlsOptions | null;
  readonly path: string | null;
  /** Some servers of a Cluster: host and port, alternating. */
  readonly cluster: readonly string[] | null;
  /** The Sentinels that name the server; `host` and `port` are unused then. */
  readonly sentinels: readonly Sentinel[] | null;
  /** Independent servers, of which a majority decides. */
  readonly quorum: readonly Target[] | null;
  /** The Sentinels' name for the server. */
  readonly master: string | null;
  /** The name of the store inside this process; empty for a private one. */
  readonly memory: string | null;
  readonly db: number;
  /** The server's name in error messages, without login. */
  readonly label: string;
}

/** One Sentinel and how to log in to it. @internal */
export interface Sentinel extends Login {
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
}

/** The port of a server. @internal */
export const DEFAULT_PORT = 6379;
const DB_MAX = 99_999;

/** The properties that a target has by default. @internal */
export const NOWHERE = {
  host: null,
  port: 0,
  tls: false,
  tlsOptions: null,
  path: null,
  cluster: null,
  quorum: null,
  sentinels: null,
  master: null,
  memory: null,
  ...NO_LOGIN,
  db: 0,
} as const;

/**
 * Refuses a user without a password, who would become the default user. The message does not name the user: it may be a
 * password, since `redis-cli` takes what stands alone before the `@` for one.
 *
 * @internal
 */
export function checkLogin({ username, password }: Login, who: string): void {
  const named = username !== null && username !== '' && username !== 'default';
  if (!named || password !== null) return;
  throw invalid(
    `the login for ${who} has a username and no password: add the option password, '' for a user that needs none; a password alone stands behind a colon, as in redis://:password@host`,
  );
}

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
}): Login & Pick<Target, 'db'> {
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
  all: readonly { readonly tls: boolean }[],
  tls: boolean,
  who: string,
): void {
  if (all.every((each) => each.tls === tls)) return;
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
