/** A manager that connects by itself. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { connectLazily, LockManager } from 'holdfast';
import { measureLocks } from 'holdfast/prometheus';
import { Registry } from 'prom-client';
import { RedisServer } from '../support/server.js';

const limited = { timeout: 20_000 };

test('the first call connects; the events of before are heard', limited, async () => {
  const locks: LockManager = connectLazily('memory:lazy');
  assert.ok(locks instanceof LockManager);
  const heard: string[] = [];
  assert.equal(
    locks.on('close', () => heard.push('close')),
    locks,
  );
  locks.once('lost', (lock) => heard.push(lock.name));
  assert.deepEqual([locks.clientId, locks.listenerCount('lost')], ['', 1]);
  for (const [name, value] of Object.entries(locks.stats())) {
    assert.deepEqual(value, Array.isArray(value) ? [] : 0, name);
  }
  const [first, second] = await Promise.all([locks.acquire('a'), locks.acquire('b')]);
  assert.equal(locks.stats().held, 2);
  assert.notEqual(locks.clientId, '');
  await locks.acquire('a', { steal: true });
  assert.deepEqual([first.held, second.held, heard], [false, true, ['a']]);
  assert.equal(await locks.request('c', () => 42), 42);
  assert.equal(await locks.tryAcquire('b'), null);
  for await (const { held } of locks.queryPages({ name: 'b' })) assert.equal(held.length, 1);
  await locks.close();
  assert.deepEqual(heard, ['a', 'close']);
  await assert.rejects(locks.acquire('a'), { name: 'LockClosedError' });
});

test('what asks nothing of the server answers before there is a connection', limited, async () => {
  const locks = connectLazily('redis://127.0.0.1:1') as LockManager & Record<string, () => unknown>;
  assert.throws(() => locks['prepare']?.(), {
    name: 'LockConnectionError',
    message: /^prepare\(\) was called before this manager has connected/,
  });
  assert.deepEqual(locks['heldSemaphores']?.(), []);
  assert.equal(locks['cancelPrepared']?.(), undefined);
  assert.equal(locks['warn']?.(), undefined);
  const [before, now, after] = [performance.now(), locks['now']?.(), performance.now()];
  assert.ok(before <= Number(now) && Number(now) <= after, `${now}`);
  const { connected, warnings, clientId } = locks;
  assert.deepEqual([connected, warnings, clientId], [false, new Map(), '']);
  await locks.close();
});

test(
  'listeners move to the connected manager: each in its order, and once where it is so',
  limited,
  async () => {
    const locks = connectLazily('memory:');
    const heard: string[] = [];
    const removed = () => heard.push('removed');
    locks.on('lost', () => heard.push('first'));
    locks.once('lost', () => heard.push('once'));
    locks.on('lost', removed);
    assert.equal(locks.off('lost', removed), locks);
    locks.on('lost', () => heard.push('last'));
    assert.equal(locks.listenerCount('lost'), 3);
    for (const name of ['a', 'b']) {
      await locks.acquire(name);
      await locks.acquire(name, { steal: true });
    }
    assert.deepEqual(heard, ['first', 'once', 'last', 'first', 'last']);
    assert.equal(locks.listenerCount('lost'), 2);
    assert.equal(
      locks.on('lost', () => {}),
      locks,
    );
    assert.equal(Reflect.get(locks, 'connected'), true);
    await locks.close();
  },
);

test('each method and property of a manager is there before and after', limited, async () => {
  const locks = connectLazily('memory:');
  const own = Object.getOwnPropertyNames(LockManager.prototype).filter(
    (name) => name !== 'constructor',
  );
  const lazy = Object.getPrototypeOf(locks) as object;
  assert.deepEqual(
    own.filter((name) => !Object.hasOwn(lazy, name)),
    [],
  );
  await locks[Symbol.asyncDispose]();
});

test('it is measured from before its connection on', limited, async () => {
  const locks = connectLazily('memory:');
  const registry = new Registry();
  measureLocks(locks, { registry });
  assert.match(await registry.metrics(), /holdfast_acquired_total\{manager="default"\} 0/);
  assert.match(inspect(locks), /LockManager/);
  await locks.request('a', () => {});
  assert.match(await registry.metrics(), /holdfast_acquired_total\{manager="default"\} 1/);
  assert.match(await registry.metrics(), /holdfast_acquire_seconds_count\{[^}]*\} 1/);
  await locks.close();
  assert.doesNotMatch(await registry.metrics(), /manager="default"/);
});

test('Redis is down at first: each call rejects until it is there', limited, async () => {
  const server = await RedisServer.start();
  await server.kill();
  const locks = connectLazily(server.url, { connectTimeout: 500 });
  await assert.rejects(locks.acquire('a'), { name: 'LockConnectionError' });
  await assert.rejects(locks.acquire('a'), { name: 'LockConnectionError' });
  await server.start();
  assert.equal((await locks.acquire('a')).held, true);
  await locks.close();
  await server.stop();
});

test('a bad URL rejects the first call', limited, async () => {
  const locks = connectLazily('rediss//wrong');
  await assert.rejects(locks.acquire('a'), { name: 'TypeError' });
  await locks.close();
});

test('close before the first call: nothing connects', limited, async () => {
  const locks = connectLazily('redis://127.0.0.1:1');
  let closed = 0;
  locks.on('close', () => {
    closed += 1;
  });
  await Promise.all([locks.close(), locks.close()]);
  assert.equal(closed, 1);
  await assert.rejects(locks.acquire('a'), { name: 'LockClosedError' });
});

test('close while it connects: the manager is closed', limited, async () => {
  const locks = connectLazily('memory:');
  const acquired = locks.acquire('a').catch((error: Error) => error.name);
  await locks.close();
  await acquired;
  await assert.rejects(locks.acquire('a'), { name: 'LockClosedError' });
});

for (const [kind, load] of [
  ['commonjs', `const { connectLazily } = require('holdfast')`],
  ['module', `import { connectLazily } from 'holdfast'`],
]) {
  test(`in a module (${kind}): a process without a lock ends by itself`, limited, () => {
    const code = `${load}
      const locks = connectLazily('redis://127.0.0.1:1')
      connectLazily('memory:').request('a', (lock) => console.log(lock.held, typeof locks.acquire))`;
    const { stdout, stderr, status } = spawnSync(
      process.execPath,
      [`--input-type=${kind}`, '--eval', code],
      { encoding: 'utf8', timeout: 15_000 },
    );
    assert.deepEqual([stdout, status], ['true function\n', 0], stderr);
  });
}
