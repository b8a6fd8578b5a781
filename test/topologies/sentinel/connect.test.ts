/** Finding the master: how Sentinels are named, and what happens while some or all of them are away. */

import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import type { SentinelTarget } from 'holdfast';
import {
  type ConnectTarget,
  connect,
  type LockManager,
  openOperations,
} from '../../support/holdfast.js';
import { FaultProxy } from '../../support/proxy.js';
import { Sentinels } from '../../support/sentinels.js';
import { freePort, RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

const managers: LockManager[] = [];
/** Servers and proxies of one test. */
const others: { stop(): Promise<void> }[] = [];

async function open(...args: Parameters<typeof connect>): Promise<LockManager> {
  const manager = await connect(...args);
  managers.push(manager);
  return manager;
}

afterEach(async () => {
  await Promise.all(managers.splice(0).map((each) => each.close()));
  await Promise.all(others.splice(0).map((each) => each.stop()));
  assert.equal(openOperations(), 0);
});

/** Takes a lock, and checks that it is on `master`. */
async function isOn(master: RedisServer, target: ConnectTarget, db = 0): Promise<void> {
  const lock = await (await open(target)).acquire('x');
  const client = master.client({ db });
  assert.equal(await client.get('lock:x'), lock.token);
  client.disconnect();
  assert.equal(await lock.release(), true);
}

async function failure(target: SentinelTarget): Promise<Error & { code: string }> {
  const error = await connect(target, { connectTimeout: 1_000 }).then(
    () => assert.fail('connected'),
    (error: Error & { code: string }) => error,
  );
  assert.ok(!String(error.stack).includes('s3cret'), error.message);
  return error;
}

describe('with passwords', () => {
  const password = 's3cret:m@ster';
  const sentinelPassword = 's3cret/sentinel';
  const login = `:${encodeURIComponent(sentinelPassword)}@`;
  let deployment: Sentinels;
  let master: RedisServer;
  let ports: number[];

  before(async () => {
    deployment = await Sentinels.start({ password, sentinelPassword, downAfter: 60_000 });
    master = await deployment.master();
    ports = deployment.sentinels.map(({ port }) => port);
  });

  test('a lock can be asked to be on a replica', async () => {
    const target = { ...deployment.target, password };
    const locks = await open(target, { replicas: 1 });
    const [replica] = deployment.servers.filter((server) => server !== master);
    const lock = await locks.acquire('replicated');
    const value = await replica?.admin.get('lock:replicated');
    assert.equal(value, lock.token);
    assert.equal(await lock.release(), true);
  });

  after(() => deployment.stop());

  test('a login for all Sentinels, however they are named', async () => {
    for (const sentinels of [
      ports.map((port) => `127.0.0.1:${port}`),
      ports.map((port) => `redis://localhost:${port}`),
      ports.map((port) => new URL(`valkey://127.0.0.1:${port}`)),
      ports.map((port) => ({ host: '127.0.0.1', port })),
    ]) {
      await isOn(master, { sentinels, master: 'mymaster', password, sentinelPassword });
    }
  });

  test('a login in the URL of each Sentinel stands above that for all', async () => {
    const sentinels = ports.map((port) => `redis://${login}127.0.0.1:${port}`);
    const target = { sentinels, master: 'mymaster', password };
    await isOn(master, target);
    await isOn(master, { ...target, sentinelPassword: 'wrong' });
  });

  test('the login of the options stands above that of the target', async () => {
    const locks = await open({ ...deployment.target, password: 'wrong' }, { password });
    assert.equal(await (await locks.acquire('x')).release(), true);
  });

  test('users with just the rights that are needed', async () => {
    await master.admin.call('ACL', 'SETUSER', 'shop', 'on', '>pw', '~*', '&*', '+@all');
    const rights = ['-@all', '+hello', '+sentinel|get-master-addr-by-name', '+subscribe'];
    for (const { admin } of deployment.sentinels) {
      const rule = ['on', '>pw', 'resetchannels', '&+switch-master', ...rights];
      await admin.call('ACL', 'SETUSER', 'asker', ...rule);
    }
    const asker = { sentinelUsername: 'asker', sentinelPassword: 'pw' };
    await isOn(master, { ...deployment.target, ...asker, username: 'shop', password: 'pw' });
    for (const { admin, port } of deployment.sentinels) {
      await until(
        async () => /sub=1 .*user=asker/.test(String(await admin.client('LIST'))),
        `the manager to listen to the Sentinel on port ${port}`,
      );
    }
  });

  test('the database of the target', async () => {
    await isOn(master, { ...deployment.target, db: 3 }, 3);
  });

  test('a wrong password of the Sentinels: each says so, and none is shown', async () => {
    const error = await failure({ ...deployment.target, sentinelPassword: 's3cret-guess' });
    assert.equal(error.code, 'ERR_LOCK_CONNECTION');
    for (const port of ports) {
      assert.match(error.message, new RegExp(`127\\.0\\.0\\.1:${port}: WRONGPASS`));
    }
  });

  test('a wrong password of the master: the server says so, and none is shown', async () => {
    const error = await failure({ ...deployment.target, password: 's3cret-guess' });
    assert.equal(error.code, 'ERR_LOCK_SERVER');
    assert.match(error.message, /the master "mymaster" of the Sentinel .* WRONGPASS/);
  });

  test('a master that nobody watches: each Sentinel says so', async () => {
    const error = await failure({ ...deployment.target, master: 'theirs' });
    assert.equal(error.code, 'ERR_LOCK_CONNECTION');
    assert.match(error.message, /cannot connect to the master "theirs" of the Sentinel/);
    assert.equal(error.message.match(/it knows no master of this name/g)?.length, 3);
  });
});

describe('with Sentinels that are away or wrong', () => {
  let deployment: Sentinels;
  let master: RedisServer;

  before(async () => {
    deployment = await Sentinels.start({ downAfter: 60_000 });
    master = await deployment.master();
  });

  after(() => deployment.stop());

  const by = (...sentinels: readonly string[]): SentinelTarget => ({
    sentinels,
    master: 'mymaster',
  });

  test('one that answers is enough', async () => {
    const nobody = [`127.0.0.1:${await freePort()}`, 'no-such-host.invalid'];
    await isOn(master, by(...nobody, String(deployment.target.sentinels[2])));
  });

  test('nobody waits for one that is silent while the others agree', async () => {
    const [silent] = deployment.sentinels as [RedisServer];
    silent.pause();
    try {
      const begin = performance.now();
      await open(deployment.target, { connectTimeout: 60_000 });
      assert.ok(performance.now() - begin < 10_000);
    } finally {
      silent.resume();
    }
  });

  test('two that are silent: who has lost its connection is back before its leases end', async () => {
    // Half of it is for the Sentinels: longer than the lease.
    const locks = await open(deployment.target, { connectTimeout: 60_000 });
    const held = await locks.acquire('held', { ttl: 10_000 });
    const silent = deployment.sentinels.slice(0, 2);
    for (const sentinel of silent) sentinel.pause();
    try {
      let again = false;
      locks.once('reconnect', () => {
        again = true;
      });
      await master.killClients();
      await until(() => again || !held.held, 'the reconnect');
      assert.equal(held.held, true);
      assert.equal((await locks.query({ name: 'held' })).held.length, 1);
      assert.equal(held.held, true);
    } finally {
      for (const sentinel of silent) sentinel.resume();
    }
  });

  test('one that is silent is waited for no longer than the master needs', async () => {
    const [silent] = deployment.sentinels as [RedisServer];
    silent.pause();
    try {
      const [first, second] = deployment.target.sentinels as [string, string];
      await isOn(master, by(first, second));
    } finally {
      silent.resume();
    }
  });

  test('with the option replicas, a lock that no replica has is not granted', async () => {
    const locks = await open(deployment.target, { replicas: 1 });
    const [replica] = (await deployment.replicas()) as [RedisServer];
    const lock = await locks.acquire('confirmed');
    assert.equal(await replica.admin.get('lock:confirmed'), lock.token);
    assert.equal(await lock.release(), true);
    replica.pause();
    try {
      await assert.rejects(locks.acquire('confirmed'), { serverCode: 'NOREPLICAS' });
    } finally {
      replica.resume();
    }
  });

  test('a server that is no Sentinel is named with what it says', async () => {
    const error = await failure(by(`127.0.0.1:${master.port}`));
    assert.equal(error.code, 'ERR_LOCK_CONNECTION');
    assert.match(error.message, new RegExp(`127\\.0\\.0\\.1:${master.port}: ERR unknown command`));
  });

  /** Starts a Sentinel of its own that takes another server for the master. */
  async function mistaken(port: number): Promise<RedisServer> {
    const lines = [
      `sentinel monitor mymaster 127.0.0.1 ${port} 2`,
      'sentinel down-after-milliseconds mymaster 60000',
    ];
    const sentinel = await RedisServer.start({ sentinel: `${lines.join('\n')}\n` });
    others.push(sentinel);
    return sentinel;
  }

  test('a Sentinel that names a replica: the next one is believed; without one, an error', async () => {
    const [replica] = (await deployment.replicas()) as [RedisServer];
    const wrong = await mistaken(replica.port);
    const [right] = deployment.target.sentinels as [string];
    await isOn(master, by(`127.0.0.1:${wrong.port}`, right));
    const error = await failure(by(`127.0.0.1:${wrong.port}`));
    assert.equal(error.code, 'ERR_LOCK_CONNECTION');
    assert.match(error.message, new RegExp(`master 127\\.0\\.0\\.1:${replica.port}: .* replica`));
  });

  /**
   * One that is cut off from the others names the old master, which may still be reachable and take writes. A new process
   * that connected to it would issue fences from that server's clock.
   */
  test('a Sentinel that names a master of long ago is outvoted', async () => {
    const former = await RedisServer.start();
    others.push(former);
    const wrong = await mistaken(former.port);
    const [first, second] = deployment.target.sentinels as [string, string];
    await isOn(former, by(`127.0.0.1:${wrong.port}`));
    await isOn(master, by(`127.0.0.1:${wrong.port}`, first, second));
  });

  test('a Sentinel that falls silent: what was asked of it leaves no connection behind', async () => {
    const proxy = await FaultProxy.start(deployment.sentinels[0]?.port ?? 0);
    others.push(proxy);
    proxy.onRequest = (chunk) => {
      if (chunk.includes('GET-MASTER-ADDR-BY-NAME')) proxy.loseReplies = true;
    };
    const error = await failure(by(`127.0.0.1:${proxy.port}`));
    assert.match(error.message, /no connection within 500 ms/);
    await until(() => proxy.open === 0, 'the connection to end');
  });

  test('a Sentinel that falls silent when it is to be listened to is tried again', async () => {
    const proxy = await FaultProxy.start(deployment.sentinels[0]?.port ?? 0);
    others.push(proxy);
    proxy.onRequest = (chunk) => {
      if (chunk.includes('SUBSCRIBE')) proxy.loseReplies = true;
    };
    await open(by(`127.0.0.1:${proxy.port}`), { connectTimeout: 1_000 });
    await until(() => proxy.loseReplies, 'it to be listened to');
    const before = proxy.accepted;
    await until(() => proxy.accepted > before, 'the next connection');
  });

  test('all Sentinels die: locks are held and taken on, and nobody new can connect', async () => {
    const locks = await open(deployment.target);
    const held = await locks.acquire('held', { ttl: 1_000 });
    await Promise.all(deployment.sentinels.map((sentinel) => sentinel.kill()));
    const error = await failure(deployment.target);
    assert.equal(error.code, 'ERR_LOCK_CONNECTION');
    assert.match(error.message, /no Sentinel knows the master/);
    for (const { port } of deployment.sentinels) {
      assert.match(error.message, new RegExp(`127\\.0\\.0\\.1:${port}: .*refused`, 'i'));
    }
    const { renewals } = locks.stats();
    await until(() => locks.stats().renewals > renewals + 3, 'three renewals more');
    assert.equal(held.held, true);
    assert.equal(await (await locks.acquire('other')).release(), true);
    // The connection breaks as well: nobody can say where the master is, until a Sentinel is back.
    await master.killClients();
    await assert.rejects(locks.acquire('other', { wait: 500 }), {
      code: 'ERR_LOCK_CONNECTION',
      message: /no Sentinel knows the master/,
    });
    await deployment.sentinels[1]?.start();
    assert.equal(await (await locks.acquire('other', { wait: 20_000 })).release(), true);
  });
});
