/** Clients of node-redis 4, 5 and 6: `createClient`, and `createCluster` from 5 on. */

import { type AddressParts, bag, type ClientParts, text, type Unknown } from './place.js';

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

/** The parts of a client of node-redis; undefined if it is no such client, or hides them. @internal */
export function readNodeRedis(client: Unknown): ClientParts | undefined {
  if (typeof client['sendCommand'] !== 'function') return undefined;
  const cluster = bag(client['_options']);
  if ('rootNodes' in cluster) return clusterParts(cluster);
  // A pool, Sentinels and a cluster of version 4 hide their options.
  if (typeof client['evalSha'] !== 'function' || typeof client['options'] !== 'object') {
    return undefined;
  }
  const options = bag(client['options']);
  return {
    kind: 'node-redis client',
    server: addressOf(options),
    keyPrefix: options['keyPrefix'],
    foreign: {},
  };
}

function clusterParts(options: Unknown): ClientParts {
  const { rootNodes, nodeAddressMap, keyPrefix } = options;
  const shared = bag(options['defaults']);
  return {
    kind: 'node-redis cluster',
    server: addressOf(shared),
    nodes: [rootNodes].flat().map((root) => addressOf(bag(root))),
    keyPrefix: keyPrefix ?? shared['keyPrefix'],
    foreign: { nodeAddressMap },
  };
}

/** The address of a client, which has parsed its `url` already, or of a node of a cluster, which has not. */
function addressOf(options: Unknown): AddressParts {
  const { url, username, password, database: db, credentialsProvider } = options;
  const socket = bag(options['socket']);
  const { host, port, path } = socket;
  const isSecure = socket['tls'] === true || /^rediss:/i.test(`${url}`);
  const hasText = (text(username) ?? text(password)) !== undefined;
  // The client itself makes such a provider of a user and a password.
  const isOwn = hasText && bag(credentialsProvider)['type'] === 'async-credentials-provider';
  return {
    ...{ url, host, port, path, username, password, db },
    credentials: isOwn ? undefined : credentialsProvider,
    tls: isSecure ? tlsOptions(socket) : undefined,
  };
}

/** The options of TLS, which node-redis mixes with those of the socket. */
function tlsOptions(socket: Unknown): Unknown {
  const other = Object.entries(socket).filter(([key]) => !SOCKET_OPTIONS.includes(key));
  return Object.fromEntries(other);
}
