/** Where locks live, in one form, whichever the target was given in: addresses, logins, TLS and a database. */

import { type Login, NO_LOGIN } from './login.js';
import type { CheckedOptions } from './options.js';
import { invalid } from './target-parts.js';
import type { TlsOptions } from './tls.js';

/** The one server, or else the `cluster`, `sentinels`, `quorum` or `memory`. @internal */
export interface Endpoints extends Login {
  readonly host: string | null;
  readonly port: number;
  /** The options of TLS; null if no server speaks it. */
  readonly tls: TlsOptions | null;
  readonly path: string | null;
  /** Some servers of a Cluster: host and port, alternating. */
  readonly cluster: readonly string[] | null;
  /** The Sentinels that name the server; `host` and `port` are unused then. */
  readonly sentinels: readonly Sentinel[] | null;
  /** Independent servers, of which a majority decides. */
  readonly quorum: readonly Endpoints[] | null;
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
  readonly tls: TlsOptions | null;
}

/** The properties that a target has by default. @internal */
export const NOWHERE = {
  host: null,
  port: 0,
  tls: null,
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

/**
 * The endpoints with the login and the TLS of the options, which go before those of the target. Throws if the options are
 * for another kind of target, or if a server would get a user without a password.
 *
 * @internal
 */
export function withOptions(where: Endpoints, options: CheckedOptions): Endpoints {
  checkFit(where, options);
  if (where.quorum === null) return serverWith(where, options);
  const quorum = where.quorum.map((server) => serverWith(server, options));
  return { ...where, tls: quorum.find(({ tls }) => tls !== null)?.tls ?? null, quorum };
}

function checkFit(where: Endpoints, { replicas, tls, ...options }: CheckedOptions): void {
  const { label, memory, cluster, quorum } = where;
  if (replicas !== undefined && (memory ?? cluster ?? quorum) !== null) {
    throw invalid(`options.replicas is for one server and its replicas, not for ${label}`);
  }
  if (tls !== undefined && where.tls === null) {
    const begin = 'rediss:// or valkeys://';
    throw invalid(`options.tls needs a URL that begins with ${begin}, got ${label}`);
  }
  for (const option of ['serverTimeout', 'longestLease'] as const) {
    if (options[option] === undefined || quorum !== null) continue;
    throw invalid(`options.${option} is for a quorum, not for ${label}`);
  }
}

function serverWith(server: Endpoints, options: CheckedOptions): Endpoints {
  const login = loginOf(server, options);
  checkLogin(login, server.label);
  return { ...server, ...login, tls: server.tls === null ? null : (options.tls ?? server.tls) };
}

function loginOf(server: Login, { username, password, credentials }: CheckedOptions): Login {
  if (credentials !== undefined) return { ...NO_LOGIN, credentials };
  const isGiven = username !== undefined || password !== undefined;
  return {
    username: username ?? server.username,
    password: password ?? server.password,
    credentials: isGiven ? null : server.credentials,
  };
}
