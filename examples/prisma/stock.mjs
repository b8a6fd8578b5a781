import { checkFence } from 'holdfast/fence'

/** A client of Prisma with `$underLock`: a transaction that runs under a lock, and is undone if it is late. */
export function withLocks(db, locks) {
  return db.$extends({
    client: {
      $underLock: (name, work) =>
        locks.request(name, (lock) =>
          db.$transaction(async (tx) => {
            await checkFence(tx, lock)
            return work(tx, lock)
          }),
        ),
    },
  })
}

/** Sells one piece; answers what is left, or null if it is sold out. */
export function sell(db, item) {
  return db.$underLock(`item:${item}`, async (tx) => {
    const { n } = await tx.stock.findUniqueOrThrow({ where: { item } })
    if (n === 0) return null
    await tx.stock.update({ where: { item }, data: { n: n - 1 } })
    return n - 1
  })
}
