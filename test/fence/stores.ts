/** A stock behind each client that `holdfast/fence` knows: a write that is refused leaves it as it is. */

import {
  checkFence,
  type Fenced,
  type FenceSqlite,
  fencedSet,
  fencedTransaction,
  fenceTable,
  StaleFenceError,
} from 'holdfast/fence';

/** Where the stocks are kept. */
export interface Places {
  readonly postgres: string;
  readonly mysql: string;
  readonly redis: string;
  readonly http: string;
  /** A file. */
  readonly sqlite: string;
  /** A module of Node that has a generated client of Prisma. */
  readonly prisma?: string;
  /** A module of Node that has better-sqlite3, and Drizzle for it. */
  readonly betterSqlite?: string;
}

/** The stock of one client. */
export interface Store {
  /** Writes the stock, unless a later owner of the lock has been there. */
  write(lock: Fenced, n: number): Promise<void>;
  close(): Promise<unknown>;
}

/** Clients that run on every Node. */
export const KINDS = [
  'pg',
  'mysql2',
  'mysql2 with callbacks',
  'mariadb with MySQL',
  'Knex with PostgreSQL',
  'Knex with MySQL',
  'Drizzle with PostgreSQL',
  'Drizzle with MySQL',
  'TypeORM with PostgreSQL',
  'TypeORM with MySQL',
  'ioredis',
  'node-redis',
  'HTTP',
] as const;

/** Clients of SQLite that need better-sqlite3. */
export const BETTER_SQLITE_KINDS = ['better-sqlite3', 'Drizzle with SQLite'] as const;

export type Kind =
  | (typeof KINDS)[number]
  | (typeof BETTER_SQLITE_KINDS)[number]
  | 'node:sqlite'
  | 'Prisma with PostgreSQL'
  | 'Prisma with SQLite';

export const TABLES = (dialect: 'postgres' | 'mysql' | 'sqlite') => [
  fenceTable(dialect),
  'CREATE TABLE IF NOT EXISTS stock (item varchar(99) PRIMARY KEY, n integer NOT NULL)',
];

/** The statement of the write. The names of the tests need no escapes. */
const sell = ({ name }: Fenced, n: number) => `UPDATE stock SET n = ${n} WHERE item = '${name}'`;

export const OPEN: Record<Kind, (places: Places) => Promise<Store>> = {
  async pg({ postgres }) {
    const { Pool } = await import('pg');
    const pool = new Pool({ connectionString: postgres });
    return {
      write: (lock, n) =>
        fencedTransaction(pool, lock, async (client) => void (await client.query(sell(lock, n)))),
      close: () => pool.end(),
    };
  },

  async mysql2({ mysql }) {
    const { createPool } = await import('mysql2/promise');
    const pool = createPool(mysql);
    return {
      write: (lock, n) =>
        fencedTransaction(pool, lock, async (client) => void (await client.query(sell(lock, n)))),
      close: () => pool.end(),
    };
  },

  async 'mysql2 with callbacks'({ mysql }) {
    const { createConnection } = await import('mysql2');
    const connection = createConnection(mysql);
    const client = connection.promise();
    return {
      async write(lock, n) {
        await client.beginTransaction();
        try {
          await checkFence(connection, lock);
          await client.query(sell(lock, n));
          await client.commit();
        } catch (error) {
          await client.rollback();
          throw error;
        }
      },
      close: () => client.end(),
    };
  },

  async 'mariadb with MySQL'({ mysql }) {
    const { createPool } = await import('mariadb');
    const pool = createPool(mysql.replace('mysql:', 'mariadb:'));
    return {
      write: (lock, n) =>
        fencedTransaction(pool, lock, async (client) => void (await client.query(sell(lock, n)))),
      close: () => pool.end(),
    };
  },

  'Knex with PostgreSQL': ({ postgres }) => knexStore('pg', postgres),
  'Knex with MySQL': ({ mysql }) => knexStore('mysql2', mysql),

  async 'Drizzle with PostgreSQL'({ postgres }) {
    const { drizzle } = await import('drizzle-orm/node-postgres');
    const { Pool } = await import('pg');
    const pool = new Pool({ connectionString: postgres });
    return drizzleStore(drizzle(pool as never), pool);
  },

  async 'Drizzle with MySQL'({ mysql }) {
    const { drizzle } = await import('drizzle-orm/mysql2');
    const { createPool } = await import('mysql2/promise');
    const pool = createPool(mysql);
    return drizzleStore(drizzle(pool), pool);
  },

  'TypeORM with PostgreSQL': ({ postgres }) => typeormStore('postgres', postgres),
  'TypeORM with MySQL': ({ mysql }) => typeormStore('mysql', mysql),

  async 'Prisma with PostgreSQL'({ postgres, prisma = '' }) {
    const { PrismaClient, PrismaPg } = require(prisma);
    const adapter = new PrismaPg({ connectionString: postgres });
    return prismaStore(new PrismaClient({ adapter }));
  },

  async 'Prisma with SQLite'({ sqlite, prisma = '' }) {
    const { PrismaClient, PrismaLibSql } = require(prisma);
    const adapter = new PrismaLibSql({ url: `file:${sqlite}-prisma` });
    return prismaStore(new PrismaClient({ adapter }));
  },

  async 'node:sqlite'({ sqlite }) {
    // Node 20 has neither the module nor its types.
    const { DatabaseSync } = require('node:sqlite');
    const database: FenceSqlite & { close(): void } = new DatabaseSync(sqlite);
    return {
      write: async (lock, n) =>
        fencedTransaction(database, lock, (db) => void db.exec(sell(lock, n))),
      close: async () => database.close(),
    };
  },

  async 'better-sqlite3'({ sqlite, betterSqlite = '' }) {
    const { Database } = require(betterSqlite);
    const database: FenceSqlite & { close(): void } = new Database(`${sqlite}-better`);
    return {
      write: async (lock, n) =>
        fencedTransaction(database, lock, (db) => void db.exec(sell(lock, n))),
      close: async () => database.close(),
    };
  },

  async 'Drizzle with SQLite'({ sqlite, betterSqlite = '' }) {
    const { Database, drizzle } = require(betterSqlite);
    const database = new Database(`${sqlite}-better`);
    const db = drizzle(database);
    return {
      write: async (lock, n) =>
        // biome-ignore lint/suspicious/noExplicitAny: its types are not those of the tests
        db.transaction((tx: any) => {
          checkFence(tx, lock);
          tx.run(sell(lock, n));
        }),
      close: async () => database.close(),
    };
  },

  async ioredis({ redis }) {
    const { Redis } = await import('ioredis');
    const client = new Redis(redis);
    return {
      write: (lock, n) => fencedSet(client, lock, `stock:${lock.name}`, `${n}`),
      close: async () => client.disconnect(),
    };
  },

  async 'node-redis'({ redis }) {
    const { createClient } = await import('redis');
    const client = await createClient({ url: redis }).connect();
    return {
      write: (lock, n) => fencedSet(client, lock, `stock:${lock.name}`, `${n}`),
      close: async () => client.destroy(),
    };
  },

  async HTTP({ http }) {
    return {
      async write({ name, fence }, n) {
        const url = `${http}/stock/${encodeURIComponent(name)}`;
        const options = { method: 'PUT', body: `${n}`, headers: { Fence: `${fence}` } };
        const { status } = await fetch(url, options);
        if (status === 412) throw new StaleFenceError('refused', name, { fence });
        if (status !== 200) throw new Error(`HTTP ${status}`);
      },
      close: async () => {},
    };
  },
};

async function knexStore(client: string, connection: string): Promise<Store> {
  const { default: knex } = await import('knex');
  const db = knex({ client, connection });
  return {
    write: (lock, n) =>
      db.transaction(async (trx) => {
        await checkFence(trx, lock);
        await trx('stock').where({ item: lock.name }).update({ n });
      }),
    close: () => db.destroy(),
  };
}

/** A database of Drizzle, whatever its kind. */
interface Drizzle {
  transaction(body: (tx: { execute(statement: string): unknown }) => Promise<void>): Promise<void>;
}

function drizzleStore(db: Drizzle, pool: { end(): Promise<void> }): Store {
  return {
    write: (lock, n) =>
      db.transaction(async (tx) => {
        await checkFence(tx, lock);
        await tx.execute(sell(lock, n));
      }),
    close: () => pool.end(),
  };
}

async function typeormStore(type: 'postgres' | 'mysql', url: string): Promise<Store> {
  const { DataSource } = await import('typeorm');
  const db = await new DataSource({ type, url }).initialize();
  return {
    write: (lock, n) =>
      db.transaction(async (manager) => {
        await checkFence(manager, lock);
        await manager.query(sell(lock, n));
      }),
    close: () => db.destroy(),
  };
}

// biome-ignore lint/suspicious/noExplicitAny: the types of Prisma are generated where its client is
function prismaStore(db: any): Store {
  return {
    write: (lock, n) =>
      // biome-ignore lint/suspicious/noExplicitAny: see above
      db.$transaction(async (tx: any) => {
        await checkFence(tx, lock);
        await tx.stock.update({ where: { item: lock.name }, data: { n } });
      }),
    close: () => db.$disconnect(),
  };
}
