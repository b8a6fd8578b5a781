/** The extension of Prisma: nothing is sold twice, and a late transaction is undone. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { fenceTable, StaleFenceError } from 'holdfast/fence';
import { Pool } from 'pg';
import { withPrisma } from '../../fence/prisma.js';
import { ROOT } from '../../support/child.js';
import { connect, type LockManager } from '../../support/holdfast.js';
import { Postgres } from '../../support/postgres.js';
import { RedisServer } from '../../support/server.js';

const PIECES = 20;

interface Db {
  $underLock<T>(name: string, work: (tx: Db) => Promise<T>): Promise<T>;
  $disconnect(): Promise<void>;
  readonly stock: { update(change: object): Promise<unknown> };
}

interface Example {
  withLocks(db: unknown, locks: LockManager): Db;
  sell(db: Db, item: string): Promise<number | null>;
}

let server: RedisServer;
let postgres: Postgres;
let pool: Pool;

before(async () => {
  server = await RedisServer.start();
  postgres = await Postgres.start();
  pool = new Pool({ connectionString: postgres.url });
  await pool.query(fenceTable('postgres'));
  await pool.query('CREATE TABLE stock (item text PRIMARY KEY, n integer NOT NULL)');
  await pool.query(`INSERT INTO stock VALUES ('tea', ${PIECES}), ('milk', 5)`);
});

after(async () => {
  await pool?.end();
  await Promise.all([server?.stop(), postgres?.stop()]);
});

async function leftOf(item: string): Promise<number> {
  const { rows } = await pool.query('SELECT n FROM stock WHERE item = $1', [item]);
  return Number(rows[0]?.['n']);
}

test('nothing is sold twice, and what is late is undone', async () => {
  const file = pathToFileURL(join(ROOT, 'examples', 'prisma', 'stock.mjs')).href;
  const { withLocks, sell }: Example = await import(file);
  await withPrisma('postgresql', async (module) => {
    const { PrismaClient, PrismaPg } = require(module);
    const open = async () => {
      const adapter = new PrismaPg({ connectionString: postgres.url });
      const locks = await connect(server.url);
      return { locks, db: withLocks(new PrismaClient({ adapter }), locks) };
    };
    const [one, other] = [await open(), await open()];
    try {
      const calls = Array.from({ length: PIECES + 4 }, (_, i) => (i % 2 ? one : other).db);
      const left = await Promise.all(calls.map((db) => sell(db, 'tea')));
      const sold = left.filter((n) => n !== null).sort((a, b) => a - b);
      assert.deepEqual(
        sold,
        Array.from({ length: PIECES }, (_, n) => n),
      );
      assert.equal(await leftOf('tea'), 0);

      // A later owner has been there: what this one writes is undone, as its check comes first.
      const early = await one.locks.acquire('item:milk');
      await one.locks.forceRelease('item:milk');
      await sell(other.db, 'milk');
      const late = withLocks(one.db, {
        request: (_name: string, work: (lock: unknown) => unknown) => work(early),
      } as never);
      await assert.rejects(sell(late, 'milk'), StaleFenceError);
      assert.equal(await leftOf('milk'), 4);
    } finally {
      for (const { db, locks } of [one, other]) {
        await db.$disconnect();
        await locks.close();
      }
    }
  });
});
