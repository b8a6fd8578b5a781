/**
 * Scripts are not rolled back, so a manager does not begin with a user for whom a script could end after its first write:
 * one who may not run a command of the scripts.
 */

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { ConnectOptions } from 'holdfast';
import { ROOT } from '../support/child.js';
import { Cluster } from '../support/cluster.js';
import { ended } from '../support/ended.js';
import { type ConnectTarget, connect, holdfast, type LockManager } from '../support/holdfast.js';
import { type AclUser, enrol, leastRights } from '../support/least-rights.js';
import { RestrictedServer } from '../support/restricted.js';
import { RedisServer, serverVersion } from '../support/server.js';
import { serverOfFile } from '../support/server-of-file.js';
import { until } from '../support/wait.js';

const { LockServerError } = holdfast;

const LUA = join(ROOT, 'src', 'protocol', 'lua');

/** Every command that a script calls, but for those without which locks work: the clock and messages. */
const COMMANDS = [
  ...new Set(
    readdirSync(LUA, { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.lua'))
      .flatMap((file) => [...readFileSync(join(LUA, file), 'utf8').matchAll(/call\('(\w+)'/g)])
      .map(([, name = '']) => name)
      .filter((name) => !['TIME', 'PUBLISH', 'PUBSUB'].includes(name)),
  ),
].sort();

const server = serverOfFile();

async function open(target: ConnectTarget, options: ConnectOptions = {}): Promise<LockManager> {
  const locks = await connect(target, options);
  locks.on('warning', () => {});
  ended.push(() => locks.close());
  return locks;
}

/** Who may do everything that locks need, but for `commands`. */
function without(...commands: readonly string[]): AclUser {
  const user = leastRights();
  const rules = commands.map((name) => `-${name.toLowerCase()}`);
  return {
    ...user,
    name: `no-${commands.join('-').toLowerCase()}`,
    rules: [...user.rules, ...rules],
  };
}

/** Everything in the server, without times to live. */
async function data(): Promise<Record<string, string>> {
  const keys = (await server.admin.keys('*')).sort();
  const values = keys.map(async (key) => [
    key,
    (await server.admin.dumpBuffer(key))?.toString('hex'),
  ]);
  return Object.fromEntries(await Promise.all(values));
}

/** Connects, and uses free, held and shared locks in every way; the first error ends it. */
async function useLocks(url: string): Promise<unknown> {
  try {
    const locks = await connect(url, { commandTimeout: 2_000 });
    locks.on('warning', () => {});
    try {
      await locks.tryAcquire('held');
      await locks.acquire('held', { wait: 20 }).catch(unlessServer);
      await locks.acquire('shared', { mode: 'shared', wait: 20 }).catch(unlessServer);
      await locks.acquire('shared', { wait: 20 }).catch(unlessServer);
      await locks.forceRelease('held');
      await locks.acquire('free');
    } finally {
      await locks.close();
    }
  } catch (error) {
    return error;
  }
  return null;
}

function unlessServer(error: unknown): void {
  if (error instanceof LockServerError) throw error;
}

test('the documented rule grants every command of the scripts', () => {
  assert.ok(COMMANDS.length > 15 && COMMANDS.includes('ZADD'), `${COMMANDS}`);
  const { rules } = leastRights();
  const missing = COMMANDS.filter((name) => !rules.includes(`+${name.toLowerCase()}`));
  assert.deepEqual(missing, []);
});

for (const command of COMMANDS) {
  test(`without ${command} nothing is written, and the error says what to grant`, async () => {
    await server.admin.flushall();
    const others = await open(server.url);
    await others.acquire('held', { ttl: 60_000 });
    await others.acquire('shared', { mode: 'shared', ttl: 60_000 });
    const old = await data();
    const user = without(command);
    const error = await useLocks(await enrol(server, user));
    assert.deepEqual(await data(), old);
    assert.ok(error instanceof LockServerError, `${error}`);
    assert.equal(error.serverCode, 'NOPERM');
    const rule = `ACL SETUSER ${user.name} +${command.toLowerCase()}`;
    assert.ok(
      error.message.includes(`may not run ${command}: grant it by ${rule};`),
      error.message,
    );
  });
}

for (const calls of [['EVAL'], ['EVALSHA'], ['EVAL', 'EVALSHA']]) {
  test(`without ${calls.join(' and ')} nothing begins, and the error says what to grant`, async () => {
    const user = without(...calls);
    const rule = calls.map((name) => `\\+${name.toLowerCase()}`).join(' ');
    await assert.rejects(connect(await enrol(server, user)), {
      name: 'LockServerError',
      serverCode: 'NOPERM',
      message: new RegExp(
        `locks may not run ${calls.join(', ')}: grant it by ACL SETUSER ${user.name} ${rule};`,
      ),
    });
  });

  test(`a server that has renamed ${calls.join(' and ')}: nothing begins, and the error names it`, async () => {
    const renamed = await RedisServer.start({
      args: calls.flatMap((name) => ['--rename-command', name, `other-${name}`]),
    });
    ended.push(() => renamed.stop());
    await assert.rejects(connect(renamed.url), {
      name: 'LockServerError',
      serverCode: 'ERR',
      message: new RegExp(`locks may not run ${calls.join(', ')}: unknown command .${calls[0]}`),
    });
  });
}

test('without TIME nothing begins: the error names it, and what to grant', async () => {
  const user = without('TIME');
  await assert.rejects(connect(await enrol(server, user)), {
    serverCode: 'NOPERM',
    message: new RegExp(`locks may not run TIME: grant it by ACL SETUSER ${user.name} \\+time;`),
  });
  const renamed = await RedisServer.start({ args: ['--rename-command', 'TIME', ''] });
  ended.push(() => renamed.stop());
  await assert.rejects(connect(renamed.url), {
    serverCode: 'ERR',
    message: /locks may not run TIME: unknown command .TIME/,
  });
});

test('servers of a quorum without EVAL are not used', async () => {
  const servers = await Promise.all([1, 2, 3].map(() => RedisServer.start()));
  ended.push(() => Promise.all(servers.map((each) => each.stop())));
  const user = without('EVAL');
  const quorum = await Promise.all(servers.map((each) => enrol(each, user)));
  await assert.rejects(
    connect({ quorum }, { longestLease: 0, connectTimeout: 2_000 }),
    /locks may not run EVAL: grant it by ACL SETUSER no-eval \+eval/,
  );
});

test('all that is missing is named at once', async () => {
  const user = without('ZADD', 'HSET');
  await assert.rejects(connect(await enrol(server, user)), {
    serverCode: 'NOPERM',
    message: new RegExp(
      `may not run HSET, ZADD: grant it by ACL SETUSER ${user.name} \\+hset \\+zadd;`,
    ),
  });
});

test('a right that was taken away ends the manager at its next connection, and changes no lock', async () => {
  await server.admin.flushall();
  const user = { ...leastRights(), name: 'demoted' };
  const locks = await open(await enrol(server, user));
  await locks.acquire('a', { ttl: 60_000 });
  const others = await open(server.url);
  const old = await data();
  await server.admin.call('ACL', 'SETUSER', user.name, '-zadd');
  await server.admin.call('CLIENT', 'KILL', 'USER', user.name);
  await until(() => locks.stats().servers.some(({ refused }) => refused), 'the refusal');
  await assert.rejects(
    locks.acquire('b', { wait: 300 }),
    /may not run ZADD: grant it by ACL SETUSER/,
  );
  assert.deepEqual(await data(), old);
  await server.admin.call('ACL', 'SETUSER', user.name, '+zadd');
  const lock = await locks.acquire('b', { wait: 20_000 });
  assert.equal(await others.tryAcquire('b'), null);
  await lock.release();
});

test('a script that is not used needs no right', async () => {
  const shared = await RestrictedServer.start(server.port, 'no TIME in scripts');
  ended.push(() => shared.stop());
  const { name, password } = without('ZADD');
  await enrol(server, without('ZADD'));
  const locks = await open(shared.url.replace('//', `//${name}:${password}@`));
  const lock = await locks.acquire('exclusive');
  assert.equal(await locks.tryAcquire('exclusive'), null);
  assert.equal(await lock.release(), true);
});

test('servers of a quorum need the commands of votes alone', async () => {
  const servers = await Promise.all([1, 2, 3].map(() => RedisServer.start()));
  ended.push(() => Promise.all(servers.map((each) => each.stop())));
  const asUser = (user: AclUser) => Promise.all(servers.map((each) => enrol(each, user)));
  const options = { longestLease: 0, connectTimeout: 2_000 };
  const locks = await open({ quorum: await asUser(without('ZADD')) }, options);
  const lock = await locks.acquire('a');
  assert.equal(await lock.release(), true);
  await assert.rejects(
    connect({ quorum: await asUser(without('PEXPIRE')) }, options),
    /may not run PEXPIRE: grant it by ACL SETUSER no-pexpire \+pexpire/,
  );
});

test('every server of a Cluster is asked', async (t) => {
  if (serverVersion().startsWith('6.')) return t.skip('its users need other rights for a Cluster');
  const cluster = await Cluster.start();
  ended.push(() => cluster.stop());
  const user = { ...without('ZADD'), rules: [...leastRights('for a Cluster').rules, '-zadd'] };
  const target = { cluster: await Promise.all(cluster.nodes.map((node) => enrol(node, user))) };
  const locks = await open(target, { connectTimeout: 2_000 }).catch((error: unknown) => error);
  const used = async () => {
    if (locks instanceof Error) throw locks;
    for (const name of ['a', 'b', 'c']) await (locks as LockManager).acquire(name, { wait: 300 });
  };
  await assert.rejects(used(), /may not run ZADD: grant it by ACL SETUSER no-zadd \+zadd/);
  for (const { admin } of cluster.nodes) assert.deepEqual(await admin.keys('*'), []);
});

test('who may not use the keys of a lock is not advised to grant commands', async () => {
  const rules = [...leastRights().rules, 'resetkeys', '~holdfast:*', '~other:*'];
  const url = await enrol(server, { ...leastRights(), name: 'no-keys', rules });
  const error = await open(url)
    .then((locks) => locks.acquire('a'))
    .catch((reason) => reason);
  assert.ok(error instanceof LockServerError, String(error));
  assert.match(error.message, /NOPERM .*key.*; the ACL user may not use this lock's keys/);
  assert.doesNotMatch(error.message, /ACL SETUSER no-keys \+/);
});

test('who may not use a database is advised to use another, not to grant commands', async () => {
  const proxy = await RestrictedServer.start(server.port, 'no right to the database');
  ended.push(() => proxy.stop());
  const error = await open(proxy.url).catch((reason) => reason);
  assert.ok(error instanceof LockServerError, String(error));
  assert.match(
    error.message,
    /NOPERM .*No permissions to access database.*may use other databases/,
  );
  assert.doesNotMatch(error.message, /\+eval/);
});
