/** The clients and ORMs through which a fence is checked, known by their shape: none of them is imported. */

import { show } from '../base/checks.js';
import { argumentError } from '../base/errors.js';
import { checkDialect, type FenceDialect } from './table.js';

/**
 * A transaction of any other client: the kind of its database, and a function that runs a statement. The statements
 * have no parameters. The rows may be an array, or the property `rows` of the result.
 *
 * @example
 * ```ts
 * import pg from 'pg'
 * import { checkFence, type FenceConnection } from 'holdfast/fence'
 *
 * const client = new pg.Client(process.env.DATABASE_URL)
 * await client.connect()
 * const tx: FenceConnection = { dialect: 'postgres', query: (statement) => client.query(statement) }
 * await locks.request('warehouse', async (lock) => {
 *   await client.query('BEGIN')
 *   await checkFence(tx, lock)
 *   await client.query('COMMIT')
 * })
 * await client.end()
 * ```
 */
export interface FenceConnection {
  /** The kind of database. */
  readonly dialect: FenceDialect;
  /** Runs a statement in the transaction. */
  query(statement: string): unknown;
}

/** Drizzle with SQLite: asynchronous, or synchronous with better-sqlite3. */
interface DrizzleSqlite {
  all(statement: string): unknown;
}

/** PostgreSQL's pg, mysql2, mariadb, and TypeORM. */
interface Querying {
  query(statement: string): unknown;
}

/**
 * A transaction: a client of pg, a connection of mysql2, an EntityManager or QueryRunner of TypeORM, a transaction of
 * Knex, Drizzle or Prisma, or a `FenceConnection`.
 *
 * @example
 * ```ts
 * import { checkFence, type FenceTransaction } from 'holdfast/fence'
 *
 * const sell = (tx: FenceTransaction) => locks.request('warehouse', (lock) => checkFence(tx, lock))
 * ```
 */
export type FenceTransaction =
  | FenceConnection
  | Querying
  | DrizzleSqlite
  | { raw(statement: string): unknown }
  | { execute(statement: string): unknown }
  | { $queryRawUnsafe(statement: string): unknown };

/**
 * A synchronous database of SQLite: `DatabaseSync` of node:sqlite, or that of better-sqlite3.
 *
 * @example
 * ```ts
 * import { checkFence, type FenceSqlite } from 'holdfast/fence'
 *
 * const check = (database: FenceSqlite) => locks.request('warehouse', (lock) => checkFence(database, lock))
 * ```
 */
export interface FenceSqlite {
  /** Runs statements that return nothing. */
  exec(statements: string): unknown;
  /** Prepares a statement. */
  prepare(statement: string): { all(): unknown[] };
}

/** A connection as the check uses it. @internal */
export interface Connection extends FenceConnection {
  /** Whether `query` answers at once. */
  readonly sync: boolean;
  /** Whether a transaction is open, as far as the client tells; `result` is that of a statement. */
  open(result: unknown): boolean;
}

// biome-ignore lint/suspicious/noExplicitAny: what is given is known by asking for its properties
type Shape = any;

/** Tells of one kind of client how it runs a statement; undefined if `given` is no such client. */
type Reader = (given: Shape) => Connection | undefined;

const READERS: readonly Reader[] = [byHand, drizzle, prisma, knex, typeorm, sqlite, mysql, pg];

/**
 * How `given` runs statements.
 *
 * @throws TypeError if it is no client that is known, or if it cannot be in a transaction.
 * @internal
 */
export function connectionOf(given: unknown): Connection {
  const isObject = (typeof given === 'object' && given !== null) || typeof given === 'function';
  const connection = isObject ? READERS.map((reader) => reader(given)).find(Boolean) : undefined;
  if (connection !== undefined) return connection;
  const message = `checkFence needs the transaction of a database client, got ${show(given)}; for any other client pass { dialect, query }`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}

/** The error for a fence that is checked where nothing is undone if it is refused. @internal */
export function outside(): Error {
  const message =
    'the fence must be checked in a transaction, and no transaction is open: the check and the writes must be one step; pass the client after BEGIN, or the argument of the transaction callback of the library';
  return argumentError('ERR_INVALID_ARG_VALUE', message);
}

/** The rows of a result: an array, the first of a pair (mysql2), or a property (pg). @internal */
export function rowsOf(result: unknown): readonly { readonly fence: unknown }[] {
  if (!Array.isArray(result)) return (result as Shape)?.rows ?? [];
  return Array.isArray(result[0]) ? result[0] : result;
}

function byHand(given: Shape): Connection | undefined {
  if (typeof given.dialect !== 'string' || typeof given.query !== 'function') return undefined;
  checkDialect(given.dialect);
  return asks(given.dialect, (statement) => given.query(statement));
}

function drizzle(given: Shape): Connection | undefined {
  const kind = kindsOf(given)
    .map((each) => /^(?:Base)?(Pg|MySql|SQLite)(Database|Transaction)$/.exec(each))
    .find(Boolean);
  if (!kind) return undefined;
  // A transaction extends the class of databases, so its own kind comes first.
  if (kind[2] !== 'Transaction') throw outside();
  if (kind[1] !== 'SQLite') {
    const dialect = kind[1] === 'Pg' ? 'postgres' : 'mysql';
    return asks(dialect, (statement) => given.execute(statement));
  }
  const sync = given.resultKind === 'sync';
  return { ...asks('sqlite', (statement) => given.all(statement)), sync };
}

/** The kinds that Drizzle writes on the class of an object, and on those that it extends. */
function kindsOf(given: Shape): string[] {
  const kinds: string[] = [];
  for (
    let type = given.constructor;
    typeof type === 'function';
    type = Object.getPrototypeOf(type)
  ) {
    const kind = type[Symbol.for('drizzle:entityKind')];
    if (typeof kind === 'string') kinds.push(kind);
  }
  return kinds;
}

function prisma(given: Shape): Connection | undefined {
  if (typeof given.$queryRawUnsafe !== 'function') return undefined;
  if (typeof given.$connect === 'function') throw outside();
  return asks(dialectOf(given._activeProvider), (statement) => given.$queryRawUnsafe(statement));
}

function knex(given: Shape): Connection | undefined {
  if (typeof given.raw !== 'function' || given.client?.dialect === undefined) return undefined;
  if (given.isTransaction !== true) throw outside();
  return asks(dialectOf(given.client.dialect), (statement) => given.raw(statement));
}

/** An EntityManager, or a QueryRunner. */
function typeorm(given: Shape): Connection | undefined {
  const type = (given.dataSource ?? given.connection)?.options?.type;
  const own = given.options?.type;
  if (typeof given.query !== 'function' || typeof (type ?? own) !== 'string') return undefined;
  const runner = given.queryRunner ?? given;
  if (runner.isTransactionActive !== true) throw outside();
  return asks(dialectOf(type), (statement) => given.query(statement));
}

function sqlite(given: Shape): Connection | undefined {
  if (typeof given.prepare !== 'function' || typeof given.exec !== 'function') return undefined;
  return {
    dialect: 'sqlite',
    sync: true,
    query: (statement) => given.prepare(statement).all(),
    // better-sqlite3 and node:sqlite; before Node 22.16 that does not tell.
    open: () => (given.inTransaction ?? given.isTransaction ?? true) === true,
  };
}

/** The promises or callbacks of mysql2, or mariadb. */
function mysql(given: Shape): Connection | undefined {
  if (typeof given.query !== 'function' || typeof given.execute !== 'function') return undefined;
  if (typeof given.getConnection === 'function') throw outside();
  const client = typeof given.promise === 'function' ? given.promise() : given;
  const connection = asks('mysql', (statement) => client.query(statement));
  // The server tells the state of the transaction with every answer, SERVER_STATUS_IN_TRANS: mysql2 shows it in the result,
  // mariadb in the connection.
  const statusOf = (result: Shape) => result?.[0]?.serverStatus ?? given.info?.status ?? 1;
  return { ...connection, open: (result) => statusOf(result) % 2 === 1 };
}

function pg(given: Shape): Connection | undefined {
  if (typeof given.query !== 'function') return undefined;
  if (typeof given.totalCount === 'number') throw outside();
  const connection = asks('postgres', (statement) => given.query(statement));
  // "I" for idle; a version of pg that does not tell has no such method.
  return { ...connection, open: () => given.getTransactionStatus?.() !== 'I' };
}

function asks(dialect: FenceDialect, query: (statement: string) => unknown): Connection {
  return { dialect, query, sync: false, open: () => true };
}

/** The dialect by the name that a library has for it. */
function dialectOf(name: unknown): FenceDialect {
  if (/^(postgres|cockroach|aurora-postgres|redshift)/.test(String(name))) return 'postgres';
  if (/^(mysql|mariadb|aurora-mysql)/.test(String(name))) return 'mysql';
  if (/sqlite/.test(String(name))) return 'sqlite';
  const message = `holdfast/fence supports PostgreSQL, MySQL and SQLite, and not the dialect ${show(name)}; in any database that counts changed rows, a condition \`fence <= …\` in WHERE checks a fence`;
  throw argumentError('ERR_INVALID_ARG_VALUE', message);
}
