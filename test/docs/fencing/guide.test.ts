/**
 * The guide on fencing: it shows files of examples/fencing word for word, links the others, and each of them refuses an
 * owner who comes too late. They run here on a Redis and a PostgreSQL.
 */

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { fencedTransaction, fenceTable } from 'holdfast/fence';
import knex from 'knex';
import { Pool } from 'pg';
import { createClient } from 'redis';
import { connect, type Lock, type LockManager } from '../../support/holdfast.js';
import { Postgres } from '../../support/postgres.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { blocks, FOLDER, links, load, source } from './guide.js';

const TOO_LATE = /a later owner of (item:42|warehouse|the lock) (has been here|was there|has used)/;

let server: RedisServer;
let postgres: Postgres;
let db: Pool;
let redis: ReturnType<typeof createClient>;
let locks: LockManager;
/** Another process, so to speak. */
let others: LockManager;

before(async () => {
  postgres = await Postgres.start();
  server = await RedisServer.start();
  locks = await connect(server.url);
  others = await connect(server.url);
  db = new Pool({ connectionString: postgres.url });
  await db.query(source('schema.sql'));
  redis = createClient({ url: server.url });
  await redis.connect();
});

after(async () => {
  redis?.destroy();
  await db?.end();
  await Promise.all([locks?.close(), others?.close()]);
  await Promise.all([server?.stop(), postgres?.stop()]);
});

beforeEach(async () => {
  await db.query('TRUNCATE stock, fences');
  await db.query('INSERT INTO stock (item, n) VALUES (42, 5), (43, 5)');
  await redis.del('stock:42');
  await redis.hSet('stock:42', 'n', 5);
});

/** What the tests have acquired. */
const acquired: Lock[] = [];

afterEach(async () => {
  await Promise.all(acquired.splice(0).map((lock) => lock.release()));
});

/** Two owners of one lock: the lease of the first has ended, the second has the lock now. */
async function twoOwners(name = 'item:42'): Promise<[Lock, Lock]> {
  const early = await locks.acquire(name, { ttl: 50, renew: false });
  const later = await others.acquire(name);
  acquired.push(later);
  assert.ok(!early.held && later.fence > early.fence);
  return [early, later];
}

async function inStock(item = 42): Promise<unknown> {
  return (await db.query('SELECT n FROM stock WHERE item = $1', [item])).rows[0]?.['n'];
}

/** Twenty buyers of two processes, for five pieces. */
async function twentyBuyers(buy: (locks: LockManager) => Promise<boolean>): Promise<void> {
  const buyers = Array.from({ length: 20 }, (_, i) => buy(i % 2 === 0 ? locks : others));
  const sold = (await Promise.all(buyers)).filter(Boolean);
  assert.equal(sold.length, 5);
}

test('the guide shows the files, word for word, and no other code', () => {
  const shown = new Map<string, string>();
  for (const { language, code } of blocks()) {
    // Sequences of events are no code.
    if (language === 'text') continue;
    const [, file = '', text = ''] = /^(?:\/\/|--) (\S+)\n(.*)$/s.exec(code) ?? [];
    assert.equal(language, file.endsWith('.sql') ? 'sql' : 'js', code);
    shown.set(file, text);
  }
  const linked = links().map((file) => file.replace(/^.*\//, ''));
  const files = readdirSync(FOLDER).filter((file) => file !== 'README.md');
  assert.deepEqual([...new Set([...shown.keys(), ...linked])].sort(), files.sort());
  for (const [file, code] of shown) assert.equal(code, source(file), file);
});

test('PostgreSQL: five of twenty buyers get one of five', async () => {
  const { sell } = await load('row.mjs');
  await twentyBuyers((manager) => sell(manager, db, 42));
  assert.equal(await inStock(), 0);
});

test('PostgreSQL: a late write is refused when the later owner has only read', async () => {
  const { read, write } = await load('row.mjs');
  const [early, later] = await twoOwners();
  assert.equal(await read(db, early, 42), 5);
  assert.equal(await read(db, later, 42), 5);
  await assert.rejects(write(db, early, 42, 4), TOO_LATE);
  await assert.rejects(read(db, early, 42), TOO_LATE);
  await write(db, later, 42, 4);
  assert.equal(await inStock(), 4);
});

test('PostgreSQL: one owner may write several times', async () => {
  const { read, write } = await load('row.mjs');
  await locks.request('item:42', async (lock) => {
    for (const n of [4, 3, 2]) await write(db, lock, 42, n);
    assert.equal(await read(db, lock, 42), 2);
  });
});

test('PostgreSQL: who comes too late, and whose row saw nobody later, does no harm', async () => {
  const { read, write } = await load('row.mjs');
  const [early, later] = await twoOwners();
  await write(db, early, 42, 4);
  assert.equal(await read(db, later, 42), 4, 'it came ahead of whatever the later owner does');
});

test('PostgreSQL: a single statement has an effect once per hold, and none for the late', async () => {
  const { sellOnce } = await load('row.mjs');
  const [early, later] = await twoOwners();
  assert.equal(await sellOnce(db, later, 42), true);
  assert.equal(await sellOnce(db, later, 42), false, 'as if its answer had been lost');
  assert.equal(await sellOnce(db, early, 42), false);
  assert.equal(await inStock(), 4);
});

test('PostgreSQL: a transaction over several rows is refused as a whole', async () => {
  const { move, transact } = await load('transaction.mjs');
  await move(locks, db, 42, 43);
  assert.deepEqual([await inStock(42), await inStock(43)], [4, 6]);
  const [early, later] = await twoOwners('warehouse');
  await transact(db, later, async () => {});
  let ran = false;
  const late = transact(db, early, async () => {
    ran = true;
  });
  await assert.rejects(late, TOO_LATE);
  assert.equal(ran, false);
  const broken = transact(db, later, async (client: Pool) => {
    await client.query('UPDATE stock SET n = 0');
    throw new Error('undone');
  });
  await assert.rejects(broken, /undone/);
  assert.deepEqual([await inStock(42), await inStock(43)], [4, 6]);
});

test('holdfast/fence: a transaction over several rows is refused as a whole, by pg and by Knex', async () => {
  const { move, moveByKnex } = await load('guard.mjs');
  await db.query(fenceTable('postgres'));
  const byKnex = knex({ client: 'pg', connection: postgres.url });
  await move(locks, db, 42, 43);
  await moveByKnex(locks, byKnex, 42, 43);
  assert.deepEqual([await inStock(42), await inStock(43)], [3, 7]);
  const [early, later] = await twoOwners('warehouse');
  await fencedTransaction(db, later, async () => {});
  const paused = { request: async (_name: string, work: (lock: Lock) => unknown) => work(early) };
  await assert.rejects(move(paused, db, 42, 43), TOO_LATE);
  await assert.rejects(moveByKnex(paused, byKnex, 42, 43), { code: 'ERR_LOCK_STALE_FENCE' });
  assert.deepEqual([await inStock(42), await inStock(43)], [3, 7]);
  await byKnex.destroy();
});

test('PostgreSQL: a later owner waits for a transaction that has begun, and sees what it did', async () => {
  const { transact } = await load('transaction.mjs');
  const [early, later] = await twoOwners('warehouse');
  let goOn: (() => void) | undefined;
  const first = transact(db, early, async (client: Pool) => {
    await client.query('UPDATE stock SET n = 1 WHERE item = 42');
    await new Promise<void>((resolve) => {
      goOn = resolve;
    });
  });
  await until(() => goOn !== undefined, 'the first to have written');
  const seen = transact(db, later, async (client: Pool) => {
    return (await client.query('SELECT n FROM stock WHERE item = 42')).rows[0]?.['n'];
  });
  await until(async () => {
    const waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    return (await db.query(waiting)).rows.length === 1;
  }, 'the later owner to wait');
  goOn?.();
  await first;
  assert.equal(await seen, 1);
});

test('PostgreSQL: who is paused in a transaction loses it, and keeps nobody waiting', async () => {
  const { openPool, transact } = await load('transaction.mjs');
  const pool = openPool({
    connectionString: postgres.url,
    idle_in_transaction_session_timeout: 500,
  });
  const [early, later] = await twoOwners('warehouse');
  let wakeUp: (() => void) | undefined;
  const late = transact(pool, early, async (client: Pool) => {
    await client.query('UPDATE stock SET n = 1 WHERE item = 42');
    await new Promise<void>((resolve) => {
      wakeUp = resolve;
    });
    await client.query('UPDATE stock SET n = 6 WHERE item = 43');
  });
  await until(() => wakeUp !== undefined, 'the first to have written');
  await transact(pool, later, async () => {});
  wakeUp?.();
  await assert.rejects(late);
  assert.deepEqual([await inStock(42), await inStock(43)], [5, 5]);
  await pool.end();
});

test('Redis: five of twenty buyers get one of five', async () => {
  const { sell } = await load('redis.mjs');
  await twentyBuyers((manager) => sell(manager, redis, 42));
  assert.equal(await redis.hGet('stock:42', 'n'), '0');
});

test('Redis: a late read or write is refused when the later owner has only read', async () => {
  const { read, write } = await load('redis.mjs');
  const [early, later] = await twoOwners();
  assert.equal(await read(redis, early, 42), 5);
  assert.equal(await read(redis, later, 42), 5);
  await assert.rejects(write(redis, early, 42, 4), TOO_LATE);
  await assert.rejects(read(redis, early, 42), TOO_LATE);
  await write(redis, later, 42, 4);
  assert.deepEqual({ ...(await redis.hGetAll('stock:42')) }, { n: '4', fence: `${later.fence}` });
});

/** Runs the service of the guide; `url` is that of an item of which five are in stock. */
async function withService(use: (url: string) => Promise<void>): Promise<void> {
  const { service } = await load('service.mjs');
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
  try {
    const url = `http://127.0.0.1:${(service.address() as AddressInfo).port}/stock/${count++}`;
    const { status } = await fetch(url, {
      method: 'PUT',
      body: '5',
      headers: { 'If-Match': '"0"' },
    });
    assert.equal(status, 200);
    await use(url);
  } finally {
    await new Promise((resolve) => {
      service.close(resolve);
      service.closeAllConnections();
    });
  }
}
let count = 0;

async function textAt(url: string): Promise<string> {
  return (await fetch(url)).text();
}

test('HTTP: five of twenty buyers get one of five', async () => {
  const { sell } = await load('client.mjs');
  await withService(async (url) => {
    await twentyBuyers((manager) => sell(manager, url));
    assert.equal(await textAt(url), '0');
  });
});

test('HTTP: a late request is answered 412 when the later owner has only read', async () => {
  const { send } = await load('client.mjs');
  await withService(async (url) => {
    const [early, later] = await twoOwners();
    // Paused right after it looked, it does not know of its loss.
    const paused = { name: early.name, fence: early.fence, signal: new AbortController().signal };
    await send(url, paused);
    await send(url, later);
    await assert.rejects(send(url, paused, { method: 'PUT', body: '4' }), TOO_LATE);
    await assert.rejects(send(url, paused), TOO_LATE);
    await assert.rejects(send(url, early), { code: 'ERR_LOCK_LOST' });
    assert.equal(await textAt(url), '5');
    await send(url, later, { method: 'PUT', body: '4' });
    assert.equal(await textAt(url), '4');
  });
});

test('HTTP: what is no fence, and a write without any condition, are refused', async () => {
  await withService(async (url) => {
    const put = async (headers: Record<string, string>) =>
      (await fetch(url, { method: 'PUT', body: '0', headers })).status;
    for (const fence of ['', 'NaN', '-1', '1e9', '99999999999999999']) {
      assert.equal(await put({ Fence: fence }), 400, fence);
    }
    assert.equal(await put({}), 428);
    assert.equal(await put({ 'If-Match': '"7"' }), 412);
    assert.equal(await textAt(url), '5');
  });
});

test('HTTP with versions alone: five of twenty buyers get one of five', async () => {
  const { sell } = await load('versions.mjs');
  await withService(async (url) => {
    await twentyBuyers((manager) => sell(manager, url));
    assert.equal(await textAt(url), '0');
  });
});

test('HTTP with versions alone: the owner of the lock reads again when a late write was first', async () => {
  const { sell } = await load('versions.mjs');
  await withService(async (url) => {
    const real = globalThis.fetch;
    let late = 1;
    globalThis.fetch = async (...args) => {
      // Between the owner's read and its write comes what an earlier owner had under way.
      if (args[1]?.method === 'PUT' && late-- > 0) {
        await real(url, { method: 'PUT', body: '4', headers: { 'If-Match': '"1"' } });
      }
      return real(...args);
    };
    try {
      assert.equal(await sell(locks, url), true);
    } finally {
      globalThis.fetch = real;
    }
    assert.equal(await textAt(url), '3', 'two were sold');
  });
});
