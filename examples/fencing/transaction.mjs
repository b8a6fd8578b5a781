import pg from 'pg'

/** A pool whose server ends the transaction of a paused process, so that a later owner gets on. */
export function openPool(options) {
  const pool = new pg.Pool({ idle_in_transaction_session_timeout: 10_000, ...options })
  // What the process sends next is refused. Without a listener it would end instead.
  pool.on('connect', (client) => client.on('error', () => {}))
  pool.on('error', () => {})
  return pool
}

/** Moves one piece from the stock of one item to that of another. */
export function move(locks, pool, from, to) {
  return locks.request('warehouse', (lock) =>
    transact(pool, lock, async (db) => {
      await db.query('UPDATE stock SET n = n - 1 WHERE item = $1', [from])
      await db.query('UPDATE stock SET n = n + 1 WHERE item = $1', [to])
    }),
  )
}

/** Runs `work` in a transaction that is refused if a later owner of the lock has had one. */
export async function transact(pool, lock, work) {
  const db = await pool.connect()
  let failure
  try {
    await db.query('BEGIN')
    const { rowCount } = await db.query(
      `INSERT INTO fences VALUES ($1, $2) ON CONFLICT (lock)
       DO UPDATE SET fence = excluded.fence WHERE fences.fence <= excluded.fence`,
      [lock.name, lock.fence],
    )
    if (rowCount === 0) throw new Error(`a later owner of ${lock.name} has been here`)
    const result = await work(db)
    await db.query('COMMIT')
    return result
  } catch (error) {
    failure = error
    throw error
  } finally {
    // With an error the connection is closed, which undoes what was begun.
    db.release(failure)
  }
}
