import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from 'holdfast'

// If the node of the pod dies, the others wait for so long.
const locks = await connect(process.env.REDIS_URL, {
  ttl: Number(process.env.LOCK_TTL_MS ?? 10_000),
})
const ending = new AbortController()
process.once('SIGTERM', () => ending.abort())

while (!ending.signal.aborted) {
  try {
    await locks.request(
      'settlement',
      { wait: Infinity, signal: ending.signal, label: process.env.POD_NAME ?? 'pod' },
      lead,
    )
  } catch (error) {
    // A lost lock is asked for again; SIGTERM ends the wait, too.
    if (!ending.signal.aborted) console.log(`lost: ${error.message}`)
  }
}
await locks.close()
console.log('ended')

/** Leads until the pod is told to end, or the lock is lost. */
async function lead(lock) {
  console.log(`leads with ${lock.fence}`)
  while (!ending.signal.aborted) {
    lock.assertHeld()
    await sleep(50)
  }
  console.log('hands over')
}
