/** Checks the target of `connect`, in whatever form it is given. */

import { checkObject, checkText } from '../base/checks.js';
import { argumentError } from '../base/errors.js';
import { type Endpoints, NOWHERE } from './endpoints.js';
import { sentinelTarget } from './sentinel-target.js';
import type { ClusterTarget, QuorumTarget, ServerTarget } from './target.js';
import {
  checkAllTls,
  checkHost,
  checkParts,
  checkSockets,
  DEFAULT_PORT,
  invalid,
  whole,
} from './target-parts.js';
import { checkTls } from './tls.js';
import { urlTarget } from './url-target.js';

/** @internal */
export const DEFAULT_URL = 'redis://127.0.0.1:6379';
/** The bounds of a quorum: with fewer servers none may fail, with more every lock is slow. */
const QUORUM_MIN = 3;
const QUORUM_MAX = 15;
const SERVER_OPTIONS = ['credentials', 'db', 'host', 'password', 'path', 'port', 'tls', 'username'];

/**
 * Checks the target that the caller gave, or else the one in the environment.
 *
 * @internal
 */
export function checkTarget(target: unknown): Endpoints {
  const given = target ?? environmentTarget() ?? DEFAULT_URL;
  if (typeof given === 'object' && given !== null) {
    if ('cluster' in given) return clusterTarget(given as ClusterTarget);
    if ('quorum' in given) return quorumTarget(given as QuorumTarget);
    if ('sentinels' in given || 'master' in given) return sentinelTarget(given);
    if (isServer(given)) return serverTarget(given);
    refuseOtherForms(given);
  }
  return urlTarget(given);
}

/** Says what the forms are called here that other libraries have for a target. */
function refuseOtherForms(given: object): void {
  if (Array.isArray(given)) {
    throw wrongForm(
      'an array: several servers are { cluster: [urls] }, { quorum: [urls] } or { sentinels: [urls], master }',
    );
  }
  if ('url' in given) throw wrongForm('an object with "url": pass the URL itself, connect(url)');
  if ('nodes' in given) throw wrongForm('an object with "nodes": a Cluster is { cluster: [urls] }');
}

function wrongForm(got: string): Error {
  return argumentError('ERR_INVALID_ARG_TYPE', `the target is ${got}`);
}

/** Whether it is one server by its parts. */
function isServer(given: object): boolean {
  return ['host', 'port', 'path'].some((key) => key in given) && !('href' in given);
}

/** Whether the target is that of somebody who names none. @internal */
export function isDefaultTarget(target: unknown): boolean {
  return (target ?? undefined) === undefined && environmentTarget() === undefined;
}

/** The target in the environment. An empty variable counts as unset. */
function environmentTarget(): string | undefined {
  return process.env['HOLDFAST_URL'] || process.env['REDIS_URL'] || undefined;
}

function serverTarget(target: object): Endpoints {
  const given = checkObject<ServerTarget>(target, SERVER_OPTIONS, 'a server');
  const { host = '127.0.0.1', path, tls = false } = given;
  const login = checkParts(given);
  if (typeof tls !== 'boolean') checkTls(tls, 'tls');
  if (path !== undefined) {
    checkText(path, 'path');
    if (path === '') throw invalid('path must be that of a socket, not empty');
    if (/^[a-z][a-z+]*:/i.test(path)) {
      throw invalid('path must be that of a socket, not a URL: give a URL itself as the target');
    }
    if (tls !== false) throw invalid('a socket speaks no TLS');
    checkSockets();
    return { ...NOWHERE, ...login, path, label: `unix://${path}?db=${login.db}` };
  }
  checkHost(host, 'host');
  const number = typeof given.port === 'string' ? Number(given.port) : given.port;
  const port = whole(number ?? DEFAULT_PORT, 'port', 1, 65_535);
  const name = host.includes(':') ? `[${host}]` : host;
  return {
    ...NOWHERE,
    ...login,
    host,
    port,
    tls: typeof tls === 'boolean' ? (tls ? {} : null) : tls,
    label: `${tls === false ? 'redis' : 'rediss'}://${name}:${port}/${login.db}`,
  };
}

function quorumTarget(target: QuorumTarget): Endpoints {
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
  const servers = given.map((server: unknown) => {
    if (server === undefined || server === null) {
      throw invalid('each server of a quorum must be a URL');
    }
    return oneOfSeveral(server, 'a quorum');
  });
  if (servers.some(({ memory }) => memory !== null)) {
    throw invalid('a store in this process (memory:) cannot be a server of a quorum');
  }
  const labels = servers.map(({ label }) => label);
  const twice = labels.find((label, i) => labels.indexOf(label) !== i);
  if (twice !== undefined) throw invalid(`a quorum must not name ${twice} twice`);
  const tls = servers.find((server) => server.tls !== null)?.tls ?? null;
  return { ...NOWHERE, tls, quorum: servers, label: `a quorum of ${labels.join(', ')}` };
}

/** One server of several, which share the options of TLS. */
function oneOfSeveral(given: unknown, what: string): Endpoints {
  if (typeof given !== 'object' || given === null || !isServer(given)) return urlTarget(given);
  const { tls } = given as ServerTarget;
  if (typeof tls !== 'object') return serverTarget(given);
  throw invalid(
    `the servers of ${what} share the options of TLS: pass them in the second argument`,
  );
}

/** All seeds must be reachable in the same way: one of them names the other servers. */
function clusterTarget(given: ClusterTarget): Endpoints {
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
  const seeds = given.cluster.map((seed) => oneOfSeveral(seed, 'a Cluster'));
  const [first] = seeds as [Endpoints];
  for (const { host, db, label } of seeds) {
    if (host === null) throw invalid(`a Cluster is reached over TCP, not at ${label}`);
    if (db !== first.db) throw invalid(`one database serves a Cluster, but ${label} has another`);
  }
  checkAllTls(seeds, 'the servers of a Cluster');
  return {
    ...first,
    host: null,
    cluster: seeds.flatMap(({ host, port }) => [host as string, `${port}`]),
    label: `the Cluster of ${first.label.replace(/\/0$/, '')}`,
  };
}
