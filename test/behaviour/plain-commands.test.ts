/** What a lock costs the server: plain commands while nobody else wants it, scripts otherwise. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { untilQueued } from '../support/crew.js';
import { connect, type LockManager } from '../support/holdfast.js';
import { commandsKnownTo } from '../support/least-rights.js';
import { FaultProxy } from '../support/proxy.js';
import { RedisServer } from '../support/server.js';

let server: RedisServer;
let proxy: FaultProxy;
let here: LockManager;
let there: LockManager;

before(async () => {
  server = await RedisServer.start();
  proxy = await FaultProxy.start(server.port);
  // Round trips of milliseconds: a lock that is released at once was held for less than a few of them, whatever else runs here.
  proxy.delayMs = 10;
  here = await connect(`redis://127.0.0.1:${proxy.port}`);
  there = await connect(server.url);
  // The first lock begins the fence counter and brings the scripts along.
  await (await here.acquire('first')).release();
});

after(async () => {
  await Promise.all([here.close(), there.close()]);
  await proxy.stop();
  await server.stop();
});

/** How often clients and scripts run each command during `work`. */
async function commandsOf(work: () => Promise<void>): Promise<Record<string, number>> {
  await server.admin.config('RESETSTAT');
  await work();
  const stats = await server.admin.info('commandstats');
  const calls = stats.matchAll(/^cmdstat_(\w+):calls=(\d+)/gm);
  const own = new Set(['config', 'info', 'time', 'ping']);
  const counted = [...calls].map(([, name = '', count]) => [name, Number(count)] as const);
  return Object.fromEntries(counted.filter(([name]) => !own.has(name)));
}

/** How a server compares and deletes: by a command of its own, or by a script. */
async function deletion(pairs: number): Promise<Record<string, number>> {
  const about = await server.admin.info('server');
  const version = (field: string) => Number(new RegExp(`${field}:(\\d+\\.\\d+)`).exec(about)?.[1]);
  if (version('valkey_version') >= 9) return { delifeq: pairs };
  if (Number.isNaN(version('valkey_version')) && version('redis_version') >= 8.4) {
    return { delex: pairs };
  }
  return { evalsha: pairs, get: pairs, del: pairs };
}

test('a name that is used for the first time costs three plain commands and a compare-and-delete', async () => {
  const commands = await commandsOf(async () => {
    for (let order = 0; order < 10; order++) {
      await (await here.acquire(`order:${order}`)).release();
    }
  });
  assert.deepEqual(commands, { set: 10, incrby: 10, mget: 10, ...(await deletion(10)) });
});

test('a lock that was held is asked for by the script, until it is found free', async () => {
  const lock = await here.acquire('wanted');
  const waiting = there.acquire('wanted', { label: 'there' });
  await untilQueued(server, 'wanted', ['there']);
  await lock.release();
  await (await waiting).release();
  const { mget, zadd } = await commandsOf(async () => {
    for (let turn = 0; turn < 2; turn++) await (await there.acquire('wanted')).release();
  });
  assert.equal(mget, 1, 'only the second time');
  assert.equal(zadd, undefined, 'nobody waited');
});

test('what the server does not delete by its own command any more, the script releases', async (t) => {
  const own = await commandsKnownTo(server, 'delex', 'delifeq');
  await server.admin.call('ACL', 'SETUSER', 'app', 'on', '>p', '~*', '&*', '+@all');
  const locks = await connect(proxy.url.replace('//', '//app:p@'));
  t.after(() => locks.close());
  for (const mode of ['exclusive', 'shared'] as const) {
    const lock = await locks.acquire('denied', { mode });
    await server.admin.call('ACL', 'SETUSER', 'app', ...own.map((name) => `-${name}`));
    assert.equal(await lock.release(), true);
    assert.equal(await server.admin.exists('lock:denied'), 0);
    await server.admin.call('ACL', 'SETUSER', 'app', '+@all');
  }
  const lock = await locks.acquire('replaced');
  await server.admin.del('lock:replaced');
  await server.admin.lpush('lock:replaced', 'of other code');
  assert.equal(await lock.release(), false);
});
