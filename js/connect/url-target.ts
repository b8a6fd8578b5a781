/** Targets that are URLs: host, port, login, database and parameters. */

import { argumentError } from '../base/errors.js';
import { type Endpoints, NOWHERE } from './endpoints.js';
import type { UrlLike } from './target.js';
import { checkSockets, DEFAULT_PORT, invalid } from './target-parts.js';
import { readParameters } from './url-parameters.js';

/** The schemes of servers. @internal */
export const SERVER_SCHEMES = 'redis://, rediss://, valkey:// or valkeys://';
const SCHEMES = 'redis://, rediss://, valkey://, valkeys://, unix:// or memory:';

/** Reads the target that a URL names. @internal */
export function urlTarget(given: unknown): Endpoints {
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
      // The text before the first colon may be the name of a user, if there is a login.
      throw invalid(
        `the target must begin with ${SCHEMES}${text.includes('@') ? '' : `, not ${url.protocol}`}`,
      );
  }
}

/** The text of a URL, or what else was given. @internal */
export function hrefOf(given: unknown): unknown {
  return typeof given === 'object' ? (given as Partial<UrlLike> | null)?.href : given;
}

/** Parses a URL; `complaint` is the error for a text that is none. @internal */
export function parse(given: string, complaint: string): URL {
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

/**
 * Reads the URL of a server that is reached by TCP. `given`: the text of `url`, which does not tell an empty password from none.
 *
 * @internal
 */
export function tcpTarget(url: URL, given: string, defaultPort = DEFAULT_PORT): Endpoints {
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
    tls: tls ? {} : null,
    username: text(url.username),
    password: /^[^/]*\/\/[^/?#@:]+:@/.test(given) ? '' : text(url.password),
    db,
    label: `${scheme}//${url.hostname || host}:${port}/${db}`,
  };
}

function unixTarget(url: URL): Endpoints {
  checkSockets();
  if (url.pathname.includes('@')) {
    // The message leaves out what stands before it, which may be a login.
    throw invalid(
      'the URL of a socket has its login in parameters, as in unix:///run/redis.sock?user=ada&pass=secret; write %40 if the @ belongs to the path',
    );
  }
  const path = decode(url.pathname);
  if (url.host !== '' || !path.startsWith('/') || url.hash !== '') {
    throw invalid(
      'a socket is named by its absolute path, as in unix:///run/redis.sock?db=1, in which a # is written %23',
    );
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

function memoryTarget(url: URL): Endpoints {
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
