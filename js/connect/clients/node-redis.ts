/** Clients of node-redis 4, 5 and 6: `createClient`, and `createCluster` from 5 on. */

import { isSource } from '../credentials.js';
import {
  type Address,
  bag,
  clusterOf,
  type Place,
  prefixOf,
  refuse,
  refuseSet,
  text,
  tlsOf,
  type Unknown,
  urlOf,
} from './place.js';

/** The options of a socket that are not about TLS. */
const SOCKET_OPTIONS = [
  'connectTimeout',
  'family',
  'host',
  'keepAlive',
  'keepAliveInitialDelay',
  'noDelay',
  'path',
  'port',
  'reconnectStrategy',
  'socketTimeout',
  'timeout',
  'tls',
];
const CLIENT = 'node-redis client';

/** The place that a client of node-redis is connected to; undefined if it is no such client, or hides it. @internal */
export function readNodeRedis(client: Unknown): Place | undefined {
  if (typeof client['sendCommand'] !== 'function') return undefined;
  const nodes = client['_options'];
  if (typeof nodes === 'object' && nodes !== null && 'rootNodes' in nodes) return cluster(nodes);
  const options = client['options'];
  // A pool, Sentinels and a cluster of version 4 hide their options.
  if (typeof client['evalSha'] !== 'function' || typeof options !== 'object') return undefined;
  return place(bag(options));
}

function place(options: Unknown): Place {
  const { address, tls } = addressOf(options);
  const prefix = prefixOf(options['keyPrefix']);
  const common = { prefix, ...(tls === undefined ? {} : { tls }) };
  return { target: urlOf(address), ...common, ...credentialsOf(options) };
}

function cluster(given: object): Place {
  const options = given as Unknown;
  refuseSet(options, ['nodeAddressMap'], 'node-redis cluster');
  const shared = bag(options['defaults']);
  const roots = [options['rootNodes']].flat().map((root) => addressOf(bag(root)));
  const common = addressOf(shared);
  const tls = common.tls ?? roots[0]?.tls;
  const nodes = roots.map(({ address }) => address);
  const prefix = options['keyPrefix'] ?? shared['keyPrefix'];
  return { ...clusterOf(nodes, common.address, tls, prefix), ...credentialsOf(shared) };
}

/** The provider of a client's credentials, if it has one of its own. */
function credentialsOf(options: Unknown): Pick<Place, 'credentials'> {
  const { credentialsProvider, username, password } = options;
  if (credentialsProvider === undefined || credentialsProvider === null) return {};
  // The client itself makes such a provider of a user and a password.
  const own = bag(credentialsProvider)['type'] === 'async-credentials-provider';
  if (own && (text(username) ?? text(password)) !== undefined) return {};
  if (!isSource(credentialsProvider)) {
    const what = `"credentialsProvider" of the ${CLIENT} is of a kind that holdfast does not know`;
    throw refuse(what, 'give it a username and a password');
  }
  return { credentials: credentialsProvider };
}

/** The address of a client, which has parsed its `url` already, or of a node of a cluster, which has not. */
function addressOf(options: Unknown): { address: Address; tls: Place['tls'] } {
  const socket = bag(options['socket']);
  const url = parse(options['url']);
  const tls = tlsOf(tlsOptions(socket, url?.protocol === 'rediss:'), CLIENT);
  const address = {
    host: text(socket['host']) ?? url?.hostname,
    port: socket['port'] ?? (url?.port || undefined),
    path: socket['path'],
    username: text(options['username']) ?? decodeURIComponent(url?.username ?? ''),
    password: text(options['password']) ?? decodeURIComponent(url?.password ?? ''),
    db: options['database'],
    tls: tls !== undefined,
  };
  return { address, tls };
}

/** The options of TLS, which node-redis mixes with those of the socket. */
function tlsOptions(socket: Unknown, secure: boolean): unknown {
  if (socket['tls'] !== true && !secure) return undefined;
  const other = Object.entries(socket).filter(([key]) => !SOCKET_OPTIONS.includes(key));
  return Object.fromEntries(other);
}

function parse(url: unknown): URL | undefined {
  if (typeof url !== 'string') return undefined;
  try {
    return new URL(url);
  } catch {
    // The message leaves it out: it may have a password.
    throw refuse(`the url of the ${CLIENT} is none`, 'use redis://host:port');
  }
}
