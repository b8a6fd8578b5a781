/** The check of a fence in a transaction. */

import { checkText, checkWholeNumber, show } from '../base/checks.js';
import { argumentError, StaleFenceError } from '../base/errors.js';
import {
  type Connection,
  connectionOf,
  type FenceSqlite,
  type FenceTransaction,
  outside,
  rowsOf,
} from './clients.js';
import { raise, read } from './table.js';

/**
 * A lock's name and fence: a `Lock`, or what a request contained.
 *
 * @example
 * ```ts
 * import type { Fenced } from 'holdfast/fence'
 *
 * const sent: Fenced = { name: 'item:42', fence: 1_800_000_000_000_033 }
 * ```
 */
export interface Fenced {
  /** The lock's name. */
  readonly name: string;
  /** Its fencing token. */
  readonly fence: number;
}

/**
 * The fences of several locks that were acquired together: a `LockSet`.
 *
 * @example
 * ```ts
 * import { checkFence, type FencedSet } from 'holdfast/fence'
 *
 * const sent: FencedSet = { fences: { 'account:1': 33, 'account:2': 34 } }
 * ```
 */
export interface FencedSet {
  /** The fencing token of each lock, by its name. */
  readonly fences: Readonly<Record<string, number>>;
}

/**
 * Raises the lock's fence in the table `holdfast_fences`. Throws if the table has the fence of a later owner, so that
 * the transaction is rolled back. Call it first in the transaction: data read before the call may be out of date. The
 * lock's row in the table stays locked until the transaction ends, so a later owner that checks its own fence waits for
 * this transaction, and then sees what it wrote. Use it for exclusive locks only: each owner of a shared lock has its
 * own fence.
 *
 * @param tx - The transaction; with SQLite the database, and then the call is synchronous.
 * @throws StaleFenceError if the table has the fence of a later owner of the lock, or of one of the locks.
 * @throws TypeError if `tx` is not a known client, or if the client reports that no transaction is open.
 *
 * @example
 * ```ts
 * import pg from 'pg'
 * import { checkFence } from 'holdfast/fence'
 *
 * const client = new pg.Client(process.env.DATABASE_URL)
 * await client.connect()
 * await locks.request('item:42', async (lock) => {
 *   await client.query('BEGIN')
 *   try {
 *     await checkFence(client, lock)
 *     await client.query('UPDATE stock SET n = n - 1 WHERE item = 42')
 *     await client.query('COMMIT')
 *   } catch (error) {
 *     await client.query('ROLLBACK')
 *     throw error
 *   }
 * })
 * await client.end()
 * ```
 */
export function checkFence(tx: FenceSqlite, lock: Fenced | FencedSet): void;
export function checkFence(tx: FenceTransaction, lock: Fenced | FencedSet): Promise<void>;
export function checkFence(tx: unknown, lock: Fenced | FencedSet): void | Promise<void> {
  const connection = connectionOf(tx);
  const all = fencesOf(lock);
  if (connection.sync) for (const each of all) check(connection, each);
  else return inTurn(connection, all);
}

async function inTurn(connection: Connection, all: readonly Fenced[]): Promise<void> {
  for (const each of all) await check(connection, each);
}

/** Answers at once if the connection does. */
function check(connection: Connection, { name, fence }: Fenced): unknown {
  const { dialect } = connection;
  return afterwards(connection.query(raise(dialect, name, fence)), (raised) => {
    if (!connection.open(raised)) throw outside();
    // MySQL has no RETURNING that MariaDB has, too.
    if (dialect !== 'mysql' && rowsOf(raised).length > 0) return undefined;
    return afterwards(connection.query(read(dialect, name)), (result) => {
      const seen = Number(rowsOf(result)[0]?.fence ?? Number.POSITIVE_INFINITY);
      if (seen > fence) throw stale({ name, fence }, seen, 'the database');
      return undefined;
    });
  });
}

function afterwards<T>(value: unknown, next: (value: unknown) => T): T | Promise<T> {
  if (typeof (value as PromiseLike<unknown> | undefined)?.then !== 'function') return next(value);
  return Promise.resolve(value).then(next);
}

/** The error of a fence that is refused. @internal */
export function stale({ name, fence }: Fenced, seen: number, where: string): StaleFenceError {
  const known = Number.isSafeInteger(seen) ? seen : undefined;
  const message = `${where} refused the fence ${fence} of lock "${name}": a later owner of the lock has used ${known ?? 'a greater one'} there; undo what can be undone, and acquire the lock again if the work is still needed`;
  return new StaleFenceError(message, name, { fence, seen: known });
}

/** The fences of a lock or of several, in one order for all processes, so that none of them deadlock. @internal */
function fencesOf(lock: Fenced | FencedSet): readonly Fenced[] {
  checkGiven(lock);
  const { fences } = lock as Partial<FencedSet>;
  if (fences === undefined) return [checkFenced(lock)];
  const names = Object.keys(fences).sort();
  return names.map((name) => checkFenced({ name, fence: fences[name] }));
}

function checkGiven(lock: unknown): asserts lock is Record<string, unknown> {
  if (typeof lock === 'object' && lock !== null) return;
  throw argumentError('ERR_INVALID_ARG_TYPE', `a lock must be given, got ${show(lock)}`);
}

/** Checks a lock's name and fence. @internal */
export function checkFenced(lock: unknown): Fenced {
  checkGiven(lock);
  const { name, fence } = lock;
  checkText(name, 'the name of a lock');
  checkWholeNumber(fence, 'the fence of a lock', 1, Number.MAX_SAFE_INTEGER);
  return { name, fence: fence as number };
}
