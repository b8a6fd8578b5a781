import { checkFence, fencedTransaction } from 'holdfast/fence'

/** Moves one piece from the stock of one item to that of another. `pool` is one of pg, mysql2 or mariadb. */
export function move(locks, pool, from, to) {
  return locks.request('warehouse', (lock) =>
    fencedTransaction(pool, lock, async (client) => {
      await client.query(`UPDATE stock SET n = n - 1 WHERE item = ${Number(from)}`)
      await client.query(`UPDATE stock SET n = n + 1 WHERE item = ${Number(to)}`)
    }),
  )
}

/** The same with Knex. In a transaction of Drizzle, Prisma or TypeORM it is the same line. */
export function moveByKnex(locks, knex, from, to) {
  return locks.request('warehouse', (lock) =>
    knex.transaction(async (trx) => {
      await checkFence(trx, lock)
      await trx('stock').where({ item: from }).decrement('n')
      await trx('stock').where({ item: to }).increment('n')
    }),
  )
}
