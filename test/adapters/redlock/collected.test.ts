/** A client that is collected before it ends is no user of a shared connection any more. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Mutex } from 'holdfast/redis-semaphore';
import Redlock, { type Client } from 'holdfast/redlock';
import Redlock4 from 'holdfast/redlock4';
import { Redis } from 'ioredis';
import { until } from '../../support/wait.js';
import { threeServers } from '../../three-servers.js';

const three = threeServers();
const limited = { timeout: 20_000 };
const LONG_MS = 30_000;

/** Nothing but its object keeps it: it has no socket. */
const unconnected = (db = 0) => new Redis(three.server.port, { lazyConnect: true, db });

/** Whether nothing refers to it any more. */
async function isCollected(reference: WeakRef<object>): Promise<boolean> {
  assert.ok(globalThis.gc !== undefined, 'run with --expose-gc');
  await turn();
  globalThis.gc();
  return reference.deref() === undefined;
}

const USES: Record<string, (client: Client) => Promise<void>> = {
  async redlock(client) {
    const redlock = new Redlock([client]);
    await (await redlock.acquire(['a'], LONG_MS)).release();
    await redlock.using(['a'], LONG_MS, async () => {});
    await redlock.acquire(['held for ever'], LONG_MS);
  },
  async redlock4(client) {
    await (await new Redlock4([client]).lock('b', LONG_MS)).unlock();
  },
  async 'redis-semaphore'(client) {
    const mutex = new Mutex(client, 'c');
    await mutex.acquire();
    await mutex.release();
  },
};

for (const [name, use] of Object.entries(USES)) {
  test(`${name}: a client is collected while others use its connection`, limited, async () => {
    const other = new Redlock([three.client()]);
    const lock = await other.acquire(['other'], LONG_MS);
    const used = async () => {
      const client = unconnected();
      await use(client as unknown as Client);
      return new WeakRef(client);
    };
    const reference = await used();
    await until(() => isCollected(reference), 'the client to be collected');
    await lock.release();
    await (await other.acquire(['other'], LONG_MS)).release();
  });
}

test('the connection ends with the last client that is collected', limited, async () => {
  const db = 5;
  const connections = async () => {
    const list = (await three.server.admin.client('LIST')) as string;
    return list.split('\n').filter((line) => line.includes(` db=${db} `)).length;
  };
  const used = async () => {
    const clients = [unconnected(db), unconnected(db)];
    for (const client of clients) {
      const lock = await new Redlock([client as unknown as Client]).acquire(['a'], LONG_MS);
      await lock.release();
    }
    assert.equal(await connections(), 1);
  };
  await used();
  const isEnded = async () => {
    await isCollected(new WeakRef({}));
    return (await connections()) === 0;
  };
  await until(isEnded, 'the connection to end');
});
