/** What `connect` and the drop-ins make of several clients, and of mocks. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cluster, Redis } from 'ioredis';

interface Whereabouts {
  readonly target: unknown;
  readonly options: object;
}

interface Internals {
  inDatabase(where: Whereabouts, db: number | undefined): Whereabouts;
  isMock(client: unknown): boolean;
  readClients(clients: readonly unknown[]): Whereabouts;
  startable<T>(context: { readonly server: string }, start: () => T): T;
}

// They are internal: they are reached by path, past the package's exports.
const { inDatabase, isMock, readClients, startable } =
  require('../../../dist/internals.js') as Internals;

const client = (options = {}) => new Redis({ host: 'a', ...options, lazyConnect: true });
const clients = (count: number) => Array.from({ length: count }, () => client());

test('one client is its server, and 3 to 15 are a quorum', () => {
  const one = readClients(clients(1));
  assert.equal((one.target as { host: string }).host, 'a');
  for (const count of [3, 15]) {
    const { target, options } = readClients(clients(count));
    assert.equal((target as { quorum: unknown[] }).quorum.length, count);
    assert.equal((options as { longestLease: number }).longestLease, 0);
  }
  const refused: [number, RegExp][] = [
    [0, /3 to 15 servers \(two stop when one of them does\), got 0 clients/],
    [2, /3 to 15 servers \(two stop when one of them does\), got 2 clients.*one client, or three/],
    [16, /3 to 15 servers \(more are slow\), got 16 clients/],
  ];
  for (const [count, message] of refused) {
    assert.throws(() => readClients(clients(count)), { code: 'ERR_INVALID_ARG_VALUE', message });
  }
});

test('the clients of a quorum are of single servers, with one prefix and one TLS', () => {
  const sentinels = { sentinels: [{ host: 's', port: 1 }], name: 'm' };
  const refused: [unknown, RegExp][] = [
    [new Cluster(['redis://a'], { lazyConnect: true }), /not that of a single server/],
    [client(sentinels), /not that of a single server/],
    [client({ keyPrefix: 'p:' }), /another keyPrefix than the first/],
    [client({ tls: {} }), /another "tls" than the first/],
    [{}, /does not reveal the address of its server: it is an object of the class Object/],
    [Object.create(null), /: it is an object of the class null/],
    [null, /: it is null/],
    ['redis://a', /: it is redis:/],
  ];
  for (const [odd, message] of refused) {
    assert.throws(
      () => readClients([client(), odd, client()]),
      (error: Error) => {
        assert.match(error.message, /^client 2\b/);
        assert.match(error.message, message);
        return true;
      },
    );
  }
  const same = { keyPrefix: 'p:', tls: { ca: 'own' } };
  const { options } = readClients([client(same), client(same), client(same)]);
  const { prefix, tls } = options as { prefix: string; tls: object };
  assert.deepEqual([prefix, tls], ['p:', { ca: 'own' }]);
});

test('what a mock of ioredis is known by', () => {
  class RedisMock {
    readonly options = {};
    defineCommand() {}
  }
  class OwnRedisMock extends RedisMock {}
  class RedisMocked extends RedisMock {}
  const known = { notifyKeyspaceEvents: '' };
  const mocks = [new RedisMock(), new OwnRedisMock(), { defineCommand() {}, options: known }];
  const others = [
    new RedisMocked(),
    { defineCommand() {}, options: known, connector: {} },
    { options: known },
    { defineCommand() {}, options: { notifyKeyspaceEvents: 1 } },
    { defineCommand() {} },
    Object.assign(Object.create(null), { defineCommand() {} }),
    client(),
    null,
    'RedisMock',
  ];
  assert.deepEqual(mocks.map(isMock), [true, true, true]);
  assert.deepEqual(others.map(isMock), Array(others.length).fill(false));
});

test('mocks are one store for each address, and are told once', async () => {
  const warnings: Error[] = [];
  const note = (warning: Error) => warnings.push(warning);
  process.on('warning', note);
  const mock = (options: object) => ({
    defineCommand() {},
    options: { notifyKeyspaceEvents: '', ...options },
  });
  const target = (...options: object[]) => readClients(options.map(mock));
  assert.deepEqual(target({}), {
    target: 'memory:mock-localhost-6379-0',
    options: { prefix: '' },
  });
  const given = { host: 'a b', port: 1, db: 2, keyPrefix: 'p:' };
  assert.deepEqual(target(given), { target: 'memory:mock-a%20b-1-2', options: { prefix: 'p:' } });
  // Any number of them has one store.
  assert.equal(target(given, {}).target, 'memory:mock-a%20b-1-2');
  await new Promise(setImmediate);
  process.off('warning', note);
  assert.deepEqual(
    warnings.map(({ name, message }) => [name, /kept in the memory of this/.test(message)]),
    [['HoldfastWarning', true]],
  );
  assert.throws(() => readClients([mock({}), client(), client()]), /^TypeError.*client 1 does not/);
});

test('another database is that of each server, and there is none in a Cluster or a mock', () => {
  const options = { prefix: 'p:' };
  const server = { host: 'a', port: 1, db: 0 };
  const moved = (target: unknown, db?: number) => inDatabase({ target, options }, db);
  assert.deepEqual(moved(server, 2), { target: { ...server, db: 2 }, options });
  assert.deepEqual(moved(server, 0), { target: server, options });
  assert.deepEqual(moved({ ...server, db: 3 }), { target: { ...server, db: 3 }, options });
  for (const target of ['memory:x', { cluster: ['redis://a'] }]) {
    assert.deepEqual(moved(target, 2), { target, options });
  }
  assert.deepEqual(moved({ quorum: [server, 'redis://b'], more: 1 }, 2), {
    target: { quorum: [{ ...server, db: 2 }, 'redis://b'], more: 1 },
    options,
  });
});

test('what the core refuses at the start is told by its kind', () => {
  const failing = (code: string) => () =>
    startable({ server: 'redis://a' }, () => {
      throw Object.assign(new Error('why'), { code });
    });
  const argument = { name: 'TypeError', code: 'ERR_INVALID_ARG_VALUE', message: 'why' };
  assert.throws(failing('InvalidArg'), argument);
  const unreachable = { code: 'ERR_LOCK_CONNECTION', message: 'cannot connect to redis://a: why' };
  assert.throws(failing('Cancelled'), unreachable);
  assert.throws(failing('GenericFailure'), (error: Error & { code: string }) => {
    assert.equal(error.code, 'ERR_INTERNAL');
    assert.match(error.message, /^why: this is a defect of holdfast/);
    assert.equal((error.cause as Error).message, 'why');
    return true;
  });
  assert.equal(
    startable({ server: 'redis://a' }, () => 5),
    5,
  );
});
