/** Logins that functions give: for each connection, and again before they expire. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import type { CredentialsSource } from 'holdfast';
import { createClient } from 'redis';
import { ended, manager as open } from '../support/ended.js';
import { connect, holdfast } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';
import { Rotation, USER } from './rotation.js';

const { LockConnectionError, LockServerError } = holdfast;

async function start(args: readonly string[] = []): Promise<RedisServer> {
  const server = await RedisServer.start({ args });
  ended.push(() => server.stop());
  return server;
}

/** The connections of the user: its ids. */
async function connections({ admin }: RedisServer): Promise<string[]> {
  const list = String(await admin.call('CLIENT', 'LIST'));
  const own = list.split('\n').filter((line) => line.includes(` user=${USER} `));
  return own.map((line) => /^id=(\d+)/.exec(line)?.[1] ?? '').sort();
}

async function loginsOf({ admin }: RedisServer): Promise<number> {
  const info = await admin.info('commandstats');
  return Number(/cmdstat_auth:calls=(\d+)/.exec(info)?.[1] ?? 0);
}

/** RESP2 by a server without HELLO. */
const PROTOCOLS = [
  ['RESP3', []],
  ['RESP2', ['--rename-command', 'HELLO', '']],
] as const;

for (const [protocol, args] of PROTOCOLS) {
  test(`credentials: ${protocol}: a function is asked for each new connection`, async () => {
    const server = await start(args);
    const rotation = await new Rotation([server]).begin();
    const locks = await open(server.url, { credentials: rotation.credentials });
    const asked = rotation.asked;
    assert.ok(asked >= 1 && asked <= 2, String(asked));
    const lock = await locks.acquire('a');
    await rotation.change();
    // The old password is refused from now on, but open connections stay.
    await lock.extend();
    assert.equal(rotation.asked, asked);
    await rotation.kill();
    await until(() => rotation.asked > asked, 'the function to be asked again');
    await lock.extend();
    assert.ok(lock.held);
  });

  test(`credentials: ${protocol}: user and password may be functions`, async () => {
    const server = await start(args);
    const rotation = await new Rotation([server]).begin();
    const password = async () => rotation.password;
    const locks = await open(server.url, { username: () => USER, password });
    await (await locks.acquire('a')).release();
    const parts = { host: '127.0.0.1', port: server.port, username: USER, password };
    await (await (await open(parts)).acquire('a')).release();
  });

  test(`credentials: ${protocol}: open connections log in again before the login expires`, async () => {
    const server = await start(args);
    const rotation = await new Rotation([server], 1_000).begin();
    const { credentials } = rotation;
    const [locks, others] = [
      await open(server.url, { credentials }),
      await open(server.url, { credentials }),
    ];
    let gone = 0;
    for (const each of [locks, others])
      each.on('disconnect', () => {
        gone += 1;
      });
    const before = await connections(server);
    const logins = await loginsOf(server);
    for (let i = 0; i < 4; i++) {
      const [lock, asked] = [await locks.acquire('a', { ttl: 600_000 }), rotation.asked];
      const waiting = others.acquire('a', { wait: 60_000 });
      await rotation.change();
      await until(() => rotation.asked > asked, 'the function to be asked again');
      const wanted = logins + (i + 1) * 2;
      await until(async () => (await loginsOf(server)) >= wanted, 'the logins');
      await lock.release();
      // By a message: the waiter would poll only at the end of the lease.
      await (await waiting).release();
    }
    // In RESP2 the connections for messages are replaced, each by another.
    await until(async () => {
      const after = await connections(server);
      return (
        after.length === before.length && after.filter((id) => before.includes(id)).length === 2
      );
    }, 'the connections for messages to be replaced');
    assert.equal(gone, 0);
  });
}

test('credentials: while the event loop is blocked, the last answer is used', async () => {
  const server = await start();
  const rotation = await new Rotation([server], 600_000).begin();
  const locks = await open(server.url, { credentials: rotation.credentials });
  const lock = await locks.acquire('a', { ttl: 1_000 });
  const before = await connections(server);
  const script = `
    const socket = require('node:net').connect(${server.port}, '127.0.0.1')
    setTimeout(() => socket.write('CLIENT KILL USER ${USER}\\r\\n'), 300)
    socket.on('data', () => socket.end())`;
  const killed = new Promise((resolve) => execFile(process.execPath, ['-e', script], resolve));
  const end = performance.now() + 2_500;
  while (performance.now() < end);
  assert.ok(lock.held);
  await killed;
  assert.ok(lock.held);
  assert.notDeepEqual(await connections(server), before);
  await lock.release();
});

const RUBBISH: readonly (readonly [string, () => unknown, RegExp])[] = [
  [
    'throws',
    () => {
      throw new Error('no vault');
    },
    /function credentials failed: no vault/,
  ],
  ['rejects', () => Promise.reject(new Error('no vault')), /function credentials failed: no vault/],
  [
    'hangs',
    () => new Promise(() => {}),
    /no connection within 400 ms: the function .* has not answered/,
  ],
  [
    'gives nothing',
    () => undefined,
    /must give \{ username, password \}, got a value of type undefined/,
  ],
  [
    'gives a text',
    () => 's3cret',
    /must give \{ username, password \}, got a value of type string/,
  ],
  [
    'gives no password',
    () => ({ username: 'app' }),
    /password .* must give a string, got a value of type undefined/,
  ],
  [
    'gives a number',
    () => ({ password: 53 }),
    /password .* must give a string, got a value of type number/,
  ],
  [
    'gives seconds',
    () => ({ password: 's3cret', expiresAt: 1_700_000_000 }),
    /expiresAt .* is in the past/,
  ],
  [
    'gives no time',
    () => ({ password: 's3cret', expiresAt: 'soon' }),
    /expiresAt .* must be a Date/,
  ],
];

for (const [what, credentials, message] of RUBBISH) {
  test(`credentials: a function that ${what} makes connect fail`, async () => {
    const server = await start();
    const options = {
      credentials: credentials as CredentialsSource & (() => never),
      connectTimeout: 400,
    };
    await assert.rejects(connect(server.url, options), (error: Error) => {
      assert.ok(error instanceof LockConnectionError);
      assert.match(error.message, message);
      assert.doesNotMatch(`${error.stack}`, /s3cret/);
      return true;
    });
  });
}

test('credentials: what cannot be one is refused before anything is sent', async () => {
  const credentials = () => ({ password: 'a' });
  const nowhere = 'redis://127.0.0.1:1';
  for (const given of ['s3cret', null, 5, {}]) {
    const refused = connect(nowhere, { credentials: given as never });
    await assert.rejects(refused, { code: 'ERR_INVALID_ARG_TYPE', message: /must be a function/ });
  }
  await assert.rejects(
    connect(nowhere, { credentials, password: 's3cret' }),
    /leave .*password out/,
  );
  await assert.rejects(connect(nowhere, { username: () => 'a' }), {
    code: 'ERR_INVALID_ARG_VALUE',
  });
});

test('credentials: an open connection outlives a function that fails', async () => {
  const server = await start();
  const rotation = await new Rotation([server], 1_000).begin();
  let fails = false;
  let failed = 0;
  const credentials = async () => {
    if (!fails) return rotation.credentials();
    failed += 1;
    throw new Error('no vault');
  };
  const locks = await open(server.url, { credentials });
  let gone = 0;
  locks.on('disconnect', () => {
    gone += 1;
  });
  const warnings: string[] = [];
  locks.on('warning', ({ code, message }) => warnings.push(`${code} ${message}`));
  const lock = await locks.acquire('a', { ttl: 2_000 });
  fails = true;
  await until(() => failed >= 3, 'the function to fail');
  await lock.extend();
  assert.equal(warnings.length, 1);
  assert.match(String(warnings), /^WARN_LOCK_LOGIN .*function credentials failed: no vault/);
  fails = false;
  const { asked } = rotation;
  const logins = await loginsOf(server);
  await until(() => rotation.asked > asked, 'the function to be asked again');
  await rotation.change();
  await until(async () => (await loginsOf(server)) > logins, 'the login');
  assert.equal(gone, 0);
  assert.ok(lock.held);
});

test('credentials: a reconnection logs in with the last answer while the function fails', async () => {
  const server = await start();
  const rotation = await new Rotation([server]).begin();
  let failed = 0;
  const credentials = async () => {
    if (rotation.asked === 0) return rotation.credentials();
    failed += 1;
    throw new Error('no vault');
  };
  const locks = await open(server.url, { credentials });
  let again = 0;
  locks.on('reconnect', () => {
    again += 1;
  });
  await rotation.kill();
  await until(() => again === 1, 'the reconnect');
  assert.ok(failed > 0);
  await (await locks.acquire('a')).release();
});

test('credentials: a password that changes between the answer and the login is asked for again', async () => {
  const server = await start();
  const rotation = await new Rotation([server]).begin();
  let first = true;
  const credentials = async () => {
    const given = await rotation.credentials();
    if (first) await rotation.change();
    first = false;
    return given;
  };
  await (await (await open(server.url, { credentials })).acquire('a')).release();
});

test('a wrong password at a reconnection is told at once', async () => {
  const server = await start();
  const rotation = await new Rotation([server]).begin();
  const locks = await open(server.url, { username: USER, password: rotation.password });
  const errors: Error[] = [];
  let reconnects = 0;
  locks.on('disconnect', (error) => errors.push(error));
  locks.on('reconnect', () => {
    reconnects += 1;
  });
  const lock = await locks.acquire('a', { ttl: 60_000 });
  const waiting = locks.acquire('a', { wait: 60_000 });
  const together = assert.rejects(waiting, (error: Error) => {
    assert.ok(error instanceof LockServerError);
    assert.equal(error.serverCode, 'WRONGPASS');
    assert.match(error.message, /check username and password/);
    return true;
  });
  const { password } = rotation;
  await rotation.change();
  await rotation.kill();
  await together;
  await assert.rejects(locks.acquire('b', { wait: 60_000 }), { serverCode: 'WRONGPASS' });
  await assert.rejects(lock.extend(), { serverCode: 'WRONGPASS' });
  const [, refused, ...more] = errors;
  assert.deepEqual(more, []);
  assert.ok(refused instanceof LockConnectionError);
  assert.ok(refused.cause instanceof LockServerError);
  assert.equal(refused.cause.serverCode, 'WRONGPASS');
  const [state] = locks.stats().servers;
  assert.match(String(state?.refused), /^WRONGPASS /);
  assert.equal(reconnects, 0);
  await server.admin.call('ACL', 'SETUSER', USER, `>${password}`);
  await until(() => reconnects === 1, 'the reconnection');
  assert.equal(locks.stats().servers[0]?.refused, null);
  await lock.extend();
});

test('credentials: those of a client of node-redis are used as they are', async () => {
  const server = await start();
  const rotation = await new Rotation([server]).begin();
  const credentials = async () => {
    await rotation.credentials();
    return { username: USER, password: rotation.password };
  };
  const credentialsProvider = { type: 'async-credentials-provider', credentials } as const;
  const client = createClient({ url: server.url, credentialsProvider });
  const lock = await (await open(client)).acquire('a');
  await rotation.change();
  await rotation.kill();
  await lock.extend();
  const direct = await open(server.url, { credentials: credentialsProvider });
  assert.equal(await direct.tryAcquire('a'), null);
});

test('credentials: a stream of node-redis logs open connections in again', async () => {
  const server = await start();
  const rotation = await new Rotation([server]).begin();
  let next: ((given: { username: string; password: string }) => void) | undefined;
  let disposed = 0;
  const credentialsProvider = {
    type: 'streaming-credentials-provider',
    subscribe: async (listener: { onNext: typeof next }) => {
      next = listener.onNext;
      const dispose = () => {
        disposed += 1;
      };
      return [await rotation.credentials(), { dispose }];
    },
    onReAuthenticationError: () => {},
  } as const;
  const client = createClient({
    url: server.url,
    credentialsProvider: credentialsProvider as never,
  });
  const locks = await connect(client);
  let gone = 0;
  locks.on('disconnect', () => {
    gone += 1;
  });
  const lock = await locks.acquire('a');
  for (let i = 1; i <= 3; i++) {
    const logins = await loginsOf(server);
    await rotation.change();
    next?.({ username: USER, password: rotation.password });
    await until(async () => (await loginsOf(server)) > logins, 'the login');
  }
  await lock.extend();
  assert.equal(gone, 0);
  assert.equal(rotation.asked, 1);
  await rotation.kill();
  await until(() => gone === 1, 'the connection to be lost');
  await lock.extend();
  await locks.close();
  assert.equal(disposed, 1);
});

test('credentials: after a stream has failed, a reconnection asks for another', async () => {
  const server = await start();
  const rotation = await new Rotation([server]).begin();
  const fails: (() => void)[] = [];
  let disposed = 0;
  const credentials = {
    type: 'streaming-credentials-provider',
    subscribe: async ({ onError }: { onError: (error: Error) => void }) => {
      fails.push(() => onError(new Error('the stream has ended')));
      const dispose = () => {
        disposed += 1;
      };
      return [await rotation.credentials(), { dispose }];
    },
  } as const;
  const locks = await connect(server.url, { credentials: credentials as never });
  const lock = await locks.acquire('a');
  fails[0]?.();
  await rotation.change();
  await rotation.kill();
  await lock.extend();
  assert.equal(fails.length, 2);
  await locks.close();
  assert.equal(disposed, 1, 'the stream that failed has ended by itself');
});

test('credentials: a stream that begins after connect has failed is ended', async () => {
  const server = await start();
  const rotation = await new Rotation([server]).begin();
  let asked = 0;
  let disposed = 0;
  let begin: () => void = () => {};
  const dispose = () => {
    disposed += 1;
  };
  const credentials = {
    type: 'streaming-credentials-provider',
    subscribe: async () => {
      asked += 1;
      await new Promise<void>((resolve) => {
        begin = resolve;
      });
      return [await rotation.credentials(), { dispose }];
    },
  } as const;
  const options = { credentials: credentials as never, connectTimeout: 300 };
  await assert.rejects(connect(server.url, options), LockConnectionError);
  assert.ok(asked > 0);
  begin();
  await until(() => disposed > 0, 'the end of the stream');
});
