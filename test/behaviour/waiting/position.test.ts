/** A waiter keeps its position in the queue when its connection breaks. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { cutOff, listens, quiet, untilQueued } from '../../support/crew.js';
import { connect, type Lock, type LockManager, openOperations } from '../../support/holdfast.js';
import { FaultProxy } from '../../support/proxy.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

let server: RedisServer;
let proxy: FaultProxy;
let managers: LockManager[];

beforeEach(async () => {
  server = await RedisServer.start();
  proxy = await FaultProxy.start(server.port);
  managers = [];
});

afterEach(async () => {
  await Promise.all(managers.map((manager) => manager.close()));
  assert.equal(openOperations(), 0);
  await quiet(server);
  await proxy.stop();
  await server.stop();
});

async function join(who: string, url = server.url): Promise<LockManager> {
  const manager = await connect(url, { clientName: who, commandTimeout: 1_000 });
  managers.push(manager);
  return manager;
}

function take(manager: LockManager, label: string): Promise<Lock> {
  return manager.acquire('x', { label, ttl: 20_000, wait: 60_000 });
}

/** The callers that got the lock, in order; each releases it at once. */
function turns(...waiting: [who: string, acquired: Promise<Lock>][]): Promise<string[]> {
  const order: string[] = [];
  const all = waiting.map(async ([who, acquired]) => {
    const lock = await acquired;
    order.push(who);
    await lock.release();
  });
  return Promise.all(all).then(() => order);
}

test('CLIENT KILL of a waiter: it is granted before those behind it', async () => {
  const [a, b, c] = [await join('a'), await join('b'), await join('c')];
  const first = await take(a, 'a');
  const second = take(b, 'b');
  await untilQueued(server, 'x', ['b']);
  const third = take(c, 'c');
  await untilQueued(server, 'x', ['b', 'c']);
  const order = turns(['b', second], ['c', third]);
  for (let round = 0; round < 5; round++) {
    let back = false;
    b.once('reconnect', () => {
      back = true;
    });
    assert.equal(await cutOff(server, 'b'), 1);
    await until(() => back, 'b to be back');
  }
  await listens(server, 'b');
  await first.release();
  assert.deepEqual(await order, ['b', 'c']);
});

test('a waiter that cannot be reached is passed over, but keeps its place', async () => {
  const [a, b, c, d] = [
    await join('a'),
    await join('b', proxy.url),
    await join('c'),
    await join('d'),
  ];
  const first = await take(a, 'a');
  const second = take(b, 'b');
  await untilQueued(server, 'x', ['b']);
  const third = take(c, 'c');
  await untilQueued(server, 'x', ['b', 'c']);
  proxy.refuse = true;
  proxy.cut();
  await until(
    async () => !String(await server.admin.client('LIST')).includes('name=b '),
    'the cut',
  );
  await first.release();
  const held = await third;
  const fourth = take(d, 'd');
  await untilQueued(server, 'x', ['b', 'd']);
  proxy.refuse = false;
  await listens(server, 'b');
  const order = turns(['b', second], ['d', fourth]);
  await held.release();
  assert.deepEqual(await order, ['b', 'd']);
});

test('a waiter that was away for so long that it was forgotten gets its place again', async () => {
  const [a, b, c, d, e] = [
    await join('a'),
    await join('b', proxy.url),
    await join('c'),
    await join('d'),
    await join('e'),
  ];
  const first = await take(a, 'a');
  const second = take(b, 'b');
  await untilQueued(server, 'x', ['b']);
  const third = take(c, 'c');
  await untilQueued(server, 'x', ['b', 'c']);
  const fourth = take(d, 'd');
  await untilQueued(server, 'x', ['b', 'c', 'd']);
  proxy.refuse = true;
  proxy.cut();
  await until(
    async () => !String(await server.admin.client('LIST')).includes('name=b '),
    'the cut',
  );
  await first.release();
  const heldByC = await third;
  const [unreached] = await server.admin.zrange('{lock:x}:queue', 0, '0');
  await until(async () => {
    const details = await server.admin.hget('{lock:x}:waiters', unreached ?? '');
    const [seconds] = await server.admin.time();
    return Number(details?.split(' ')[0]) < Number(seconds) * 1000;
  }, 'the server to give b up');
  await heldByC.release();
  const heldByD = await fourth;
  const fifth = take(e, 'e');
  await untilQueued(server, 'x', ['e']);
  proxy.refuse = false;
  await untilQueued(server, 'x', ['b', 'e']);
  const order = turns(['b', second], ['e', fifth]);
  await heldByD.release();
  assert.deepEqual(await order, ['b', 'e']);
});
