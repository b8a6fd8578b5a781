// A store for verrou (@verrou/core, on which @adonisjs/lock builds) that keeps its locks in holdfast. verrou names an owner
// for each of its locks, and so does the store: so any process that has `lock.serialize()` can extend or release the lock.

import { E_LOCK_NOT_OWNED } from '@verrou/core'
import { LockLostError } from 'holdfast'

// A lock that never ends would outlast its owner's crash. A year is as good as never, and has an end.
const NEVER = '365d'
const LEAST_MS = 50
// The lease between the two requests of `save`, which is longer only by the second one.
const BETWEEN_MS = 10_000

export function holdfastStore({ locks }) {
  return { factory: () => new HoldfastStore(locks) }
}

class HoldfastStore {
  #locks

  constructor(locks) {
    this.#locks = locks
  }

  // A lock of verrou excludes itself, too: so it is taken first, and then given to its owner.
  async save(key, owner, ttl) {
    const hold = holdOf(ttl)
    const between = typeof hold.ttl === 'number' ? Math.min(hold.ttl, BETWEEN_MS) : BETWEEN_MS
    const lock = await this.#locks.tryAcquire(key, { ttl: between })
    if (lock === null) return false
    try {
      await this.#locks.adopt({ ...lock.toJSON(), owner }, hold)
      return true
    } catch (error) {
      await lock.release().catch(() => {})
      throw error
    }
  }

  async delete(key, owner) {
    if (!(await this.#locks.release(key, { owner }))) throw new E_LOCK_NOT_OWNED()
  }

  async forceDelete(key) {
    await this.#locks.forceRelease(key)
  }

  async exists(key) {
    return (await this.#locks.query({ name: key })).held.length > 0
  }

  // It never shortens a lease.
  async extend(key, owner, duration) {
    try {
      await this.#locks.adopt({ name: key, owner }, holdOf(duration))
    } catch (error) {
      throw error instanceof LockLostError ? new E_LOCK_NOT_OWNED() : error
    }
  }
}

// Only the server ends the lock, since its owner may be in any process.
function holdOf(ttl) {
  return { ttl: ttl ? Math.max(ttl, LEAST_MS) : NEVER, renew: false }
}
