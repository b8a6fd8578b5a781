/** Where the server is: from a URL to host, port, login and database. */

import { argumentError } from './errors.js';

/** @internal */
export interface Target {
  readonly host: string | null;
  readonly port: number;
  readonly path: string | null;
  /** Some servers of a Cluster: host and port, by turns. */
  readonly cluster: readonly string[] | null;
  /** The store inside this process: its name, empty for one of its own. */
  readonly memory: string | null;
  readonly username: string | null;
  readonly password: string | null;
  readonly db: number;
  /** The server for error messages, without login. */
  readonly label: string;
}

/** A `URL` object, whichever library its type comes from. */
export interface UrlLike {
  /** The whole URL. */
  readonly href: string;
}

/** Where a Redis Cluster is. */
export interface ClusterTarget {
  /**
   * Some of its servers, as URLs; they are asked for the others. The login of the first one, or that
   * in the options, is used for all.
   */
  readonly cluster: readonly (string | UrlLike)[];
}

const DEFAULT_URL = 'redis://127.0.0.1:6379';
const DEFAULT_PORT = 6379;
const SCHEMES = 'redis://, valkey://, unix:// or memory:';

/**
 * The target that a caller named, or else the environment.
 *
 * @internal
 */
export function checkTarget(target: unknown): Target {
  // An empty variable is as good as none.
  const environment = process.env['HOLDFAST_URL'] || process.env['REDIS_URL'];
  const given = target ?? (environment || DEFAULT_URL);
  if (typeof given === 'object' && given !== null && 'cluster' in given) {
    return clusterTarget(given as ClusterTarget);
  }
  return urlTarget(given);
}

/** All seeds must be reachable in the same way, for what one of them says is asked of the others. */
function clusterTarget(given: ClusterTarget): Target {
  const [unknown] = Object.keys(given).filter((key) => key !== 'cluster');
  if (unknown !== undefined) {
    throw invalid(
      `a Cluster is { cluster: [urls] }, without "${unknown}"; use the second argument`,
    );
  }
  if (!Array.isArray(given.cluster) || given.cluster.length === 0) {
    const message = 'a Cluster is named by the URLs of some of its servers: { cluster: [urls] }';
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  const seeds = given.cluster.map(urlTarget);
  for (const { host, db, label } of seeds) {
    if (host === null) throw invalid(`a Cluster is reached over TCP, not at ${label}`);
    if (db !== 0) throw invalid(`a Cluster has the database 0 alone, not that of ${label}`);
  }
  const [first] = seeds as [Target];
  return {
    ...first,
    host: null,
    cluster: seeds.flatMap(({ host, port }) => [host as string, `${port}`]),
    label: `the Cluster of ${first.label.replace(/\/0$/, '')}`,
  };
}

function urlTarget(given: unknown): Target {
  const text = typeof given === 'object' ? (given as Partial<UrlLike> | null)?.href : given;
  if (typeof text !== 'string') {
    throw argumentError(
      'ERR_INVALID_ARG_TYPE',
      `the target must be a URL, got a value of type ${typeof given}`,
    );
  }
  const url = parse(text);
  switch (url.protocol) {
    case 'redis:':
    case 'valkey:':
      return tcpTarget(url);
    case 'unix:':
      return unixTarget(url);
    case 'memory:':
      return memoryTarget(url);
    case 'rediss:':
    case 'valkeys:':
      throw invalid(`TLS (${url.protocol}//) is not supported yet`);
    default:
      throw invalid(`the target must begin with ${SCHEMES}, not ${url.protocol}`);
  }
}

function parse(given: string): URL {
  try {
    return new URL(given);
  } catch {
    // The URL's own error repeats the text, and with it the password.
    throw invalid(`the target is not a URL that begins with ${SCHEMES}`);
  }
}

function tcpTarget(url: URL): Target {
  if (url.search !== '' || url.hash !== '') {
    throw invalid('the URL of a server has no ?parameters and no #fragment; use the options');
  }
  const host = url.hostname === '' ? '127.0.0.1' : url.hostname.replace(/^\[(.*)\]$/, '$1');
  const port = url.port === '' ? DEFAULT_PORT : Number(url.port);
  const db = database(url.pathname.replace(/^\//, ''));
  return {
    host,
    port,
    path: null,
    cluster: null,
    memory: null,
    username: text(url.username),
    password: text(url.password),
    db,
    label: `${url.protocol}//${url.hostname || host}:${port}/${db}`,
  };
}

function unixTarget(url: URL): Target {
  const path = decode(url.pathname);
  if (url.host !== '' || path === '') {
    throw invalid('a socket is named by its absolute path, as in unix:///run/redis.sock?db=1');
  }
  for (const key of url.searchParams.keys()) {
    if (!['db', 'user', 'pass'].includes(key)) {
      // Not shown: it may be the rest of a password with an & in it.
      throw invalid('the URL of a socket knows the parameters db, user and pass, and no other');
    }
  }
  const db = database(url.searchParams.get('db') ?? '');
  return {
    host: null,
    port: 0,
    path,
    cluster: null,
    memory: null,
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
  const label = `memory:${memory}`;
  const nothing = { host: null, path: null, cluster: null, username: null, password: null };
  return { ...nothing, port: 0, memory, db: 0, label };
}

function database(given: string): number {
  if (!/^\d{0,5}$/.test(given)) {
    // Not shown: it may be the rest of a password with a / in it.
    throw invalid('the database, behind the / of the URL, must be a number');
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
