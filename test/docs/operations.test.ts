/** The commands of docs/operations.md. test/behaviour/acl.test.ts shows that its ACL rule suffices. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { untilQueued } from '../support/crew.js';
import { connect } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';
import type { Block } from './blocks.js';
import { runPage } from './run-page.js';

let server: RedisServer;

before(async () => {
  server = await RedisServer.start();
});

after(() => server?.stop());

/** Sends each line, and answers the replies. */
async function send(block: Block): Promise<unknown[]> {
  const answers: unknown[] = [];
  for (const line of block.code.trim().split('\n')) {
    const [command = '', ...args] = line.split(' ');
    answers.push(await server.admin.call(command, ...args));
  }
  return answers;
}

async function makeUser(block: Block): Promise<void> {
  assert.deepEqual(await send(block), ['OK']);
  const url = server.url.replace('//', '//holdfast:password@');
  await using locks = await connect(url);
  await (await locks.acquire('item:42')).release();
}

/** A lock with a waiter in its queue looks as the page says. */
async function look(block: Block): Promise<void> {
  await using locks = await connect(server.url);
  await using others = await connect(server.url);
  const lock = await locks.acquire('item:42', { label: 'shop' });
  const waiting = others.acquire('item:42', { label: 'next' });
  await untilQueued(server, 'item:42', ['next']);
  const [value, lease, line, shares, fence] = await send(block);
  assert.match(String(value), /^hf1\.[0-9a-f]+\.\d+\.shop\+$/);
  assert.ok(Number(lease) > 0);
  assert.equal((line as string[]).length, 1);
  assert.deepEqual(shares, []);
  assert.ok(Number(fence) >= lock.fence);
  await lock.release();
  await (await waiting).release();
}

/** The commands that the server has run for others than the test. */
async function commandsRun(): Promise<number> {
  const calls = Array.from(
    (await server.admin.info('commandstats')).matchAll(/^cmdstat_(?!info)\S+:calls=(\d+)/gm),
    ([, count]) => Number(count),
  );
  return calls.reduce((sum, each) => sum + each, 0);
}

test('a manager that has held and waited, and has no lock any more, sends nothing', async () => {
  await using locks = await connect(server.url, { ttl: 300 });
  const held = await locks.acquire('item:42');
  const waiting = locks.acquire('item:42');
  const renewing = await commandsRun();
  await until(async () => (await commandsRun()) > renewing + 2, 'its renewals');
  await held.release();
  assert.equal(await (await waiting).release(), true);
  const before = await commandsRun();
  // Ten times as long as it takes to renew a lease.
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  assert.equal(await commandsRun(), before);
});

const LOCKS = 5_000;

async function memory(): Promise<number> {
  return Number(/used_memory:(\d+)/.exec(await server.admin.info('memory'))?.[1]);
}

test('a lock costs about the memory that the page says', async () => {
  await using locks = await connect(server.url);
  const names = Array.from({ length: LOCKS }, (_, index) => `item:${index}`);
  const takeAll = () => Promise.all(names.map((name) => locks.acquire(name)));
  // The buffers of the connections are not counted.
  await Promise.all((await takeAll()).map((lock) => lock.release()));
  const before = await memory();
  const held = await takeAll();
  const perHeld = ((await memory()) - before) / LOCKS;
  await Promise.all(held.map((lock) => lock.release()));
  // Other versions of the server differ by some tens of bytes.
  assert.ok(perHeld > 100 && perHeld < 300, `180 bytes for a lock that is held, not ${perHeld}`);
  assert.deepEqual(await server.admin.keys('*'), ['holdfast:fence']);
  const counter = Number(await server.admin.call('MEMORY', 'USAGE', 'holdfast:fence'));
  assert.ok(counter < 100, `60 bytes for the fence counter, not ${counter}`);
  // The server shrinks its table of keys by and by.
  const perReleased = async () => ((await memory()) - before) / LOCKS;
  await until(async () => (await perReleased()) < 30, 'the memory of released locks to be free');
});

test('on a quorum a released lock costs about the memory that the page says', async () => {
  const servers = await RedisServer.startSeveral(3);
  try {
    const options = { longestLease: 0 };
    await using locks = await connect({ quorum: servers.map(({ url }) => url) }, options);
    locks.on('warning', () => {});
    await (await locks.acquire('item:42')).release();
    // A majority suffices for a lock and for its release, and the third server may miss either.
    const key = '{lock:item:42}:fence';
    const hasItAlone = async (server: RedisServer) =>
      Object.keys(await server.keyspace()).join() === key;
    const left = async () => {
      const have = await Promise.all(servers.map(hasItAlone));
      return servers.find((_, i) => have[i]);
    };
    await until(async () => (await left()) !== undefined, 'its counter alone');
    const server = await left();
    const { [key]: counter } = (await server?.keyspace()) ?? {};
    assert.ok((counter?.ttl ?? 0) > 86_000_000 && (counter?.ttl ?? 0) <= 86_400_000);
    const usage = await server?.admin.call('MEMORY', 'USAGE', key);
    // The expiry, and its entry, come on top.
    assert.ok(Number(usage) < 165, `165 bytes at most, not ${usage}`);
  } finally {
    await Promise.all(servers.map((each) => each.stop()));
  }
});

runPage('docs/operations.md', { otherwise: { 'ACL SETUSER': makeUser, 'GET lock:item:42': look } });
