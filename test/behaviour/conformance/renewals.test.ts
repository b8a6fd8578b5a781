/** Renewals on each server at hand: by its own command where it has that, and what each of them may not do. */

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { closeManagers, connect, type Lock, type LockManager } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { otherServers, serverHosts } from './servers.js';

const TTL = 600;
const hosts = [...serverHosts(), ...otherServers()].filter(({ user }) => user === undefined);

for (const { binary, name } of hosts) {
  describe(`renewals on ${name}`, () => {
    const server = new RedisServer({ binary });
    before(() => server.startOnFreePort());
    after(async () => {
      await closeManagers();
      await server.stop();
    });

    test('three renewals keep a lock, by one command each', async () => {
      const locks = await connect(server.url);
      const lock = await locks.acquire('kept', { ttl: TTL });
      const native = await hasCommand(server);
      const calls = await callsOf(server);
      const renewed = await renewals(locks, 3);
      const now = await callsOf(server);
      const used = native
        ? now.set - calls.set
        : now.evalsha + now.eval - calls.evalsha - calls.eval;
      assert.ok(used >= renewed, `${used} commands for ${renewed} renewals`);
      if (native) assert.equal(now.evalsha, calls.evalsha, 'no script');
      assert.ok(lock.held && (await server.admin.pttl('lock:kept')) > 0);
      await lock.release();
      assert.equal(await server.admin.exists('lock:kept'), 0);
    });

    test('a lease that was extended is not shortened', async () => {
      const locks = await connect(server.url);
      const lock = await locks.acquire('extended', { ttl: TTL });
      await renewals(locks, 1);
      await lock.extend(TTL * 3);
      const asked = locks.stats().requests;
      await until(() => locks.stats().requests > asked, 'the next request about it');
      const left = await server.admin.pttl('lock:extended');
      assert.ok(left >= lock.remaining - 1, `${left} ms left of ${lock.remaining}`);
      await renewals(locks, 3);
      assert.ok(lock.held);
      await lock.release();
    });

    test('a lock that others wait for is kept', async () => {
      const [locks, others] = [await connect(server.url), await connect(server.url)];
      const lock = await locks.acquire('awaited', { ttl: TTL });
      const next = others.acquire('awaited', { ttl: TTL });
      const marked = async () => (await server.admin.get('lock:awaited'))?.endsWith('+') === true;
      await until(marked, 'the mark');
      await renewals(locks, 3);
      assert.ok(lock.held);
      await lock.release();
      await renewals(others, 3);
      await (await next).release();
    });

    test('what is another’s, or gone, is not renewed', async () => {
      const ways: Record<string, (name: string) => Promise<unknown>> = {
        stolen: async (name) =>
          (await connect(server.url)).acquire(name, { ttl: 60_000, steal: true }),
        replaced: (name) => server.admin.set(`lock:${name}`, 'other code', 'PX', 60_000),
        deleted: (name) => server.admin.del(`lock:${name}`),
        flushed: () => server.admin.flushall(),
      };
      for (const [name, take] of Object.entries(ways)) {
        const locks = await connect(server.url);
        const lock = await locks.acquire(name, { ttl: TTL });
        await renewals(locks, 1);
        await take(name);
        const value = await server.admin.get(`lock:${name}`);
        await lost(lock);
        assert.equal(await server.admin.get(`lock:${name}`), value, name);
        const left = await server.admin.pttl(`lock:${name}`);
        assert.ok(value === null ? left === -2 : left > TTL, `${name}: ${left} ms left`);
      }
    });

    test('without the right to it, and without memory, the script renews', async () => {
      await server.admin.call('ACL', 'SETUSER', 'app', 'on', '>p', '~*', '&*', '+@all');
      const locks = await connect(server.url.replace('//', '//app:p@'));
      const lock = await locks.acquire('denied', { ttl: TTL });
      await renewals(locks, 1);
      await server.admin.call('ACL', 'SETUSER', 'app', '-set');
      await renewals(locks, 3);
      await server.admin.call('ACL', 'SETUSER', 'app', '+set');
      assert.ok(lock.held);

      const more = await connect(server.url);
      const full = await more.acquire('full', { ttl: TTL });
      await server.admin.config('SET', 'maxmemory', '1');
      try {
        await renewals(more, 3);
        assert.ok(full.held && lock.held);
      } finally {
        await server.admin.config('SET', 'maxmemory', '0');
      }
    });
  });
}

/** Waits for so many renewals more. Returns how many there were. */
async function renewals(locks: LockManager, count: number): Promise<number> {
  const { renewals } = locks.stats();
  await until(() => locks.stats().renewals >= renewals + count, `${count} renewals`);
  return locks.stats().renewals - renewals;
}

async function lost(lock: Lock): Promise<void> {
  await until(() => !lock.held, 'the loss');
}

/** Whether the server sets a key if it is equal. */
async function hasCommand(server: RedisServer): Promise<boolean> {
  const answer = server.admin.call('SET', 'holdfast:probe', '-', 'IFEQ', '-', 'PX', '1');
  return await answer.then(
    () => true,
    () => false,
  );
}

/** How often the server has run these commands. */
async function callsOf(
  server: RedisServer,
): Promise<{ set: number; evalsha: number; eval: number }> {
  const info = await server.admin.info('commandstats');
  const of = (name: string) =>
    Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(info)?.[1] ?? 0);
  return { set: of('set'), evalsha: of('evalsha'), eval: of('eval') };
}
