/** Transactions of clients that have no function for them. */

import { argumentError } from '../base/errors.js';
import { checkFence, type Fenced, type FencedSet } from './check.js';
import type { FenceSqlite } from './clients.js';

/**
 * A pool of pg.
 *
 * @example
 * ```ts
 * import pg from 'pg'
 * import type { FencePgPool } from 'holdfast/fence'
 *
 * const pool: FencePgPool<{ query(text: string): Promise<unknown>; release(error?: Error): void }> = new pg.Pool()
 * ```
 */
export interface FencePgPool<Client> {
  /** Takes a client out of the pool. */
  connect: { (): Promise<Client>; (callback: never): void };
}

/**
 * A pool of mysql2/promise or mariadb.
 *
 * @example
 * ```ts
 * import mysql from 'mysql2/promise'
 * import type { FenceMysqlPool } from 'holdfast/fence'
 *
 * const pool: FenceMysqlPool<mysql.PoolConnection> = mysql.createPool('mysql://127.0.0.1/shop')
 * ```
 */
export interface FenceMysqlPool<Client> {
  /** Takes a connection out of the pool. */
  getConnection(): Promise<Client>;
}

// biome-ignore lint/suspicious/noExplicitAny: both pools, which their methods distinguish
type Pool = any;

/**
 * Runs `work` in a transaction that begins with `checkFence`, and commits it if `work` succeeds. It is for clients that
 * have no such function; in a transaction of Knex, Drizzle, Prisma or TypeORM call `checkFence`.
 *
 * @param db - A pool of pg, mysql2 or mariadb; or a database of node:sqlite or better-sqlite3, with which the call is
 *   synchronous and `work` must not return a promise.
 * @throws StaleFenceError if the table has the fence of a later owner of the lock. `work` has not run.
 *
 * @example
 * ```ts
 * import pg from 'pg'
 * import { fencedTransaction } from 'holdfast/fence'
 *
 * const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL })
 * await locks.request('item:42', (lock) =>
 *   fencedTransaction(pool, lock, (client) => client.query('UPDATE stock SET n = n - 1 WHERE item = 42')),
 * )
 * await pool.end()
 * ```
 */
export function fencedTransaction<Client, Result>(
  db: FenceMysqlPool<Client>,
  lock: Fenced | FencedSet,
  work: (client: Client) => Promise<Result>,
): Promise<Result>;
export function fencedTransaction<Client, Result>(
  db: FencePgPool<Client>,
  lock: Fenced | FencedSet,
  work: (client: Client) => Promise<Result>,
): Promise<Result>;
export function fencedTransaction<Database extends FenceSqlite, Result>(
  db: Database,
  lock: Fenced | FencedSet,
  work: (database: Database) => Result,
): Result;
export function fencedTransaction(
  db: Pool,
  lock: Fenced | FencedSet,
  work: (client: Pool) => unknown,
): unknown {
  if (typeof db?.getConnection === 'function') return asynchronous(db.getConnection(), lock, work);
  if (typeof db?.connect === 'function') return asynchronous(db.connect(), lock, work);
  if (typeof db?.prepare === 'function') return synchronous(db, lock, work);
  const message =
    'fencedTransaction needs a pool of pg or mysql2, or a database of SQLite; in the transaction of another client call checkFence';
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}

async function asynchronous(
  connecting: Promise<Pool>,
  lock: Fenced | FencedSet,
  work: (client: Pool) => unknown,
): Promise<unknown> {
  const client = await connecting;
  // The server ends the transaction of a paused process. Without a listener that would end the process.
  client.on?.('error', ignore);
  let broken: unknown;
  try {
    await client.query('BEGIN');
    await checkFence(client, lock);
    const result = await work(client);
    const committed = await client.query('COMMIT');
    // PostgreSQL answers so to the COMMIT of a transaction of which a statement has failed.
    if (committed?.command === 'ROLLBACK') throw new Error(ROLLED_BACK);
    return result;
  } catch (error) {
    await client.query('ROLLBACK').catch((reason: unknown) => {
      broken = reason;
    });
    throw error;
  } finally {
    client.off?.('error', ignore);
    // The end of the connection undoes what a ROLLBACK could not.
    if (broken !== undefined && typeof client.destroy === 'function') client.destroy();
    else client.release(broken);
  }
}

const ROLLED_BACK =
  'the transaction was rolled back: a statement of it had failed, and "work" went on all the same';

function ignore(): void {}

function synchronous(
  db: FenceSqlite,
  lock: Fenced | FencedSet,
  work: (database: FenceSqlite) => unknown,
): unknown {
  // At once with the right to write: a transaction that has only read could not get it any more.
  db.exec('BEGIN IMMEDIATE');
  try {
    checkFence(db, lock);
    const result = work(db);
    if (typeof (result as PromiseLike<unknown> | undefined)?.then === 'function') {
      const message =
        'a transaction of SQLite is synchronous: "work" must return a result, not a promise';
      throw argumentError('ERR_INVALID_ARG_VALUE', message);
    }
    db.exec('COMMIT');
    return result;
  } catch (error) {
    undo(db);
    throw error;
  }
}

function undo(db: FenceSqlite): void {
  try {
    db.exec('ROLLBACK');
  } catch {
    // After some errors, such as that of a full disk, SQLite has undone the transaction by itself.
  }
}
