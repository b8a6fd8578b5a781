/** Clients of ioredis 4, 5 and 6: `Redis`, with Sentinels or without, and `Cluster`. */

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

/** The place that a client of ioredis is connected to; undefined if it is no such client. @internal */
export function readIoredis(client: Unknown): Place | undefined {
  if (typeof client['defineCommand'] !== 'function') return undefined;
  const options = bag(client['options']);
  if (client['isCluster'] === true) return cluster(client, options);
  // A mock has no connector. It must not lead to a connection to a real server.
  if (typeof client['connector'] !== 'object') return undefined;
  refuseSet(options, ['Connector', 'natMap'], 'ioredis client');
  const tls = tlsOf(options['tls'], 'ioredis client');
  const common = {
    prefix: prefixOf(options['keyPrefix']),
    ...(tls === undefined ? {} : { tls }),
  };
  const { host, port, path, username, password } = options;
  // `condition` has the database that `select` has chosen since.
  const db = bag(client['condition'])['select'] ?? options['db'];
  if (Array.isArray(options['sentinels'])) {
    return { ...common, target: sentinels(options, db, tls !== undefined) };
  }
  const address = { host, port, path, username, password, db, tls: tls !== undefined };
  return { ...common, target: urlOf(address) };
}

function sentinels(options: Unknown, db: unknown, tls: boolean): Place['target'] {
  const { enableTLSForSentinelMode, sentinelTLS, role, name } = options;
  if (role === 'slave') {
    throw refuse('the ioredis client is for replicas ("role")', 'locks are kept on the master');
  }
  if (tls !== (enableTLSForSentinelMode === true)) {
    const what =
      'the ioredis client speaks TLS either with the Sentinels or with the master, not with both';
    throw refuse(what, 'use it for both, or for none');
  }
  const secure = JSON.stringify(sentinelTLS ?? {}) === JSON.stringify(options['tls'] ?? {});
  if (tls && !secure) {
    throw refuse('"sentinelTLS" of the ioredis client is not its "tls"', 'make them the same');
  }
  const listed = (options['sentinels'] as unknown[]).map((each) => {
    const { host, port = 26_379 } = bag(each);
    return urlOf({ host, port, tls }).replace(/\/0$/, '');
  });
  return {
    sentinels: listed,
    master: text(name) ?? '',
    db: Number(db ?? 0),
    ...login(options, 'username', 'password'),
    ...login(options, 'sentinelUsername', 'sentinelPassword'),
  };
}

/** A client that has only a user sends an empty password. */
function login<U extends string, P extends string>(options: Unknown, user: U, pass: P) {
  const [username, password] = [text(options[user]), text(options[pass])];
  if (username === undefined && password === undefined) return {};
  const given = username === undefined ? {} : { [user]: username };
  return { ...given, [pass]: password ?? '' } as { [K in U | P]?: string };
}

function cluster(client: Unknown, options: Unknown): Place {
  refuseSet(options, ['natMap'], 'ioredis Cluster');
  if (options['useSRVRecords'] === true) {
    throw refuse('"useSRVRecords" of the ioredis Cluster cannot be carried over', 'name its nodes');
  }
  const shared = bag(options['redisOptions']);
  refuseSet(shared, ['Connector'], 'ioredis Cluster');
  const nodes = [client['startupNodes']].flat().map(startupNode);
  const [first] = nodes;
  const tls = tlsOf(shared['tls'], 'ioredis Cluster') ?? (first?.tls === true ? {} : undefined);
  return clusterOf(nodes, shared, tls, options['keyPrefix'] ?? shared['keyPrefix']);
}

/** A node of the Cluster's initial list: a port, a URL, or an object. */
function startupNode(given: unknown): Address {
  if (typeof given === 'number') return { port: given, tls: false };
  if (typeof given !== 'string') {
    const { host, port, username, password, tls } = bag(given);
    return { host, port, username, password, tls: tls !== undefined && tls !== null };
  }
  if (/^\d+$/.test(given)) return { port: given, tls: false };
  try {
    const url = new URL(given.includes('://') ? given : `redis://${given}`);
    return {
      host: url.hostname,
      port: url.port === '' ? undefined : url.port,
      username: decodeURIComponent(url.username),
      password: decodeURIComponent(url.password),
      tls: url.protocol === 'rediss:',
    };
  } catch {
    // The message leaves it out: it may have a password.
    throw refuse('a node of the ioredis Cluster is not a URL', 'use redis://host:port');
  }
}
