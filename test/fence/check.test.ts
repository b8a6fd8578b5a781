/** What `checkFence` and `fencedTransaction` promise, on real servers. */

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { sql } from 'drizzle-orm';
import { drizzle as drizzleMysql } from 'drizzle-orm/mysql2';
import { drizzle } from 'drizzle-orm/node-postgres';
import {
  checkFence,
  type FenceConnection,
  type FenceTransaction,
  fencedTransaction,
  fenceTable,
  StaleFenceError,
} from 'holdfast/fence';
import knex, { type Knex } from 'knex';
import { createPool as createMariadbPool } from 'mariadb';
import { createPool, type Pool as MysqlPool } from 'mysql2/promise';
import { Client, Pool } from 'pg';
import { DataSource } from 'typeorm';
import { connect, type LockManager } from '../support/holdfast.js';
import { sleep, until } from '../support/wait.js';
import { Servers } from './servers.js';

const NAME = 'item:42';
const [EARLY, LATER] = [
  { name: NAME, fence: 1_800_000_000_000_033 },
  { name: NAME, fence: 1_800_000_000_000_034 },
];
const STALE = {
  name: 'StaleFenceError',
  code: 'ERR_LOCK_STALE_FENCE',
  lock: NAME,
  fence: EARLY.fence,
  seen: LATER.fence,
};

let servers: Servers;
let pool: Pool;
let mysql: MysqlPool;
let locks: LockManager;

before(async () => {
  servers = await Servers.start();
  pool = new Pool({ connectionString: servers.postgres.url });
  mysql = createPool(servers.maria.url);
  locks = await connect('memory:');
});

after(async () => {
  await Promise.all([pool?.end(), mysql?.end(), locks?.close()]);
  await servers?.stop();
});

/** What a test opened. */
const opened: (() => Promise<unknown>)[] = [];

beforeEach(async () => {
  for (const run of [servers.onPostgres, servers.onMysql]) {
    await run.call(servers, 'DELETE FROM holdfast_fences');
    await run.call(servers, 'DELETE FROM stock');
    await run.call(servers, `INSERT INTO stock (item, n) VALUES ('${NAME}', 5)`);
  }
});

afterEach(async () => {
  for (const close of opened.splice(0)) await close();
});

async function inStock(): Promise<number[]> {
  const select = 'SELECT n FROM stock';
  const rows = [...(await servers.onPostgres(select)), ...(await servers.onMysql(select))];
  return rows.map((row) => Number(row['n']));
}

for (const [kind, transact] of Object.entries({
  pg: (lock: typeof EARLY, work: () => Promise<void>) => fencedTransaction(pool, lock, work),
  mysql2: (lock: typeof EARLY, work: () => Promise<void>) => fencedTransaction(mysql, lock, work),
})) {
  test(`${kind}: a smaller fence is refused before the work, an equal and a greater one are not`, async () => {
    let runs = 0;
    const work = async () => {
      runs++;
    };
    await transact(EARLY, work);
    await transact(EARLY, work);
    await transact(LATER, work);
    await assert.rejects(transact(EARLY, work), STALE);
    await assert.rejects(transact(EARLY, work), StaleFenceError);
    await transact(LATER, work);
    await transact({ name: 'another', fence: 1 }, work);
    assert.equal(runs, 5);
  });
}

test('names are one lock each, whatever they contain', async () => {
  const quotes = ["it's", 'a"b', 'a`b', 'a\\', "\\'; DROP TABLE stock; --", '?', '$1', ':n', '%s'];
  const texts = [
    'Item:42',
    'item:42 ',
    ' item:42',
    'ítem',
    'ß',
    '🔒',
    'a\nb',
    '--',
    '/* */',
    '𝒳'.repeat(256),
  ];
  const database = knex({ client: 'pg', connection: servers.postgres.url });
  opened.push(() => database.destroy());
  for (const transact of [
    (work: (tx: FenceTransaction) => Promise<void>) => inPg(work),
    (work: (tx: FenceTransaction) => Promise<void>) => inMysql(work),
    (work: (tx: FenceTransaction) => Promise<void>) => database.transaction(work),
  ]) {
    for (const [index, name] of [NAME, ...quotes, ...texts].entries()) {
      await transact((tx) => checkFence(tx, { name, fence: 100 + index }));
      const smaller = transact((tx) => checkFence(tx, { name, fence: 99 + index }));
      await assert.rejects(smaller, { lock: name, seen: 100 + index });
    }
  }
  assert.deepEqual(await inStock(), [5, 5]);
});

/** Runs work in a transaction that is committed, or undone. */
async function inPg(work: (client: Client) => Promise<void>): Promise<void> {
  const client = new Client({ connectionString: servers.postgres.url });
  await client.connect();
  try {
    await client.query('BEGIN');
    await work(client);
    await client.query('COMMIT');
  } finally {
    await client.end();
  }
}

async function inMysql(work: (tx: FenceTransaction) => Promise<void>): Promise<void> {
  const connection = await mysql.getConnection();
  try {
    await connection.beginTransaction();
    await work(connection);
    await connection.commit();
  } catch (error) {
    await connection.rollback();
    throw error;
  } finally {
    connection.release();
  }
}

test('several locks: each has its fence, and one that is late refuses all', async () => {
  const set = await locks.acquire(['b', 'a']);
  await inPg((client) => checkFence(client, set));
  const rows = await servers.onPostgres('SELECT name, fence FROM holdfast_fences ORDER BY name');
  const fences = rows.map((row) => [row['name'], Number(row['fence'])]);
  assert.deepEqual(fences, [
    ['a', set.fences['a']],
    ['b', set.fences['b']],
  ]);
  await set.release();
  const later = await locks.acquire('a');
  await inPg((client) => checkFence(client, later));
  const late = inPg((client) => checkFence(client, set));
  await assert.rejects(late, { lock: 'a', seen: later.fence });
  await later.release();
});

test('pg: a transaction is undone if its work fails, and its client goes back to the pool', async () => {
  const single = new Pool({ connectionString: servers.postgres.url, max: 1 });
  opened.push(() => single.end());
  const backend = async () => (await single.query('SELECT pg_backend_pid() AS id')).rows[0]?.['id'];
  const before = await backend();
  const failed = fencedTransaction(single, EARLY, async (client) => {
    await client.query('UPDATE stock SET n = 0');
    throw new Error('sold out');
  });
  await assert.rejects(failed, /^Error: sold out$/);
  assert.deepEqual(await inStock(), [5, 5]);
  assert.equal(await backend(), before);
});

test('pg: work that goes on after a statement has failed is told that nothing was written', async () => {
  const swallowed = fencedTransaction(pool, EARLY, async (client) => {
    await client.query('UPDATE stock SET n = 0');
    await client.query('SELECT 1 / 0').catch(() => {});
  });
  await assert.rejects(swallowed, /the transaction was rolled back/);
  assert.deepEqual(await inStock(), [5, 5]);
});

test('pg: the process outlives a transaction that the server ended meanwhile', async () => {
  const ended = fencedTransaction(pool, EARLY, async (client) => {
    const { rows } = await client.query('SELECT pg_backend_pid() AS id');
    await pool.query('SELECT pg_terminate_backend($1)', [rows[0]?.['id']]);
    await client.query('UPDATE stock SET n = 0');
  });
  await assert.rejects(ended);
  assert.deepEqual(await inStock(), [5, 5]);
  await fencedTransaction(pool, EARLY, async () => {});
});

test('a later owner waits for a transaction that has begun, and sees what it wrote', async () => {
  let goOn: (() => void) | undefined;
  const first = fencedTransaction(pool, EARLY, async (client) => {
    await client.query('UPDATE stock SET n = 1');
    await new Promise<void>((resolve) => {
      goOn = resolve;
    });
  });
  await until(() => goOn !== undefined, 'the first to have written');
  const seen = fencedTransaction(pool, LATER, async (client) => {
    return (await client.query('SELECT n FROM stock')).rows[0]?.['n'];
  });
  await until(async () => {
    const waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    return (await pool.query(waiting)).rows.length === 1;
  }, 'the later owner to wait');
  goOn?.();
  await first;
  assert.equal(await seen, 1);
});

test('mysql2: a later owner waits for a transaction that has begun, then the early one is refused', async () => {
  let later: Promise<unknown> = Promise.resolve();
  await fencedTransaction(mysql, EARLY, async (client) => {
    later = fencedTransaction(mysql, LATER, async (other) => other.query('UPDATE stock SET n = 3'));
    await until(async () => {
      // The server looks anew only if nobody has asked for a tenth of a second.
      await sleep(150);
      const [rows] = await mysql.query(
        "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
      );
      return (rows as unknown[]).length === 1;
    }, 'the later owner to wait');
    await client.query('UPDATE stock SET n = 1');
  });
  await later;
  assert.deepEqual(await inStock(), [5, 3]);
  await assert.rejects(
    fencedTransaction(mysql, EARLY, async () => {}),
    STALE,
  );
});

test('a check outside of a transaction is refused, by what each client tells', async () => {
  const client = new Client({ connectionString: servers.postgres.url });
  await client.connect();
  const connection = await mysql.getConnection();
  const byMariadb = createMariadbPool(servers.maria.url.replace('mysql:', 'mariadb:'));
  const ofMariadb = await byMariadb.getConnection();
  const byKnex = knex({ client: 'pg', connection: servers.postgres.url });
  const byTypeorm = new DataSource({ type: 'postgres', url: servers.postgres.url });
  await byTypeorm.initialize();
  const runner = byTypeorm.createQueryRunner();
  opened.push(
    () => client.end(),
    async () => connection.release(),
    () => ofMariadb.release(),
    () => byMariadb.end(),
    () => byKnex.destroy(),
    () => runner.release(),
    () => byTypeorm.destroy(),
  );
  const none: Record<string, FenceTransaction> = {
    'pg, a pool': pool,
    'pg, a client': client,
    'mysql2, a pool': mysql,
    'mysql2, a connection': connection,
    'mariadb, a pool': byMariadb,
    'mariadb, a connection': ofMariadb,
    Knex: byKnex as Knex,
    'Drizzle with PostgreSQL': drizzle(pool as never),
    'Drizzle with MySQL': drizzleMysql(mysql),
    'TypeORM, the source': byTypeorm,
    'TypeORM, its manager': byTypeorm.manager,
    'TypeORM, a runner': runner,
  };
  for (const [what, tx] of Object.entries(none)) {
    // Some clients tell at once, and some with their answer.
    const check = async () => checkFence(tx, EARLY);
    await assert.rejects(
      check,
      /must be checked in a transaction, and no transaction is open/,
      what,
    );
  }
});

test('Drizzle: the work of a refused transaction is undone', async () => {
  const db = drizzle(pool as never);
  const sell = (lock: typeof EARLY) =>
    db.transaction(async (tx) => {
      await tx.execute(sql`UPDATE stock SET n = 0`);
      await checkFence(tx, lock);
    });
  await fencedTransaction(pool, LATER, async () => {});
  await assert.rejects(sell(EARLY), STALE);
  assert.deepEqual(await inStock(), [5, 5]);
});

test('TypeORM: a runner in a transaction is known, too', async () => {
  const source = await new DataSource({ type: 'mysql', url: servers.maria.url }).initialize();
  opened.push(() => source.destroy());
  const runner = source.createQueryRunner();
  await runner.startTransaction();
  await checkFence(runner, LATER);
  await assert.rejects(async () => checkFence(runner, EARLY), STALE);
  await runner.rollbackTransaction();
  await runner.release();
});

test('any other client is told in two words', async () => {
  await inPg(async (client) => {
    const tx: FenceConnection = { dialect: 'postgres', query: (text) => client.query(text) };
    await checkFence(tx, LATER);
    await assert.rejects(async () => checkFence(tx, EARLY), STALE);
  });
  const rows: FenceConnection = { dialect: 'sqlite', query: () => [{ fence: LATER.fence }] };
  await checkFence(rows, LATER);
});

test('wrong arguments are told before anything is sent', async () => {
  const tx: FenceConnection = {
    dialect: 'postgres',
    query: () => assert.fail('nothing may be sent'),
  };
  const wrong: [unknown, unknown, RegExp][] = [
    [{}, EARLY, /checkFence needs the transaction of a database client, got an object/],
    [undefined, EARLY, /got undefined/],
    [{ ...tx, dialect: 'oracle' }, EARLY, /one of postgres, mysql, sqlite, got "oracle"/],
    [tx, undefined, /a lock must be given, got undefined/],
    [tx, { fence: 1 }, /the name of a lock must be a string/],
    [tx, { name: 'a' }, /the fence of a lock must be a number, got undefined/],
    [tx, { name: 'a', fence: 1.5 }, /whole number/],
    [tx, { fences: { a: -1 } }, /whole number, 1 or more, got -1/],
  ];
  for (const [given, lock, message] of wrong) {
    assert.throws(() => checkFence(given as never, lock as never), { message });
  }
  assert.throws(() => fencedTransaction({} as never, EARLY, async () => {}), /needs a pool/);
  assert.throws(() => fenceTable('oracle' as never), /one of postgres, mysql, sqlite/);
});
