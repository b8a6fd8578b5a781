/** A waiter keeps its position in the queue when its connection breaks. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { cutOff, listens, quiet, untilQueued } from '../../support/crew.js';
import { closeManagers, connect, type Lock, type LockManager } from '../../support/holdfast.js';
import { FaultProxy } from '../../support/proxy.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

let server: RedisServer;
let proxy: FaultProxy;

beforeEach(async () => {
  server = await RedisServer.start();
  proxy = await FaultProxy.start(server.port);
});

afterEach(async () => {
  await closeManagers();
  await quiet(server);
  await proxy.stop();
  await server.stop();
});

const join = (who: string, url = server.url) =>
  connect(url, { clientName: who, commandTimeout: 1_000 });

function take(
  manager: LockManager,
  label: string,
  mode: 'exclusive' | 'shared' = 'exclusive',
): Promise<Lock> {
  return manager.acquire('x', { label, ttl: 20_000, wait: 60_000, mode });
}

interface Line {
  readonly b: LockManager;
  readonly first: Lock;
  readonly second: Promise<Lock>;
  readonly third: Promise<Lock>;
}

/** a holds the lock, b and c wait for it in this order; b connects to this URL, and a and c use this mode. */
async function line(urlOfB: string, mode?: 'shared'): Promise<Line> {
  const [a, b, c] = [await join('a'), await join('b', urlOfB), await join('c')];
  const first = await take(a, 'a', mode);
  const second = take(b, 'b');
  await untilQueued(server, 'x', ['b']);
  const third = take(c, 'c', mode);
  await untilQueued(server, 'x', ['b', 'c']);
  return { b, first, second, third };
}

/** Ends the connection of the only manager behind the proxy, which calls itself `b`, and lets it make no other. */
async function keepAway(): Promise<void> {
  proxy.refuse = true;
  proxy.cut();
  await until(
    async () => !String(await server.admin.client('LIST')).includes('name=b '),
    'the cut',
  );
}

/** Whether the lock is b's, for the claim for which a waiter is waited for that no message reaches. */
async function isKeptForB(b: LockManager): Promise<boolean> {
  const [value, left] = await Promise.all([
    server.admin.get('lock:x'),
    server.admin.pttl('lock:x'),
  ]);
  return value?.startsWith(`hf1.${b.clientId}.`) === true && left <= 3_000;
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

/** Releases the lock while b is away, and lets b connect again: it is served before c. */
async function servesBFirst({ b, first, second, third }: Line): Promise<void> {
  await first.release();
  assert.ok(await isKeptForB(b), 'the lock waits for b');
  proxy.refuse = false;
  await listens(server, 'b');
  const isInTime = await isKeptForB(b);
  const order = await turns(['b', second], ['c', third]);
  // On a machine that is too busy b may be back too late.
  if (isInTime) assert.deepEqual(order, ['b', 'c']);
}

test('CLIENT KILL of a waiter: it is granted before those behind it', async () => {
  const { b, first, second, third } = await line(server.url);
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

test('a waiter that connects again is served before those behind it', async () => {
  const waiting = await line(proxy.url);
  await keepAway();
  await servesBFirst(waiting);
});

test('readers do not overtake a writer that connects again', async () => {
  const waiting = await line(proxy.url, 'shared');
  await keepAway();
  assert.equal(await cutOff(server, 'c'), 1);
  await until(
    async () => (await server.admin.hexists('{lock:x}:waiters', 'unreached')) === 1,
    'c to ask again and to find b away',
  );
  assert.equal(await server.admin.zcard('{lock:x}:shared'), 2, 'one share and its fence');
  await servesBFirst(waiting);
});

test('a waiter that stays away is passed over, but keeps its place', async () => {
  const { first, second, third } = await line(proxy.url);
  await keepAway();
  await first.release();
  const held = await third;
  const fourth = take(await join('d'), 'd');
  await untilQueued(server, 'x', ['d']);
  proxy.refuse = false;
  await untilQueued(server, 'x', ['b', 'd']);
  await listens(server, 'b');
  const order = turns(['b', second], ['d', fourth]);
  await held.release();
  assert.deepEqual(await order, ['b', 'd']);
});
