/** The options for the core that `connect` makes of clients of other libraries; adapters/redlock/clients.test.ts takes locks with them. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cluster, type ClusterNode, Redis } from 'ioredis';
import { createCluster } from 'redis';

// It is internal: it is reached by path, past the package's exports.
const { prepare } = require('../../../dist/internals.js') as {
  prepare(target: unknown, options?: object): { readonly options: Record<string, unknown> };
};

const LAZY = { lazyConnect: true };

/** The options for the core. */
const read = (client: unknown, options?: object) => prepare(client, options).options;

test('a Cluster of ioredis: a node is a port, a URL or an object', () => {
  const nodes = [{ host: 'a', port: 5 }, 6, '7', 'redis://b:8', 'c:9', 'redis://[::1]'];
  const { cluster, tls } = read(new Cluster(nodes, LAZY));
  const local = ['127.0.0.1', '6', '127.0.0.1', '7'];
  assert.deepEqual(cluster, ['a', '5', ...local, 'b', '8', 'c', '9', '::1', '6379']);
  assert.equal(tls, undefined);
});

test('a Cluster of ioredis: the login and the TLS of all nodes, or else those of the first', () => {
  const parts = (node: ClusterNode | object, redisOptions = {}) => {
    const { username, password, tls } = read(new Cluster([node], { ...LAZY, redisOptions }));
    return [username, password, tls];
  };
  const checked = { rejectUnauthorized: true };
  assert.deepEqual(parts('rediss://u:p%40@a'), ['u', 'p@', checked]);
  assert.deepEqual(parts({ host: 'a', username: 'u' }), ['u', '', undefined]);
  const node = { host: 'a', password: 'p', tls: { ca: 'own' } };
  assert.deepEqual(parts(node), [undefined, 'p', { ...checked, ca: 'own' }]);
  const shared = { password: 'q', tls: { ca: 'all' } };
  assert.deepEqual(parts(node, shared), [undefined, 'q', { ...checked, ca: 'all' }]);
});

test('Sentinels of ioredis: TLS with them and the master, as the client speaks it, or with none', () => {
  const given = { ...LAZY, sentinels: [{ host: 'a' }], name: 'm' };
  const tlsOf = (options: object) => read(new Redis({ ...given, ...options }))['tls'];
  const [tls, sentinelTLS, enableTLSForSentinelMode] = [{ ca: 'own' }, { ca: 'own' }, true];
  const both = { tls, sentinelTLS, enableTLSForSentinelMode };
  assert.deepEqual(tlsOf(both), { ca: 'own', rejectUnauthorized: true });
  assert.equal(tlsOf({ enableTLSForSentinelMode }), undefined);
  const either = /speaks TLS either with the Sentinels or with the master/;
  assert.throws(() => tlsOf({ sentinelTLS }), either);
  assert.throws(() => tlsOf({ tls, enableTLSForSentinelMode }), either);
  const none = /has "tls", but speaks none without "enableTLSForSentinelMode"; set both/;
  assert.throws(() => tlsOf({ tls }), none);
  assert.throws(() => tlsOf({ tls, sentinelTLS }), none);
  assert.throws(() => tlsOf({ ...both, sentinelTLS: {} }), /"sentinelTLS" .* is not its "tls"/);
});

test('a cluster of node-redis: its login and TLS', () => {
  const rootNodes = [{ url: 'rediss://u:p@a:1', socket: { ca: 'own' } as object }];
  const { cluster, username, password, tls } = read(createCluster({ rootNodes }));
  assert.deepEqual([cluster, username, password], [['a', '1'], 'u', 'p']);
  assert.deepEqual(tls, { ca: 'own', rejectUnauthorized: true });
});

test('a URL that cannot be read is refused, and not shown', () => {
  const clients = [
    new Cluster(['redis://s3cret%:p@a'], LAZY),
    new Cluster(['redis://s3cret:x'], LAZY),
    createCluster({ rootNodes: [{ url: 'redis://s3cret%:p@a' }] }),
    createCluster({ rootNodes: [{ url: 's3cret' }] }),
  ];
  for (const client of clients) {
    assert.throws(
      () => read(client),
      (error: Error & { code: string }) => {
        assert.equal(error.code, 'ERR_INVALID_ARG_VALUE');
        assert.match(error.message, /^a URL of the (ioredis Cluster|node-redis cluster) cannot be/);
        assert.ok(!`${error.stack}`.includes('s3cret'));
        return true;
      },
    );
  }
});

test('a login in the options goes before the provider of a client', () => {
  const credentials = async () => ({ password: 'p' });
  const credentialsProvider = { type: 'async-credentials-provider', credentials } as const;
  const client = createCluster({
    rootNodes: [{ url: 'redis://a' }],
    defaults: { credentialsProvider },
  });
  assert.ok('login' in read(client));
  const { login, username, password } = read(client, { password: 'own' });
  assert.deepEqual([login, username, password], [undefined, undefined, 'own']);
});
