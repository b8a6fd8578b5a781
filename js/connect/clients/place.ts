/** The place of a client as arguments of `connect`, and helpers for every kind of client. */

import { argumentError } from '../../base/errors.js';
import type { CredentialsSource } from '../credentials.js';
import type { ClusterTarget, SentinelTarget } from '../target.js';
import type { TlsOptions } from '../tls.js';

/** The place that one client is connected to. @internal */
export interface Place {
  readonly target: string | ClusterTarget | SentinelTarget;
  readonly prefix: string;
  readonly tls?: TlsOptions;
  /** The client's own provider of its login, which replaces the login in the target. */
  readonly credentials?: CredentialsSource;
}

/** An object of another library, whose properties are unknown. @internal */
export type Unknown = Readonly<Record<string, unknown>>;

/** The parts of a URL of one server. @internal */
export interface Address {
  readonly host?: unknown;
  readonly port?: unknown;
  readonly path?: unknown;
  readonly username?: unknown;
  readonly password?: unknown;
  readonly db?: unknown;
  readonly tls: boolean;
}

const TLS_OPTIONS = ['ca', 'cert', 'key', 'rejectUnauthorized', 'servername'];

/** @internal */
export function refuse(what: string, cure: string): Error {
  const other =
    "or give locks a connection of their own by holdfast's connect('redis://host:6379')";
  return argumentError('ERR_INVALID_ARG_VALUE', `${what}; ${cure}, ${other}`);
}

/** Refuses the first of `keys` that is set: holdfast has no such option. @internal */
export function refuseSet(options: Unknown, keys: readonly string[], client: string): void {
  const set = keys.find((key) => options[key] !== undefined && options[key] !== null);
  if (set === undefined) return;
  throw refuse(`"${set}" of the ${client} cannot be carried over`, 'leave it out');
}

/** `value` if it is an object, or else an empty one. @internal */
export function bag(value: unknown): Unknown {
  return typeof value === 'object' && value !== null ? (value as Unknown) : {};
}

/** `value` if it is a string that is not empty. @internal */
export function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** The prefix of all keys. @internal */
export function prefixOf(keyPrefix: unknown): string {
  if (keyPrefix === undefined || keyPrefix === null) return '';
  if (typeof keyPrefix === 'string') return keyPrefix;
  throw refuse('a keyPrefix that is not a string cannot be carried over', 'make it a string');
}

/** The `tls` of a client as that of `connect`; undefined if the client speaks no TLS. @internal */
export function tlsOf(tls: unknown, client: string): TlsOptions | undefined {
  if (tls === undefined || tls === null || tls === false) return undefined;
  if (tls === true) return {};
  if (typeof tls === 'string') {
    throw refuse(`"tls" of the ${client} is a string`, 'give its options as an object');
  }
  const given = Object.entries(bag(tls)).filter(([, value]) => value !== undefined);
  const other = given.find(([key]) => !TLS_OPTIONS.includes(key));
  if (other !== undefined) {
    throw refuse(`"tls.${other[0]}" of the ${client} cannot be carried over`, 'leave it out');
  }
  return Object.fromEntries(given) as TlsOptions;
}

/** The URL of a server. Missing parts get the defaults that all clients share. @internal */
export function urlOf({ host, port, path, username, password, db, tls }: Address): string {
  const user = text(username);
  const secret = text(password);
  if (text(path) !== undefined) {
    const search = new URLSearchParams({ db: `${db ?? 0}` });
    if (user !== undefined) search.set('user', user);
    // A client that has only a user sends an empty password.
    if (user !== undefined || secret !== undefined) search.set('pass', secret ?? '');
    return `unix://${encodeURI(path as string).replace(/[?#]/g, encodeURIComponent)}?${search}`;
  }
  const login = `${encodeURIComponent(user ?? '')}:${encodeURIComponent(secret ?? '')}@`;
  const name = text(host) ?? '127.0.0.1';
  const shown = name.includes(':') && !name.startsWith('[') ? `[${name}]` : name;
  const where = `${shown}:${port ?? 6379}/${db ?? 0}`;
  return `${tls ? 'rediss' : 'redis'}://${login === ':@' ? '' : login}${where}`;
}

/** The place of a Cluster. All nodes have one login: the `shared` one, or that of the first node. @internal */
export function clusterOf(
  nodes: readonly Address[],
  shared: Pick<Address, 'username' | 'password'>,
  tls: TlsOptions | undefined,
  keyPrefix: unknown,
): Place {
  const [first] = nodes;
  const username = text(shared.username) ?? first?.username;
  const password = text(shared.password) ?? first?.password;
  const login = { username, password, tls: tls !== undefined };
  const urls = nodes.map(({ host, port }) => urlOf({ host, port, ...login }));
  const prefix = prefixOf(keyPrefix);
  return { target: { cluster: urls }, prefix, ...(tls === undefined ? {} : { tls }) };
}
