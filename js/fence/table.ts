/** The table of fences, in the SQL of each kind of database. */

import { show } from '../base/checks.js';
import { argumentError } from '../base/errors.js';

/**
 * A kind of SQL database: `'postgres'` also stands for CockroachDB, `'mysql'` for MariaDB.
 *
 * @example
 * ```ts
 * import { type FenceDialect, fenceTable } from 'holdfast/fence'
 *
 * const dialect: FenceDialect = 'postgres'
 * await db.query(fenceTable(dialect))
 * ```
 */
export type FenceDialect = 'mysql' | 'postgres' | 'sqlite';

/** @internal */
export const DIALECTS: readonly FenceDialect[] = ['postgres', 'mysql', 'sqlite'];

// In MySQL a text that is not binary would make one row of "Item", "item" and "item ". 1024 bytes is the longest name.
const NAME = { postgres: 'text', mysql: 'varbinary(1024)', sqlite: 'text' };

/**
 * The statement that makes the table of fences, for a migration. A second run changes nothing. The command
 * `holdfast fence-table` prints it.
 *
 * @throws TypeError for another dialect.
 *
 * @example
 * ```ts
 * import { fenceTable } from 'holdfast/fence'
 *
 * await db.query(fenceTable('postgres'))
 * ```
 */
export function fenceTable(dialect: FenceDialect): string {
  checkDialect(dialect);
  return `CREATE TABLE IF NOT EXISTS holdfast_fences (
  name  ${NAME[dialect]} NOT NULL PRIMARY KEY,
  fence bigint NOT NULL
)`;
}

/** The statement that raises the fence of a lock. It keeps the row locked until the transaction ends. @internal */
export function raise(dialect: FenceDialect, name: string, fence: number): string {
  const insert = `INSERT INTO holdfast_fences (name, fence) VALUES (${literal(dialect, name)}, ${fence})`;
  if (dialect === 'mysql')
    return `${insert} ON DUPLICATE KEY UPDATE fence = GREATEST(fence, ${fence})`;
  return `${insert} ON CONFLICT (name) DO UPDATE SET fence = excluded.fence WHERE holdfast_fences.fence <= excluded.fence RETURNING fence`;
}

/** The statement that reads the fence of a lock. @internal */
export function read(dialect: FenceDialect, name: string): string {
  const select = `SELECT fence FROM holdfast_fences WHERE name = ${literal(dialect, name)}`;
  // Otherwise a snapshot would tell what was there when it began.
  return dialect === 'mysql' ? `${select} FOR UPDATE` : select;
}

/** Throws unless `value` is a dialect. @internal */
export function checkDialect(value: unknown): void {
  if ((DIALECTS as readonly unknown[]).includes(value)) return;
  const message = `the dialect must be one of ${DIALECTS.join(', ')}, got ${show(value)}`;
  throw argumentError('ERR_INVALID_ARG_VALUE', message);
}

/**
 * A text as SQL. Every client and every ORM runs a plain statement, while their parameters all differ. A name with
 * anything that a database, or a client that looks for parameters, might read as something else goes as hex digits.
 */
function literal(dialect: FenceDialect, text: string): string {
  if (/^[\w./@: -]*$/.test(text)) return `'${text}'`;
  const hex = Buffer.from(text).toString('hex');
  if (dialect === 'postgres') return `convert_from(decode('${hex}', 'hex'), 'UTF8')`;
  return dialect === 'mysql' ? `x'${hex}'` : `CAST(x'${hex}' AS text)`;
}
