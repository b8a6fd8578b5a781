import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from 'holdfast'
import { createClient } from 'redis'

const url = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379'
// Less than the platform waits before it kills: 30 s in Kubernetes, 10 s in Docker.
const GRACE_MS = Number(process.env.GRACE_MS ?? 8_000)
const locks = await connect(url, { ttl: Number(process.env.LOCK_TTL_MS ?? 10_000) })
const redis = await createClient({ url }).connect()

// First nothing new is begun, then what still runs is given up.
const ending = new AbortController()
const over = new AbortController()
process.once('SIGTERM', () => {
  ending.abort()
  setTimeout(() => over.abort(), GRACE_MS).unref()
})

console.log('ready')
while (!ending.signal.aborted) {
  try {
    await locks.request('imports', { wait: Infinity, signal: ending.signal }, importFiles)
  } catch (error) {
    if (!ending.signal.aborted) console.log(`again: ${error.message}`)
  }
}
// The next waiter gets the lock now, not when a lease ends.
await locks.close()
redis.destroy()
console.log('ended')

/** Imports one file after the other, until the deploy. A file that is given up stays first in the list. */
async function importFiles(lock) {
  const signal = AbortSignal.any([lock.signal, over.signal])
  while (!ending.signal.aborted) {
    const file = await redis.lIndex('files', 0)
    if (file === null) {
      await sleep(20)
      continue
    }
    console.log(`begin ${file} ${lock.fence}`)
    for (let row = 0; row < Number(file.split(':')[1]); row++) {
      signal.throwIfAborted()
      await sleep(5)
    }
    await redis.multi().lPop('files').rPush('imported', file).exec()
    console.log(`end ${file}`)
  }
}
