/** Clients of ioredis 4, 5 and 6: `Redis`, with Sentinels or without, and `Cluster`. */

import {
  type AddressParts,
  bag,
  type ClientParts,
  type SentinelParts,
  type Unknown,
} from './place.js';

/** The parts of a client of ioredis; undefined if it is no such client. @internal */
export function readIoredis(client: Unknown): ClientParts | undefined {
  if (typeof client['defineCommand'] !== 'function') return undefined;
  const options = bag(client['options']);
  if (client['isCluster'] === true) return cluster(client['startupNodes'], options);
  // A mock has no connector. It must not lead to a connection to a real server.
  if (typeof client['connector'] !== 'object') return undefined;
  const { host, port, path, username, password, tls, keyPrefix, Connector, natMap } = options;
  // `condition` has the database that `select` has chosen since.
  const db = bag(client['condition'])['select'] ?? options['db'];
  return {
    kind: 'ioredis client',
    server: { host, port, path, username, password, db, tls },
    ...(Array.isArray(options['sentinels']) ? { sentinels: sentinels(options) } : {}),
    keyPrefix,
    foreign: { Connector, natMap },
  };
}

function sentinels(options: Unknown): SentinelParts {
  const { name: master, role, sentinelUsername, sentinelPassword, sentinelTLS } = options;
  return {
    nodes: [options['sentinels']].flat().map(bag),
    master,
    role,
    username: sentinelUsername,
    password: sentinelPassword,
    tls: sentinelTLS,
    masterHasTls: options['enableTLSForSentinelMode'] === true,
  };
}

function cluster(nodes: unknown, options: Unknown): ClientParts {
  const { natMap, useSRVRecords, redisOptions } = options;
  const { username, password, tls, keyPrefix, Connector } = bag(redisOptions);
  return {
    kind: 'ioredis Cluster',
    server: { username, password, tls },
    nodes: [nodes].flat().map(startupNode),
    keyPrefix: options['keyPrefix'] ?? keyPrefix,
    foreign: { natMap, useSRVRecords, Connector },
  };
}

/** A node of the Cluster's initial list: a port, a URL, or an object. */
function startupNode(given: unknown): AddressParts {
  if (typeof given === 'number') return { port: given };
  if (typeof given !== 'string') return bag(given);
  if (/^\d+$/.test(given)) return { port: given };
  return { url: given.includes('://') ? given : `redis://${given}` };
}
