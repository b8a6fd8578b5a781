/** The server ends, forgets, refuses, or is busy. */

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, createServer, connect as dial } from 'node:net';
import { afterEach, beforeEach, test } from 'node:test';
import { connect, type Lock, type LockManager, openOperations } from '../support/holdfast.js';
import { RedisServer, serverVersion } from '../support/server.js';
import { sleep, until } from '../support/wait.js';

let server: RedisServer;
let locks: LockManager;

beforeEach(async () => {
  server = await RedisServer.start();
  locks = await connect(server.url, { commandTimeout: 1_000 });
});

afterEach(async () => {
  await locks.close();
  assert.equal(openOperations(), 0);
  await server.stop();
});

/** The refusal that a caller must see, whole. */
function refusal(serverCode: string, advice: RegExp, key = 'lock:a') {
  return (error: Record<string, unknown>) => {
    assert.equal(error['name'], 'LockServerError', String(error['stack']));
    assert.equal(error['code'], 'ERR_LOCK_SERVER');
    assert.equal(error['serverCode'], serverCode);
    assert.equal(error['key'], key);
    assert.match(String(error['message']), advice);
    assert.match(String(error['message']), /127\.0\.0\.1/);
    return true;
  };
}

async function works(): Promise<void> {
  const lock = await locks.acquire('a', { wait: 20_000 });
  assert.equal(await lock.release(), true);
}

/** Counters that other code has raised: too far ahead of the clock by little, and to numbers that are not exact. */
const RAISED = [(Date.now() + 366 * 86_400_000) * 1_000, 8_900_000_000_000_000, 2 ** 53];

for (const raised of RAISED)
  test(`a fence counter of ${raised}: an error of every request for a lock, and of no other`, async () => {
    const fence = 'holdfast:fence';
    let disconnects = 0;
    locks.on('disconnect', () => disconnects++);
    const lock = await locks.acquire('a');
    const others = await Promise.all([1, 2, 3].map((i) => locks.acquire(`other:${i}`)));
    const waiting = locks.acquire('a', { wait: 20_000 });
    await until(async () => (await server.admin.zcard('{lock:a}:queue')) === 1, 'the waiter');
    const shared = await locks.acquire('shared', { mode: 'shared' });
    const permit = await locks.acquire('permit', { mode: 'shared', limit: 1 });
    const writer = locks.acquire('shared', { wait: 20_000 });
    const next = locks.acquire('permit', { mode: 'shared', limit: 1, wait: 20_000 });
    await until(
      async () => (await server.admin.exists('{lock:shared}:queue', '{lock:permit}:queue')) === 2,
      'the waiters',
    );
    await server.admin.set(fence, String(raised), 'PX', 60_000);
    const refused = refusal('FENCE', /raised this fence counter.*: delete the key/, fence);
    // They find out when they ask the next time, whether the lock is free by then or not.
    assert.equal(await shared.release(), true);
    assert.equal(await permit.release(), true);
    await Promise.all([waiting, writer, next].map((waiter) => assert.rejects(waiter, refused)));
    const late = locks.acquire('a', { wait: 20_000 });
    await until(async () => (await server.admin.zcard('{lock:a}:queue')) === 1, 'the late waiter');
    assert.equal(await lock.release(), true);
    await assert.rejects(late, refused);
    const gone = async () => (await server.admin.keys('{lock:*}:queue')).length === 0;
    await until(gone, 'the queues to end');
    for (const ask of [
      () => locks.acquire('a'),
      () => locks.tryAcquire('a'),
      () => locks.acquire('a', { mode: 'shared' }),
      () => locks.acquire('a', { mode: 'shared', limit: 3 }),
      () => locks.acquire('a', { steal: true }),
      () => locks.tryAcquire(['b', 'a']),
      () => locks.forceRelease('a'),
      () => locks.acquire('b'),
    ]) {
      await assert.rejects(ask(), refused);
    }
    assert.equal(await server.admin.exists('lock:a', 'lock:b'), 0);
    assert.ok(Number(await server.admin.get(fence)) >= raised, 'it is not repaired in secret');
    for (const other of others) {
      await other.extend(60_000);
      assert.equal(await other.release(), true);
    }
    assert.equal(disconnects, 0);
    await server.admin.del(fence);
    const later = await locks.acquire('a', { wait: 20_000 });
    assert.ok(later.fence > lock.fence);
    assert.ok(later.fence < raised);
    assert.equal(await later.release(), true);
  });

test('killed and started again: the next acquire gets its lock', async () => {
  await works();
  await server.kill();
  const pending = locks.acquire('a', { wait: 20_000 });
  await sleep(100);
  await server.start();
  const lock = await pending;
  assert.equal(await lock.release(), true);
});

test('killed: an error in time', async () => {
  await server.kill();
  await assert.rejects(locks.tryAcquire('a'), { code: 'ERR_LOCK_CONNECTION', message: /refused/i });
  await server.start();
  await works();
});

/** One lock of each kind, none of which is renewed, and one that is. */
function ofEachKind(ttl: number): Promise<Lock[]> {
  const kinds = [
    { renew: true },
    { renew: false },
    { renew: false, leaveToExpire: true },
    { renew: false, mode: 'shared' },
    { renew: false, mode: 'shared', limit: 2 },
    { renew: false, leaveToExpire: true, mode: 'shared', limit: 2 },
  ] as const;
  return Promise.all(kinds.map((kind) => locks.acquire(JSON.stringify(kind), { ttl, ...kind })));
}

/** Long before its lease ends, each of these locks is told lost. */
async function allAreLost(held: readonly Lock[]): Promise<void> {
  const reasons = new Map<string, string>();
  locks.on('lost', (lock, { reason }) => reasons.set(lock.name, reason));
  await until(() => held.every((lock) => !lock.held), 'every lock to end');
  await until(() => reasons.size === held.length, 'every loss to be told');
  for (const { name } of held) assert.equal(reasons.get(name), 'expired', name);
}

test('started again without its data: what it had is told lost at once, renewed or not', async () => {
  const held = await ofEachKind(120_000);
  await server.kill();
  const lost = allAreLost(held);
  await server.start();
  await lost;
});

test('FLUSHALL: what it had is told lost at the next third of the lease, renewed or not', async () => {
  const held = await ofEachKind(18_000);
  const lost = allAreLost(held);
  const flushed = performance.now();
  await server.admin.flushall();
  await lost;
  assert.ok(performance.now() - flushed < 12_000, 'before the lease ends');
});

test('SCRIPT FLUSH: nobody notices', async () => {
  const lock = await locks.acquire('a');
  await server.admin.script('FLUSH');
  await lock.extend();
  await server.admin.script('FLUSH');
  assert.equal(await lock.release(), true);
  await server.admin.script('FLUSH');
  const many = Array.from({ length: 300 }, (_, i) => locks.acquire(`flush:${i}`));
  await Promise.all((await Promise.all(many)).map((taken) => taken.release()));
});

test('CLIENT KILL: nobody notices', async () => {
  const lock = await locks.acquire('a');
  await server.killClients();
  await lock.extend();
  await server.killClients();
  assert.equal(await lock.release(), true);
  for (let round = 0; round < 6; round++) {
    const under = Promise.all([1, 2, 3].map((i) => locks.acquire(`kill:${round}:${i}`)));
    await server.killClients();
    await Promise.all((await under).map((taken) => taken.release()));
  }
});

test('CLIENT PAUSE: an error in time, and nothing stays locked', async () => {
  await server.admin.call('CLIENT', 'PAUSE', '3000', 'ALL');
  await assert.rejects(locks.tryAcquire('a', { ttl: 60_000 }), {
    code: 'ERR_LOCK_CONNECTION',
    message: /no answer within \d{4} ms|no connection within/,
  });
  await works();
});

test('stopped and resumed: nothing stays locked', async () => {
  await works();
  server.pause();
  await assert.rejects(locks.tryAcquire('a', { ttl: 60_000 }), { code: 'ERR_LOCK_CONNECTION' });
  server.resume();
  await works();
});

test('LOADING: acquire waits it out, tryAcquire says so', async () => {
  const filler = server.admin.pipeline();
  for (let i = 0; i < 3_000; i++) filler.set(`filler:${i}`, randomBytes(2_000));
  await filler.exec();
  await server.admin.call('SAVE');
  await server.kill();
  // Redis 6 answers nobody while it loads: its clients only see that it takes long.
  const answers = !serverVersion().startsWith('6.');
  const often = answers ? ['--loading-process-events-interval-bytes', '1024'] : [];
  await server.start(['--key-load-delay', '1000', ...often], 'Server initialized');
  const loading = await connect(server.url);
  if (answers) {
    await assert.rejects(loading.tryAcquire('a'), refusal('LOADING', /still loads its data/));
  }
  const lock = await loading.acquire('a', { wait: 20_000 });
  assert.equal(await lock.release(), true);
  await loading.close();
});

test('BUSY: acquire waits it out, tryAcquire says so', async () => {
  await server.admin.config('SET', 'lua-time-limit', '20');
  const stuck = server.client();
  const endless = stuck.eval('while true do end', 0).catch(() => 'killed');
  await until(
    () =>
      server.admin.get('x').then(
        () => false,
        (error: Error) => error.message.startsWith('BUSY'),
      ),
    'the server to be busy',
  );
  await assert.rejects(locks.tryAcquire('a'), refusal('BUSY', /SCRIPT KILL/));
  const pending = locks.acquire('a', { wait: 20_000 });
  await sleep(50);
  await server.admin.script('KILL');
  assert.equal(await endless, 'killed');
  assert.equal(await (await pending).release(), true);
  stuck.disconnect();
});

test('OOM: acquiring is refused with advice, releasing and extending still work', async () => {
  const lock = await locks.acquire('held');
  await server.admin.config('SET', 'maxmemory', '1');
  await assert.rejects(locks.acquire('a'), refusal('OOM', /maxmemory/));
  await lock.extend();
  assert.equal(await lock.release(), true);
  assert.equal(await server.admin.exists('lock:a'), 0);
  await server.admin.config('SET', 'maxmemory', '0');
  await works();
});

test('WRONGTYPE: the error names the key, and nothing is changed', async () => {
  await server.admin.rpush('lock:a', 'x');
  await assert.rejects(locks.acquire('a'), refusal('WRONGTYPE', /key "lock:a".*other data/));
  assert.equal(await server.admin.type('lock:a'), 'list');
  await server.admin.del('lock:a');

  const lock = await locks.acquire('a');
  await server.admin.del('lock:a');
  await server.admin.rpush('lock:a', 'x');
  await assert.rejects(lock.extend(), { code: 'ERR_LOCK_LOST', reason: 'expired' });
  assert.equal(lock.held, false);
  await server.admin.del('lock:a');
});

test('WRONGTYPE under a held lock is its loss: the result of a request is kept', async () => {
  for (const mode of ['exclusive', 'shared'] as const) {
    const lock = await locks.acquire('a', { mode });
    const replace = async () => {
      await server.admin.del('lock:a', '{lock:a}:shared');
      await server.admin.rpush('lock:a', 'x');
    };
    await replace();
    assert.equal(await lock.release(), false);
    await server.admin.del('lock:a');
    const paid = locks.request('a', { mode }, async () => {
      await replace();
      return 'paid';
    });
    await assert.rejects(paid, { code: 'ERR_LOCK_LOST', lock: 'a', result: 'paid' });
    await server.admin.del('lock:a');
  }
});

test('WRONGTYPE at most servers of a quorum is the loss of its lock', async (t) => {
  const servers = await RedisServer.startSeveral(3);
  t.after(() => Promise.all(servers.map((each) => each.stop())));
  const quorum = servers.map(({ url }) => url);
  const several = await connect({ quorum }, { ttl: 1_000, wait: 20_000 });
  const replace = async (count: number) => {
    for (const { admin } of servers.slice(0, count))
      await admin.multi().del('lock:a').rpush('lock:a', 'x').exec();
  };
  const lock = await several.acquire('a');
  await replace(1);
  await lock.extend();
  assert.equal(lock.held, true);
  await replace(2);
  await assert.rejects(lock.extend(), { code: 'ERR_LOCK_LOST', reason: 'expired' });
  assert.equal(lock.held, false);
  assert.equal(await lock.release(), false);
  await several.close();
});

test('WRONGTYPE under a held lock: nothing is left to release, and close does not wait', async () => {
  for (const mode of ['exclusive', 'shared'] as const) {
    const commandTimeout = 20_000;
    const own = await connect(server.url, { prefix: 'own:', commandTimeout });
    await own.acquire('a', { mode });
    await server.admin.del('own:a');
    await server.admin.rpush('own:a', 'x');
    const began = performance.now();
    await own.close();
    assert.ok(performance.now() - began < commandTimeout, 'a hopeless release is not repeated');
    await server.admin.del('own:a');
  }
});

test('WRONGTYPE of the fence: the lock is not taken', async () => {
  const fence = 'holdfast:fence';
  await server.admin.rpush(fence, 'x');
  const refused = refusal('WRONGTYPE', /fences of all locks.*: delete the key/, fence);
  // The plain commands have taken it, so it is given back.
  const free = async () => (await server.admin.exists('lock:a')) === 0;
  await assert.rejects(locks.acquire('a'), refused);
  await until(free, 'the lock to be free', 1_000);
  await server.admin.del(fence);
  await server.admin.set(fence, 'not a number');
  await assert.rejects(locks.acquire('a'), refused);
  await until(free, 'the lock to be free', 1_000);
  const shared = locks.acquire('a', { mode: 'shared' });
  await assert.rejects(shared, refused);
  assert.equal(await server.admin.exists('lock:a'), 0);
});

test('READONLY: a replica refuses, and acquire goes on once it is promoted', async () => {
  await server.admin.call('REPLICAOF', '127.0.0.1', '1');
  await assert.rejects(locks.tryAcquire('a'), refusal('READONLY', /replica/));
  const pending = locks.acquire('a', { wait: 20_000 });
  await server.admin.call('REPLICAOF', 'NO', 'ONE');
  assert.equal(await (await pending).release(), true);
});

test('NOPERM: the error says that the user may not use this key', async () => {
  await server.admin.call('ACL', 'SETUSER', 'poor', 'on', '>pw', '~other:*', '+@all');
  const stranger = await connect(server.url.replace('//', '//poor:pw@'));
  await assert.rejects(stranger.acquire('a'), refusal('NOPERM', /ACL/));
  assert.equal(await server.admin.exists('lock:a'), 0);
  await stranger.close();
});

test('without INFO: fences rise even when data that lost grants comes back', async () => {
  await server.admin.call('ACL', 'SETUSER', 'blind', 'on', '>pw', '~*', '&*', '+@all', '-info');
  const blind = await connect(server.url.replace('//', '//blind:pw@'));
  const fences: number[] = [];
  for (let round = 0; round < 3; round++) {
    const stale = await server.admin.get('holdfast:fence');
    for (let i = 0; i < 3; i++) {
      const lock = await blind.acquire('a');
      fences.push(lock.fence);
      await lock.release();
    }
    if (stale !== null) await server.admin.set('holdfast:fence', stale);
    // Without a history to compare, every connection starts from the server's clock.
    await server.killClients();
  }
  assert.deepEqual(
    fences,
    [...new Set(fences)].sort((a, b) => a - b),
  );
  await blind.close();
});

test('promoted in place while an acquire waits: no fence is issued twice', async () => {
  const other = await connect(server.url);
  for (let round = 0; round < 5; round++) {
    const stale = await server.admin.get('holdfast:fence');
    let last = 0;
    for (let i = 0; i < 5; i++) {
      const lock = await other.acquire('a');
      last = lock.fence;
      await lock.release();
    }
    await server.admin.call('REPLICAOF', '127.0.0.1', '1');
    const pending = locks.acquire('a', { wait: 20_000 });
    await sleep(100);
    await server.admin.call('REPLICAOF', 'NO', 'ONE');
    if (stale !== null) await server.admin.set('holdfast:fence', stale);
    const lock = await pending;
    // Only a retry that came before the stale counter could be put back may have gone on from it.
    assert.ok(lock.fence > last, `${lock.fence} after ${last}`);
    await lock.release();
  }
  await other.close();
});

test('a server without HELLO: a wrong login is refused, and no password is shown', async () => {
  const old = await RedisServer.start({ args: ['--rename-command', 'HELLO', ''] });
  const url = old.url.replace('//', '//me:s3cret-word@');
  await assert.rejects(connect(url), (error: Error & { serverCode?: string }) => {
    assert.equal(error.serverCode, 'WRONGPASS');
    assert.ok(!String(error.stack).includes('s3cret-word'), error.message);
    return true;
  });
  await old.stop();
});

test('NOAUTH and a wrong password: refused at connect, and no password is shown', async () => {
  await server.admin.config('SET', 'requirepass', 'right-password');
  const where = `127.0.0.1:${server.port}`;
  await assert.rejects(connect(`redis://${where}`), (error: Record<string, unknown>) => {
    assert.equal(error['code'], 'ERR_LOCK_SERVER');
    assert.equal(error['serverCode'], 'NOAUTH');
    assert.match(String(error['message']), /username and password/);
    return true;
  });
  await assert.rejects(
    connect(`redis://:wrong-password@${where}`),
    (error: Record<string, unknown>) => {
      assert.equal(error['code'], 'ERR_LOCK_SERVER');
      assert.equal(error['serverCode'], 'WRONGPASS');
      assert.ok(!`${error['stack']}`.includes('wrong-password'));
      return true;
    },
  );
});

test('a password that changes: an error that says so, and a lock once it is mended', async () => {
  await server.admin.config('SET', 'requirepass', 'new');
  await server.killClients();
  await assert.rejects(locks.acquire('a', { wait: 600 }), {
    code: 'ERR_LOCK_SERVER',
    message: /NOAUTH/,
  });
  const admin = server.client({ password: 'new' });
  await admin.config('SET', 'requirepass', '');
  admin.disconnect();
  await works();
});

test('a Redis older than 6.2: refused at connect, with its version', async () => {
  // The server itself is a real one; only what it says of its version is older.
  const older = createServer((client) => {
    const upstream = dial(server.port, '127.0.0.1');
    const version = /redis_version:\d+\.\d+\.\d+/;
    upstream.on('data', (chunk) => {
      const text = chunk
        .toString('latin1')
        .replace(version, (told) => told.replace(/\d.*/, olderOf));
      client.write(Buffer.from(text, 'latin1'));
    });
    client.pipe(upstream);
    for (const socket of [client, upstream]) {
      socket
        .on('error', () => {})
        .on('close', () => [client, upstream].map((end) => end.destroy()));
    }
  });
  await once(older.listen(0, '127.0.0.1'), 'listening');
  const { port } = older.address() as AddressInfo;
  await assert.rejects(connect(`redis://127.0.0.1:${port}`), {
    name: 'LockServerError',
    serverCode: 'VERSION',
    message: /says VERSION 6\.0\.\d+; holdfast needs Redis 6\.2 or newer, or Valkey: upgrade/,
  });
  older.close();
});

/** An older version that is written in as many bytes. */
function olderOf(version: string): string {
  return `6.0.${'16000'.slice(0, version.length - 4)}`;
}
