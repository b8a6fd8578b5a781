/** Targets: parses URLs into host, port, login and database. */

import { checkObject, checkSecret, checkText } from '../internal/checks.js';
import { argumentError } from './errors.js';
import { checkTls, type TlsOptions } from './tls.js';
import { readParameters } from './url-parameters.js';

/** @internal */
export interface Target {
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
  readonly username: string | null;
  readonly password: string | null;
  readonly db: number;
  /** The server's name in error messages, without login. */
  readonly label: string;
}

/** One Sentinel and how to log in to it. @internal */
export interface Sentinel {
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
  readonly username: string | null;
  readonly password: string | null;
}

/**
 * One server by its parts, which have the names of ioredis; see `connect`.
 *
 * @example
 * ```ts
 * const locks = await connect({ host: '127.0.0.1', port: 6379, password: process.env.REDIS_PASSWORD })
 * ```
 */
export interface ServerTarget {
  /**
   * Host name or IP address.
   *
   * @default '127.0.0.1'
   */
  readonly host?: string | undefined;
  /**
   * From 1 to 65535, as a number or in digits.
   *
   * @default 6379
   */
  readonly port?: number | string | undefined;
  /**
   * The path of a socket, in place of `host` and `port`.
   *
   * @default undefined
   */
  readonly path?: string | undefined;
  /**
   * The ACL user. The `username` of the options overrides it.
   *
   * @default undefined
   */
  readonly username?: string | undefined;
  /**
   * The password. The `password` of the options overrides it.
   *
   * @default undefined
   */
  readonly password?: string | undefined;
  /**
   * The database, a whole number from 0.
   *
   * @default 0
   */
  readonly db?: number | undefined;
  /**
   * Whether the server speaks TLS, or the options of TLS. The `tls` of the options overrides them.
   *
   * @default false
   */
  readonly tls?: boolean | TlsOptions | undefined;
}

/**
 * A client of ioredis (4 and newer) or node-redis (4 and newer), for one server, Sentinels or a Cluster; see `connect`,
 * which reads its address and does not send commands with it.
 *
 * @example
 * ```ts
 * import { Redis } from 'ioredis'
 *
 * const client = new Redis('redis://127.0.0.1:6379')
 * const locks = await connect(client)
 * client.disconnect()
 * ```
 */
export type RedisClient =
  | {
      /** A client of ioredis has it. */
      defineCommand(name: string, definition: never): unknown;
    }
  | {
      /** A client of node-redis has it. */
      sendCommand(...args: never): unknown;
    };

/**
 * Several servers for one manager, see `connect`.
 *
 * @example
 * ```ts
 * const locks = await connect({ quorum: ['redis://a:6379', 'redis://b:6379', 'redis://c:6379'] })
 * ```
 */
export interface QuorumTarget {
  /** The servers, each with its own login and database. */
  readonly quorum: readonly (string | UrlLike)[];
}

/**
 * A `URL` object, whichever library its type comes from.
 *
 * @example
 * ```ts
 * const locks = await connect(new URL('redis://127.0.0.1:6379'))
 * ```
 */
export interface UrlLike {
  /** The whole URL. */
  readonly href: string;
}

/**
 * A Redis Cluster, see `connect`.
 *
 * @example
 * ```ts
 * const locks = await connect({ cluster: ['redis://10.0.0.1:6379', 'redis://10.0.0.2:6379'] })
 * ```
 */
export interface ClusterTarget {
  /**
   * The URLs of some servers of the Cluster; the manager asks these for the others. The login of the first URL, or that
   * of the options, is used for all servers.
   */
  readonly cluster: readonly (string | UrlLike)[];
}

/**
 * A master that Sentinels watch, see `connect`.
 *
 * @example
 * ```ts
 * const locks = await connect({
 *   sentinels: ['10.0.0.1:26379', '10.0.0.2:26379', '10.0.0.3:26379'],
 *   master: 'mymaster',
 *   password: process.env.REDIS_PASSWORD,
 *   sentinelPassword: process.env.SENTINEL_PASSWORD,
 * })
 * ```
 */
export interface SentinelTarget {
  /**
   * The Sentinels, preferably all of them: URLs (`redis://[user:password@]host[:port]`), `'host:port'`, or
   * `{ host, port }`. The default port is 26379. One Sentinel that answers is enough. If all URLs begin with
   * `rediss://`, the Sentinels and the master speak TLS.
   */
  readonly sentinels: readonly (string | UrlLike | SentinelAddress)[];
  /** The Sentinels' name for the master. */
  readonly master: string;
  /**
   * The ACL user of Sentinels whose URL has no login.
   *
   * @default undefined
   */
  readonly sentinelUsername?: string | undefined;
  /**
   * The password of Sentinels whose URL has no login.
   *
   * @default undefined
   */
  readonly sentinelPassword?: string | undefined;
  /**
   * The ACL user of the master and its replicas. The `username` of the options overrides it.
   *
   * @default undefined
   */
  readonly username?: string | undefined;
  /**
   * The password of the master and its replicas. The `password` of the options overrides it.
   *
   * @default undefined
   */
  readonly password?: string | undefined;
  /**
   * The database, a whole number from 0.
   *
   * @default 0
   */
  readonly db?: number | undefined;
}

/**
 * The address of a Sentinel.
 *
 * @example
 * ```ts
 * const sentinels = [{ host: '10.0.0.1' }, { host: '10.0.0.2', port: 26379 }]
 * const locks = await connect({ sentinels, master: 'mymaster' }).catch((error) => console.error(error.message))
 * ```
 */
export interface SentinelAddress {
  /** Host name or IP address. */
  readonly host: string;
  /**
   * From 1 to 65535.
   *
   * @default 26379
   */
  readonly port?: number | undefined;
}

/**
 * Where locks live: every form of the first argument of `connect`.
 *
 * @example
 * ```ts
 * import { type ConnectTarget, connect } from 'holdfast'
 *
 * const target: ConnectTarget = { host: '127.0.0.1', port: 6379 }
 * const locks = await connect(target)
 * ```
 */
export type ConnectTarget =
  | string
  | UrlLike
  | ServerTarget
  | ClusterTarget
  | SentinelTarget
  | QuorumTarget
  | RedisClient;

/** @internal */
export const DEFAULT_URL = 'redis://127.0.0.1:6379';
const DEFAULT_PORT = 6379;
const DEFAULT_SENTINEL_PORT = 26_379;
const DB_MAX = 99_999;
/** The bounds of a quorum: with fewer servers none may fail, with more every lock is slow. */
const QUORUM_MIN = 3;
const QUORUM_MAX = 15;
const SERVER_SCHEMES = 'redis://, rediss://, valkey:// or valkeys://';
const SCHEMES = 'redis://, rediss://, valkey://, valkeys://, unix:// or memory:';
const SERVER_TARGET = ['db', 'host', 'password', 'path', 'port', 'tls', 'username'];
const SENTINEL_TARGET = [
  'db',
  'master',
  'password',
  'sentinelPassword',
  'sentinels',
  'sentinelUsername',
  'username',
];

/** The properties that a target has by default. */
const NOWHERE = {
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
  username: null,
  password: null,
  db: 0,
} as const;

/**
 * Checks the target that the caller gave, or else the one in the environment.
 *
 * @internal
 */
export function checkTarget(target: unknown): Target {
  const given = target ?? environmentTarget() ?? DEFAULT_URL;
  if (typeof given === 'object' && given !== null) {
    if ('cluster' in given) return clusterTarget(given as ClusterTarget);
    if ('quorum' in given) return quorumTarget(given as QuorumTarget);
    if ('sentinels' in given || 'master' in given) return sentinelTarget(given);
    if (['host', 'port', 'path'].some((key) => key in given) && !('href' in given)) {
      return serverTarget(given);
    }
  }
  return urlTarget(given);
}

/**
 * Refuses a user without a password, who would become the default user. The message does not name the user: it may be a
 * password, since `redis-cli` takes what stands alone before the `@` for one.
 *
 * @internal
 */
export function checkLogin(
  { username, password }: Pick<Target, 'username' | 'password'>,
  who: string,
): void {
  const named = username !== null && username !== '' && username !== 'default';
  if (!named || password !== null) return;
  throw invalid(
    `the login for ${who} has a username and no password: add the option password, '' for a user that needs none; a password alone stands behind a colon, as in redis://:password@host`,
  );
}

/** Whether the target is that of somebody who names none. @internal */
export function isDefaultTarget(target: unknown): boolean {
  return (target ?? undefined) === undefined && environmentTarget() === undefined;
}

/** The target in the environment. An empty variable counts as unset. */
function environmentTarget(): string | undefined {
  return process.env['HOLDFAST_URL'] || process.env['REDIS_URL'] || undefined;
}

function serverTarget(target: object): Target {
  const given = checkObject<ServerTarget>(target, SERVER_TARGET, 'a server');
  const { host = '127.0.0.1', path, username, password, db = 0, tls = false } = given;
  if (username !== undefined) checkText(username, 'username');
  if (password !== undefined) checkSecret(password, 'password');
  whole(db, 'db', 0, DB_MAX);
  if (typeof tls !== 'boolean') checkTls(tls, 'tls');
  const login = { username: username ?? null, password: password ?? null, db };
  if (path !== undefined) {
    checkText(path, 'path');
    if (path === '') throw invalid('path must be that of a socket, not empty');
    if (tls !== false) throw invalid('a socket speaks no TLS');
    checkSockets();
    return { ...NOWHERE, ...login, path, label: `unix://${path}?db=${db}` };
  }
  checkText(host, 'host');
  if (host === '') throw invalid('host must not be empty');
  const number = typeof given.port === 'string' ? Number(given.port) : given.port;
  const port = whole(number ?? DEFAULT_PORT, 'port', 1, 65_535);
  const name = host.includes(':') ? `[${host}]` : host;
  return {
    ...NOWHERE,
    ...login,
    host,
    port,
    tls: tls !== false,
    tlsOptions: typeof tls === 'boolean' ? null : tls,
    label: `${tls === false ? 'redis' : 'rediss'}://${name}:${port}/${db}`,
  };
}

function quorumTarget(target: QuorumTarget): Target {
  const given: unknown = target.quorum;
  const other = Object.keys(target).find((key) => key !== 'quorum');
  if (other !== undefined) {
    const message = `a quorum has no "${other}"; pass options in the second argument`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  if (!Array.isArray(given) || given.length < QUORUM_MIN || given.length > QUORUM_MAX) {
    const message = `a quorum is a list of ${QUORUM_MIN} to ${QUORUM_MAX} URLs of independent servers`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  const servers = given.map((url: unknown) => {
    if (url === undefined || url === null) throw invalid('each server of a quorum must be a URL');
    return urlTarget(url);
  });
  if (servers.some(({ memory }) => memory !== null)) {
    throw invalid('a store in this process (memory:) cannot be a server of a quorum');
  }
  const labels = servers.map(({ label }) => label);
  const twice = labels.find((label, i) => labels.indexOf(label) !== i);
  if (twice !== undefined) throw invalid(`a quorum must not name ${twice} twice`);
  const tls = servers.some((server) => server.tls);
  return { ...NOWHERE, tls, quorum: servers, label: `a quorum of ${labels.join(', ')}` };
}

/** All seeds must be reachable in the same way: one of them names the other servers. */
function clusterTarget(given: ClusterTarget): Target {
  const [unknown] = Object.keys(given).filter((key) => key !== 'cluster');
  if (unknown !== undefined) {
    throw invalid(
      `a Cluster is { cluster: [urls] }, without "${unknown}"; use the second argument`,
    );
  }
  if (!Array.isArray(given.cluster) || given.cluster.length === 0) {
    const message = 'a Cluster needs the URLs of some of its servers: { cluster: [urls] }';
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  const seeds = given.cluster.map(urlTarget);
  const [first] = seeds as [Target];
  for (const { host, db, label } of seeds) {
    if (host === null) throw invalid(`a Cluster is reached over TCP, not at ${label}`);
    if (db !== first.db) throw invalid(`one database serves a Cluster, but ${label} has another`);
  }
  checkAllTls(seeds, first.tls, 'the servers of a Cluster');
  return {
    ...first,
    host: null,
    cluster: seeds.flatMap(({ host, port }) => [host as string, `${port}`]),
    label: `the Cluster of ${first.label.replace(/\/0$/, '')}`,
  };
}

function checkAllTls(all: readonly { readonly tls: boolean }[], tls: boolean, who: string): void {
  if (all.every((each) => each.tls === tls)) return;
  throw invalid(`${who} speak TLS all or none of them: name each with rediss://, or none`);
}

function sentinelTarget(given: object): Target {
  const target = checkObject<SentinelTarget>(given, SENTINEL_TARGET, 'a Sentinel target');
  const { sentinels, master, username, password, db = 0 } = target;
  if (!Array.isArray(sentinels) || sentinels.length === 0) {
    const message = 'Sentinels need a list: { sentinels: [urls], master }';
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  checkText(master, 'master');
  if (master === '') throw invalid('master must be what the Sentinels call the master, not empty');
  if (username !== undefined) checkText(username, 'username');
  if (password !== undefined) checkSecret(password, 'password');
  whole(db, 'db', 0, DB_MAX);
  const login = sentinelLogin(target);
  const all = sentinels.map((each, i) => sentinel(each, `sentinels[${i}]`, login));
  const [{ host, port, tls }] = all as [Sentinel];
  checkAllTls(all, tls, 'Sentinels and their master');
  for (const each of all) checkLogin(each, `the Sentinel ${each.host}:${each.port}`);
  const which = db === 0 ? '' : `, database ${db}`;
  return {
    ...NOWHERE,
    tls,
    sentinels: all,
    master,
    username: username ?? null,
    password: password ?? null,
    db,
    label: `the master "${master}" of the Sentinel ${host}:${port}${which}`,
  };
}

type Login = Pick<Sentinel, 'username' | 'password'>;

function sentinelLogin({ sentinelUsername, sentinelPassword }: SentinelTarget): Login {
  if (sentinelUsername !== undefined) checkText(sentinelUsername, 'sentinelUsername');
  if (sentinelPassword !== undefined) checkSecret(sentinelPassword, 'sentinelPassword');
  return { username: sentinelUsername ?? null, password: sentinelPassword ?? null };
}

function sentinel(given: unknown, what: string, login: Login): Sentinel {
  const text = hrefOf(given);
  if (typeof text === 'string') return sentinelOf(text, what, login);
  if (typeof given !== 'object' || given === null) {
    const message = `${what} must be a URL, 'host:port' or { host, port }, got a value of type ${typeof given}`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  const address = checkObject<SentinelAddress>(given, ['host', 'port'], what);
  const { host, port = DEFAULT_SENTINEL_PORT } = address;
  checkText(host, `${what}.host`);
  if (host === '') throw invalid(`${what}.host must not be empty`);
  return { host, port: whole(port, `${what}.port`, 1, 65_535), tls: false, ...login };
}

function sentinelOf(text: string, what: string, login: Login): Sentinel {
  const complaint = `${what} is not host:port and not a URL that begins with ${SERVER_SCHEMES}`;
  const given = text.includes('://') ? text : `redis://${text}`;
  const url = parse(given, complaint);
  const known = /^(redis|valkey)s?:$/.test(url.protocol);
  if (!known || url.hostname === '') throw invalid(complaint);
  const database = url.pathname.length > 1 || url.searchParams.has('db');
  if (database) throw invalid(`${what} has a database; that of the master is db`);
  const { host, port, tls, username, password } = tcpTarget(url, given, DEFAULT_SENTINEL_PORT);
  const own = username === null && password === null ? login : { username, password };
  return { host: host as string, port, tls, ...own };
}

function whole(value: unknown, what: string, least: number, most: number): number {
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

function hrefOf(given: unknown): unknown {
  return typeof given === 'object' ? (given as Partial<UrlLike> | null)?.href : given;
}

function urlTarget(given: unknown): Target {
  const text = hrefOf(given);
  if (typeof text !== 'string') {
    const kinds =
      'a URL, { host, port }, { cluster }, { sentinels, master }, { quorum }, or a client of ioredis or node-redis';
    throw argumentError(
      'ERR_INVALID_ARG_TYPE',
      `the target must be ${kinds}, got a value of type ${typeof given}`,
    );
  }
  const url = parse(text, `the target is not a URL that begins with ${SCHEMES}`);
  switch (url.protocol) {
    case 'redis:':
    case 'rediss:':
    case 'valkey:':
    case 'valkeys:':
      return tcpTarget(url, text);
    case 'unix:':
      return unixTarget(url);
    case 'memory:':
      return memoryTarget(url);
    default:
      throw invalid(`the target must begin with ${SCHEMES}, not ${url.protocol}`);
  }
}

function parse(given: string, complaint: string): URL {
  try {
    return new URL(given);
  } catch {
    // The error of `URL` repeats the text, and so the password.
    const encode = /^(redis|valkey)s?:\/\/.*@/.test(given)
      ? '; a password with characters such as # / ? @ or : must be percent-encoded, as encodeURIComponent does it, or be the option password'
      : '';
    throw invalid(`${complaint}${encode}`);
  }
}

/** `given`: the text of `url`, which does not tell an empty password from none. */
function tcpTarget(url: URL, given: string, defaultPort = DEFAULT_PORT): Target {
  if (url.hash !== '') {
    throw invalid('the URL of a server has no #fragment; write %23 if it belongs to the password');
  }
  const parameters = readParameters(url);
  const encrypts = url.protocol === 'rediss:' || url.protocol === 'valkeys:';
  if (encrypts && parameters.tls === false) {
    throw invalid(
      `the URL begins with ${url.protocol}//, which is TLS, and its parameter says not`,
    );
  }
  const host = url.hostname === '' ? '127.0.0.1' : url.hostname.replace(/^\[(.*)\]$/, '$1');
  const port = url.port === '' ? defaultPort : Number(url.port);
  const path = url.pathname.replace(/^\//, '');
  const db = database(path === '' ? (parameters.db ?? '') : path);
  if (parameters.db !== undefined && database(parameters.db) !== db) {
    throw invalid('the URL names one database behind the /, and another one as a parameter');
  }
  const tls = encrypts || parameters.tls === true;
  const scheme = encrypts || !tls ? url.protocol : url.protocol.replace(':', 's:');
  return {
    ...NOWHERE,
    host,
    port,
    tls,
    username: text(url.username),
    password: /^[^/]*\/\/[^/?#@:]+:@/.test(given) ? '' : text(url.password),
    db,
    label: `${scheme}//${url.hostname || host}:${port}/${db}`,
  };
}

/** Throws where no server listens on a socket file. */
function checkSockets(): void {
  if (process.platform !== 'win32') return;
  throw invalid(
    'on Windows a server is reached by TCP, as in redis://localhost:6379: socket files and named pipes do not work there',
  );
}

function unixTarget(url: URL): Target {
  checkSockets();
  const path = decode(url.pathname);
  if (url.host !== '' || path === '') {
    throw invalid('a socket is named by its absolute path, as in unix:///run/redis.sock?db=1');
  }
  for (const key of url.searchParams.keys()) {
    if (!['db', 'user', 'pass'].includes(key)) {
      // The message leaves it out: it may be the rest of a password with an & in it.
      throw invalid('the URL of a socket knows the parameters db, user and pass, and no other');
    }
  }
  const db = database(url.searchParams.get('db') ?? '');
  return {
    ...NOWHERE,
    path,
    username: url.searchParams.get('user'),
    password: url.searchParams.get('pass'),
    db,
    label: `unix://${path}?db=${db}`,
  };
}

function memoryTarget(url: URL): Target {
  if (url.host !== '' || url.search !== '' || url.hash !== '') {
    throw invalid('a store in this process is memory: or memory:name');
  }
  const memory = decode(url.pathname);
  return { ...NOWHERE, memory, label: `memory:${memory}` };
}

function database(given: string): number {
  if (!/^\d{0,5}$/.test(given)) {
    // The message leaves it out: it may be the rest of a password with a / in it.
    throw invalid(
      'the database, behind the / of the URL, must be a number; write %2F if the / belongs to the password',
    );
  }
  return Number(given);
}

function text(encoded: string): string | null {
  return encoded === '' ? null : decode(encoded);
}

function decode(encoded: string): string {
  try {
    return decodeURIComponent(encoded);
  } catch {
    throw invalid('the target has a % that does not begin an escape: write %25 for it');
  }
}

function invalid(message: string): Error {
  return argumentError('ERR_INVALID_ARG_VALUE', message);
}
