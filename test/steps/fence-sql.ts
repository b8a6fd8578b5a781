/** Guards of data in PostgreSQL: docs/fencing.md. The lock is on a connection that no fault meets. */

import { fencedTransaction } from 'holdfast/fence';
import { Pool, type PoolClient } from 'pg';
import { connect, type LockManager } from '../support/holdfast.js';
import type { Feature, Outcome, Preparation, Scene } from './feature.js';
import { OF_FENCES } from './fence.js';
import { COMMAND_MS } from './holding.js';

interface Guarded {
  readonly locks: LockManager;
  readonly pool: Pool;
}

interface Stock {
  readonly here: number;
  readonly there: number;
}

function poolAt(url: string): Pool {
  const limits = { idle_in_transaction_session_timeout: 1_000, query_timeout: 2 * COMMAND_MS };
  const pool = new Pool({ connectionString: url, max: 2, ...limits });
  pool.on('error', () => {});
  return pool;
}

/** Moves one piece, in a transaction, and answers what was there before. */
async function move({ locks, pool }: Guarded, scene: Scene): Promise<Stock> {
  const { name, ttl, wait } = scene;
  const lock = await locks.acquire(name, { ttl, wait, renew: false });
  try {
    return await fencedTransaction(pool, lock, async (client: PoolClient) => {
      const { rows } = await client.query(`SELECT here, there FROM stock WHERE item = '${name}'`);
      const { here, there } = rows[0] as unknown as Stock;
      await client.query(`UPDATE stock SET here = ${here - 1} WHERE item = '${name}'`);
      await client.query(`UPDATE stock SET there = ${there + 1} WHERE item = '${name}'`);
      return { here, there };
    });
  } finally {
    await lock.release();
  }
}

const stockOf = ({ value }: Outcome) => value as Stock | undefined;

const transaction: Feature<Guarded, Preparation> = {
  name: 'fencedTransaction with pg',
  page: 'docs/fencing.md, Guards',
  through: 'postgres',
  async prepare({ name, servers }) {
    const pool = poolAt(servers['postgres'] ?? '');
    await pool.query(`INSERT INTO stock VALUES ('${name}', 5, 0)`);
    return { close: () => pool.end() };
  },
  async open({ url, servers }) {
    return { locks: await connect(servers['redis']), pool: poolAt(url) };
  },
  async close({ locks, pool }) {
    await locks.close();
    await pool.end();
  },
  first: move,
  second: move,
  promises: {
    ...OF_FENCES,
    'a transaction is whole, or not there': ({ second, again }) =>
      [second, again].every((each) => {
        const { here, there } = stockOf(each) ?? { here: 0, there: 0 };
        return here + there === 5;
      }),
    'a transaction that was reported is what the next owner reads': ({ first, second }) =>
      first.value === undefined || stockOf(second)?.here === 4,
    'once a later owner has read, no write of a former one is accepted': ({ second, again }) =>
      stockOf(again)?.here === Number(stockOf(second)?.here) - 1,
  },
};

export const features: readonly Feature[] = [transaction];
