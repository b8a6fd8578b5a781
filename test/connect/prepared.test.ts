/** What `connect` hands to the core: the defaults, and each option where it belongs. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

type Options = Readonly<Record<string, unknown>>;

// It is internal: it is reached by path, past the package's exports.
const { prepare } = require('../../../dist/internals.js') as {
  prepare(
    target: unknown,
    options?: object,
  ): { readonly checked: Options; readonly options: Options };
};

const URL = 'redis://user:secret@127.0.0.1:1/3';

test('the defaults', () => {
  const { checked, options } = prepare(URL);
  const { ttl, wait, renew, stallTimeout, linger, prefix } = checked;
  const expected = [10_000, 10_000, true, 30_000, 0, 'lock:'];
  assert.deepEqual([ttl, wait, renew, stallTimeout, linger, prefix], expected);
  const { commandTimeout, connectTimeout, lingerMax, clientName, db } = options;
  assert.deepEqual(
    [commandTimeout, connectTimeout, lingerMax, clientName, db],
    [2_000, 5_000, 10_000, 'holdfast', 3],
  );
});

test('the login of the options goes before that of the URL', () => {
  const login = (options?: object) => {
    const { username, password } = prepare(URL, options).options;
    return [username, password];
  };
  assert.deepEqual(login(), ['user', 'secret']);
  assert.deepEqual(login({ password: 'other' }), ['user', 'other']);
  assert.deepEqual(login({ username: 'u', password: 'p' }), ['u', 'p']);
});

test('what gives no credentials is refused in their place', () => {
  const place = 'redis://127.0.0.1:1';
  const gives = () => ({ password: 'secret' });
  for (const credentials of [
    null,
    'secret',
    {},
    { type: 'async-credentials-provider' },
    { type: 'streaming-credentials-provider' },
    { type: 'streaming-credentials-provider', credentials: gives },
    { type: 'async-credentials-provider', subscribe: gives },
    { credentials: gives, subscribe: gives },
  ])
    assert.throws(() => prepare(place, { credentials }), {
      code: 'ERR_INVALID_ARG_TYPE',
      message: /credentials must be a function, or a credentialsProvider of node-redis/,
    });
  for (const credentials of [
    gives,
    { type: 'async-credentials-provider', credentials: gives },
    { type: 'streaming-credentials-provider', subscribe: gives },
  ])
    assert.doesNotThrow(() => prepare(place, { credentials }));
});

test('the servers of a Cluster may be given by their parts; the first has the login of all', () => {
  const first = { host: '::1', username: 'user', password: 'secret', tls: true };
  const { cluster, username, password, tls } = prepare({
    cluster: [first, 'rediss://b:7', { host: 'c', port: '8', tls: true }],
  }).options;
  assert.deepEqual(cluster, ['::1', '6379', 'b', '7', 'c', '8']);
  assert.deepEqual([username, password, tls], ['user', 'secret', { rejectUnauthorized: true }]);
  const refused: [object, RegExp][] = [
    [{ ...first, tls: { ca: '' } }, /servers of a Cluster share the options of TLS: pass them in/],
    [{ ...first, tls: false }, /servers of a Cluster speak TLS all or none/],
    [{ path: '/run/redis.sock' }, /a Cluster is reached over TCP/],
    [{ host: 'a', prot: 5 }, /a server has no option "prot"; did you mean "port"/],
  ];
  for (const [server, message] of refused) {
    assert.throws(() => prepare({ cluster: [server, first] }), { message });
  }
});

test('certificates are checked unless the caller says otherwise', () => {
  const tls = (given?: object) => prepare('rediss://127.0.0.1:1', given).options['tls'];
  assert.deepEqual(tls(), { rejectUnauthorized: true });
  assert.deepEqual(tls({ tls: {} }), { rejectUnauthorized: true });
  assert.deepEqual(tls({ tls: { rejectUnauthorized: false } }), { rejectUnauthorized: false });
});

test('a quorum waits out the longest lease, by default the own one', () => {
  const servers = [1, 2, 3].map((port) => `redis://127.0.0.1:${port}`);
  const quorum = (options?: object) => {
    const { serverTimeout, longestLease } = prepare({ quorum: servers }, options).options[
      'quorum'
    ] as Options;
    return [serverTimeout, longestLease];
  };
  assert.deepEqual(quorum(), [100, 10_000]);
  assert.deepEqual(quorum({ ttl: 5_000 }), [100, 5_000]);
  assert.deepEqual(quorum({ longestLease: 0, serverTimeout: 50 }), [50, 0]);
});

test('polling, replicas and lingering locks', () => {
  const options = (given: object) => prepare(URL, given).options;
  assert.deepEqual(options({ besideOldCode: { retryDelay: 200 } })['polling'], {
    least: 100,
    most: 300,
  });
  const exact = { besideOldCode: { retryDelay: 200, retryJitter: 0 } };
  assert.deepEqual(options(exact)['polling'], { least: 200, most: 200 });
  assert.equal(options({ replicas: 2 })['replicas'], 2);
  assert.notEqual(options({ replicas: 'majority' })['replicas'], 2);
  assert.equal(options({ lingerMax: 5 })['lingerMax'], 5);
});
