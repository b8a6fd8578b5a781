/** Makes the arguments of `connect` of the parts that the client of another library has. */

import { argumentError } from '../../base/errors.js';
import { type CredentialsSource, isSource } from '../login.js';
import type { ClusterTarget, SentinelTarget, ServerTarget } from '../target.js';
import type { TlsOptions } from '../tls.js';

/** An object of another library, whose properties are unknown. @internal */
export type Unknown = Readonly<Record<string, unknown>>;

/** Where one server is, and how to log in to it, as a client has it. @internal */
export interface AddressParts {
  /** The URL with the parts that are missing here. */
  readonly url?: unknown;
  readonly host?: unknown;
  readonly port?: unknown;
  readonly path?: unknown;
  readonly username?: unknown;
  readonly password?: unknown;
  /** The source of both, in their place. */
  readonly credentials?: unknown;
  readonly db?: unknown;
  /** The options of TLS, or whether the server speaks it. */
  readonly tls?: unknown;
}

/** Sentinels, with the login and the TLS that they have themselves. @internal */
export interface SentinelParts extends Pick<AddressParts, 'username' | 'password' | 'tls'> {
  readonly nodes: readonly AddressParts[];
  readonly master: unknown;
  readonly role: unknown;
  /** Whether the client speaks TLS with the master if it has options for that. */
  readonly masterHasTls: boolean;
}

/** The connection of a client, as the client has it: `placeOf` checks it. @internal */
export interface ClientParts {
  /** The kind of client, as errors name it. */
  readonly kind: string;
  /** Its server; the master of Sentinels; or what all nodes of a Cluster share. */
  readonly server: AddressParts;
  /** Some nodes of a Cluster, if it is that of one. */
  readonly nodes?: readonly AddressParts[];
  readonly sentinels?: SentinelParts;
  readonly keyPrefix: unknown;
  /** Settings that holdfast has nothing like, by their names. */
  readonly foreign: Unknown;
}

/** The arguments of `connect` that lead where a client is connected to. @internal */
export interface Place {
  readonly target: ServerTarget | ClusterTarget | SentinelTarget;
  readonly options: { readonly prefix: string; readonly tls?: TlsOptions };
}

const TLS_OPTIONS = ['ca', 'cert', 'key', 'rejectUnauthorized', 'servername'];

/** The place of a client with these parts. Throws if `connect` cannot carry one of them over. @internal */
export function placeOf(parts: ClientParts): Place {
  const { kind, nodes, sentinels, keyPrefix } = parts;
  refuseSet(parts.foreign, kind);
  const server = withUrl(parts.server, kind);
  const others = nodes?.map((node) => withUrl(node, kind));
  const tls = tlsOf(server.tls, kind) ?? tlsOf(others?.[0]?.tls, kind);
  const options = { prefix: prefixOf(keyPrefix), ...(tls === undefined ? {} : { tls }) };
  const speaksTls = tls !== undefined;
  if (others !== undefined) return { target: clusterOf(others, server, kind, speaksTls), options };
  if (sentinels === undefined) return { target: serverOf(server, kind, speaksTls), options };
  checkSentinels(sentinels, tls, kind);
  return { target: sentinelsOf(sentinels, server, speaksTls), options };
}

/** Refuses the first setting that is set. */
function refuseSet(foreign: Unknown, kind: string): void {
  const isSet = (value: unknown) => value !== undefined && value !== null && value !== false;
  const set = Object.keys(foreign).find((key) => isSet(foreign[key]));
  if (set === undefined) return;
  const cure = set === 'useSRVRecords' ? 'name its nodes' : 'leave it out';
  throw refuse(`"${set}" of the ${kind} cannot be carried over`, cure);
}

/** An address with the parts that its URL has. */
function withUrl(address: AddressParts, kind: string): AddressParts {
  if (typeof address.url !== 'string') return address;
  try {
    const url = new URL(address.url);
    return {
      ...address,
      host: text(address.host) ?? url.hostname,
      port: address.port ?? (url.port || undefined),
      username: text(address.username) ?? decodeURIComponent(url.username),
      password: text(address.password) ?? decodeURIComponent(url.password),
      tls: address.tls ?? url.protocol === 'rediss:',
    };
  } catch {
    // The message leaves it out: it may have a password.
    throw refuse(`a URL of the ${kind} cannot be read`, 'use redis://host:port');
  }
}

/** The `tls` of a client as that of `connect`; undefined if the client speaks no TLS. */
function tlsOf(tls: unknown, kind: string): TlsOptions | undefined {
  if (tls === undefined || tls === null || tls === false) return undefined;
  if (tls === true) return {};
  if (typeof tls === 'string') {
    throw refuse(`"tls" of the ${kind} is a string`, 'give its options as an object');
  }
  const given = Object.entries(bag(tls)).filter(([, value]) => value !== undefined);
  const other = given.find(([key]) => !TLS_OPTIONS.includes(key));
  if (other !== undefined) {
    throw refuse(`"tls.${other[0]}" of the ${kind} cannot be carried over`, 'leave it out');
  }
  return Object.fromEntries(given) as TlsOptions;
}

/** One server. Missing parts get the defaults that all clients share. */
function serverOf(address: AddressParts, kind: string, tls: boolean): ServerTarget {
  const { host, port, path, db, credentials } = address;
  const login = credentialsOf(credentials, kind) ?? loginOf(address, 'username', 'password');
  const common = { ...login, db: Number(db ?? 0), tls };
  if (text(path) !== undefined) return { ...common, path: path as string };
  return { ...common, host: hostOf(host), port: (port ?? 6379) as number };
}

/** A Cluster. All nodes have one login: that of the `shared` parts, or that of the first node. */
function clusterOf(
  nodes: readonly AddressParts[],
  shared: AddressParts,
  kind: string,
  tls: boolean,
): ClusterTarget {
  const [first] = nodes;
  const username = text(shared.username) ?? first?.username;
  const password = text(shared.password) ?? first?.password;
  const login = { username, password, credentials: shared.credentials };
  return { cluster: nodes.map(({ host, port }) => serverOf({ host, port, ...login }, kind, tls)) };
}

/** Throws unless the client finds the master, and speaks TLS with all or none. */
function checkSentinels(
  { role, tls, masterHasTls }: SentinelParts,
  ofMaster: TlsOptions | undefined,
  kind: string,
): void {
  if (role === 'slave') {
    throw refuse(`the ${kind} is for replicas ("role")`, 'locks are kept on the master');
  }
  if (ofMaster !== undefined && !masterHasTls) {
    const what = `the ${kind} has "tls", but speaks none without "enableTLSForSentinelMode"`;
    throw refuse(what, 'set both, or none');
  }
  const own = tlsOf(tls, kind);
  if ((own === undefined) !== (ofMaster === undefined)) {
    const what = `the ${kind} speaks TLS either with the Sentinels or with the master, not with both`;
    throw refuse(what, 'use it for both, or for none');
  }
  if (JSON.stringify(own) !== JSON.stringify(ofMaster)) {
    throw refuse(`"sentinelTLS" of the ${kind} is not its "tls"`, 'make them the same');
  }
}

function sentinelsOf(sentinels: SentinelParts, master: AddressParts, tls: boolean): SentinelTarget {
  const urls = sentinels.nodes.map(({ host, port = 26_379 }) => {
    const name = hostOf(host);
    return `${tls ? 'rediss' : 'redis'}://${name.includes(':') ? `[${name}]` : name}:${port}`;
  });
  return {
    sentinels: urls,
    master: text(sentinels.master) ?? '',
    db: Number(master.db ?? 0),
    ...loginOf(master, 'username', 'password'),
    ...loginOf(sentinels, 'sentinelUsername', 'sentinelPassword'),
  };
}

function hostOf(host: unknown): string {
  return (text(host) ?? '127.0.0.1').replace(/^\[(.*)\]$/, '$1');
}

/** The login of an address. A client that has only a user sends an empty password. */
function loginOf<U extends string, P extends string>(
  address: AddressParts,
  user: U,
  pass: P,
): { [K in U | P]?: string } {
  const [username, password] = [text(address.username), text(address.password)];
  if (username === undefined && password === undefined) return {};
  const given = username === undefined ? {} : { [user]: username };
  return { ...given, [pass]: password ?? '' } as { [K in U | P]?: string };
}

/** The source of the login, if the client has one. */
function credentialsOf(
  credentials: unknown,
  kind: string,
): { readonly credentials: CredentialsSource } | undefined {
  if (credentials === undefined || credentials === null) return undefined;
  if (isSource(credentials)) return { credentials };
  const what = `"credentialsProvider" of the ${kind} is of a kind that holdfast does not know`;
  throw refuse(what, 'give it a username and a password');
}

/** @internal */
export function refuse(what: string, cure: string): Error {
  const other =
    "or give locks a connection of their own by holdfast's connect('redis://host:6379')";
  return argumentError('ERR_INVALID_ARG_VALUE', `${what}; ${cure}, ${other}`);
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
