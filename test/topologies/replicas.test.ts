/** Locks that count only once replicas have them. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { connect, type Lock, type LockManager, openOperations } from '../support/holdfast.js';
import { isInSync, replicationOf } from '../support/replication.js';
import { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';

let primary: RedisServer;
let replicas: RedisServer[];
let locks: LockManager | undefined;

beforeEach(async () => {
  primary = await RedisServer.start({ args: ['--repl-diskless-sync-delay', '0'] });
  const args = ['--replicaof', '127.0.0.1', `${primary.port}`];
  replicas = await RedisServer.startSeveral(2, { args });
  await inSync();
});

afterEach(async () => {
  await locks?.close();
  locks = undefined;
  assert.equal(openOperations(), 0);
  await Promise.all([primary, ...replicas].map((server) => server.stop()));
});

async function inSync(): Promise<void> {
  await until(() => isInSync(primary, replicas), 'the replicas to be in sync');
  // A primary shows a replica as online before it sends it anything: where the replica's first
  // acknowledgement crosses the end of the copy, only the next one, a second later, starts that.
  await until(async () => (await acknowledging()) >= replicas.length, 'their acknowledgements');
}

/** The number of replicas that acknowledge a write within a tenth of a second. */
async function acknowledging(): Promise<number> {
  await primary.admin.set('is-in-sync', '');
  await primary.admin.del('is-in-sync');
  return primary.admin.wait(replicas.length, 100);
}

/** Nothing of a lock is left on the primary. */
async function isFree(name: string): Promise<boolean> {
  return (await primary.admin.exists(`lock:${name}`)) === 0;
}

test('a lock that was acquired is on the replicas', async () => {
  for (const count of [1, 2, 'majority'] as const) {
    locks = await connect(primary.url, { replicas: count });
    for (let round = 0; round < 20; round += 1) {
      const lock = await locks.acquire(`item:${count}`);
      const values = await Promise.all(
        replicas.map((replica) => replica.admin.get(`lock:item:${count}`)),
      );
      const have = values.filter((value) => value === lock.token).length;
      assert.ok(have >= (count === 'majority' ? 1 : count), `${have} replicas have it`);
      await lock.release();
    }
    await locks.close();
  }
});

test('a lock that too few replicas have is refused and given back', async () => {
  locks = await connect(primary.url, { replicas: 2 });
  assert.ok(await (await locks.acquire('item')).release());
  replicas[0]?.pause();
  await assert.rejects(locks.acquire('item', { wait: 5_000 }), {
    code: 'ERR_LOCK_SERVER',
    serverCode: 'NOREPLICAS',
    message: /1 of 2 replicas had the lock within 1000 ms/,
  });
  await until(() => isFree('item'), 'the lock to be given back');
  await assert.rejects(locks.tryAcquire('item'), { serverCode: 'NOREPLICAS' });
  replicas[0]?.resume();
  await inSync();
  assert.ok(await (await locks.acquire('item')).release());
});

test('one of two replicas is a majority with the primary', async () => {
  locks = await connect(primary.url, { replicas: 'majority' });
  replicas[0]?.pause();
  assert.ok(await (await locks.acquire('item')).release());
  replicas[1]?.pause();
  await assert.rejects(locks.acquire('item'), { serverCode: 'NOREPLICAS' });
  for (const replica of replicas) replica.resume();
});

test('where all replicas are gone a majority is not the primary alone', async () => {
  locks = await connect(primary.url, { replicas: 'majority' });
  assert.ok(await (await locks.acquire('item')).release());
  await Promise.all(replicas.map((replica) => replica.kill()));
  await until(async () => (await followers()) === 0, 'the primary to miss its replicas');
  const refused = { serverCode: 'NOREPLICAS', message: /0 of 1 replicas/ };
  await assert.rejects(locks.acquire('item'), refused, 'on the same connection');
  await primary.killClients();
  await assert.rejects(locks.acquire('item', { wait: 20_000 }), refused, 'after a reconnect');
  const fresh = await connect(primary.url, { replicas: 'majority' });
  await assert.rejects(fresh.acquire('item'), refused, 'by who has never seen any');
  await fresh.close();
});

test('a majority is of all replicas that a manager has ever seen', async () => {
  const args = ['--replicaof', '127.0.0.1', `${primary.port}`];
  replicas.push(await RedisServer.start({ args }));
  await inSync();
  locks = await connect(primary.url, { replicas: 'majority' });
  assert.ok(await (await locks.acquire('item')).release());
  await Promise.all(replicas.slice(1).map((replica) => replica.kill()));
  await until(async () => (await followers()) === 1, 'the primary to miss two replicas');
  await primary.killClients();
  const refused = { serverCode: 'NOREPLICAS', message: /1 of 2 replicas/ };
  await assert.rejects(locks.acquire('item', { wait: 20_000 }), refused);
  const fresh = await connect(primary.url, { replicas: 'majority' });
  assert.ok(await (await fresh.acquire('item')).release(), 'it knows of one');
  await fresh.close();
});

/** The number of replicas of the primary. */
async function followers(): Promise<number> {
  return Number((await replicationOf(primary)).get('connected_slaves'));
}

test('a lock that is passed on by message waits for the replicas as well', async () => {
  locks = await connect(primary.url, { replicas: 2 });
  const other = await connect(primary.url, { replicas: 2 });
  try {
    const held = await other.acquire('item');
    const waiting = locks.acquire('item', { wait: 20_000 });
    await until(
      async () => (await primary.admin.zcard('{lock:item}:queue')) === 1,
      'somebody in the wait queue',
    );
    replicas[0]?.pause();
    assert.ok(await held.release());
    await assert.rejects(waiting, { serverCode: 'NOREPLICAS' });
    await until(() => isFree('item'), 'the lock to be given back');
    replicas[0]?.resume();
    await inSync();
    const next = await locks.acquire('item');
    assert.ok(next.fence > held.fence);
    assert.equal(await replicas[0]?.admin.get('lock:item'), next.token);
    await next.release();
  } finally {
    await other.close();
  }
});

test('many locks at once share their waits', async () => {
  locks = await connect(primary.url, { replicas: 2 });
  const before = Number(/calls=(\d+)/.exec(await waits())?.[1] ?? 0);
  const names = Array.from({ length: 200 }, (_, index) => `item:${index}`);
  const held = await Promise.all(names.map((name) => locks?.acquire(name)));
  const calls = Number(/calls=(\d+)/.exec(await waits())?.[1] ?? 0) - before;
  assert.ok(calls >= 1 && calls < 100, `${calls} WAITs for 200 locks`);
  await Promise.all(held.map((lock) => lock?.release()));
});

/** The server's statistics of WAIT. */
async function waits(): Promise<string> {
  const stats = await primary.admin.info('commandstats');
  return stats.split('\r\n').find((line) => line.startsWith('cmdstat_wait:')) ?? '';
}

test('a caller who gives up while the replicas are asked leaves nothing behind', async () => {
  locks = await connect(primary.url, { replicas: 2 });
  await (await locks.acquire('item')).release();
  replicas[0]?.pause();
  const cancel = new AbortController();
  const taking = locks.acquire('item', { signal: cancel.signal });
  await until(async () => !(await isFree('item')), 'the grant');
  cancel.abort(new Error('enough'));
  await assert.rejects(taking, /enough/);
  await until(() => isFree('item'), 'the lock to be given back');
  replicas[0]?.resume();
});

test('a connection that breaks while the replicas are asked is made up for', async () => {
  locks = await connect(primary.url, { replicas: 2 });
  await (await locks.acquire('item')).release();
  let lock: Lock | undefined;
  // On a busy machine the second that the replicas have may be over ahead of the break.
  while (lock === undefined) {
    replicas[0]?.pause();
    const taking = locks
      .acquire('item', { wait: 20_000 })
      .catch((error: { serverCode: string }) => {
        assert.equal(error.serverCode, 'NOREPLICAS');
        return undefined;
      });
    await until(async () => !(await isFree('item')), 'the grant');
    await primary.killClients();
    replicas[0]?.resume();
    lock = await taking;
  }
  assert.ok(lock.held);
  assert.equal(await primary.admin.get('lock:item'), lock.token);
  await lock.release();
});

test('where there are no replicas to ask the option is refused', async () => {
  for (const target of ['memory:', { cluster: ['redis://127.0.0.1:1'] }]) {
    await assert.rejects(connect(target, { replicas: 1 }), { code: 'ERR_INVALID_ARG_VALUE' });
  }
  for (const replicas of [0, 1.5, -1, 'all', 1001]) {
    await assert.rejects(connect(primary.url, { replicas: replicas as never }), (error: Error) =>
      /options.replicas/.test(error.message),
    );
  }
});
