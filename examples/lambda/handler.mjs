import { connect } from 'holdfast'

// One manager per process, kept over the freezes between two calls.
let connected

export async function handler({ order }) {
  const locks = await manager()
  // The lock is given back before the answer: a frozen function does not renew it.
  return locks.request(`order:${order}`, { ttl: 10_000, wait: 2_000 }, async (lock) => {
    // ... the work, with lock.fence at every write ...
    return { order, fence: lock.fence }
  })
}

/** A connection that failed is not kept: the next call tries again. */
function manager() {
  connected ??= connect(process.env.REDIS_URL).catch((error) => {
    connected = undefined
    throw error
  })
  return connected
}
