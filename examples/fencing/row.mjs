/** Sells one item: what was read decides what is written. */
export function sell(locks, db, item) {
  return locks.request(`item:${item}`, async (lock) => {
    const n = await read(db, lock, item)
    if (n > 0) await write(db, lock, item, n - 1)
    return n > 0
  })
}

/** Reads the stock. From now on the row refuses earlier owners of the lock. */
export async function read(db, lock, item) {
  const { rows } = await db.query(
    'UPDATE stock SET fence = $1 WHERE item = $2 AND fence <= $1 RETURNING n',
    [lock.fence, item],
  )
  if (rows.length === 0) throw new Error(`a later owner of ${lock.name} has been here`)
  return rows[0].n
}

/** Writes the stock, as often as the owner likes. */
export async function write(db, lock, item, n) {
  const { rowCount } = await db.query(
    'UPDATE stock SET n = $3, fence = $1 WHERE item = $2 AND fence <= $1',
    [lock.fence, item, n],
  )
  if (rowCount === 0) throw new Error(`a later owner of ${lock.name} has been here`)
}

/** Sells one item in a single statement. Within one hold the second of these changes nothing. */
export async function sellOnce(db, lock, item) {
  const { rowCount } = await db.query(
    'UPDATE stock SET n = n - 1, fence = $1 WHERE item = $2 AND n > 0 AND fence < $1',
    [lock.fence, item],
  )
  return rowCount === 1
}
