// Does jobs: adopts the lock of each, so that nobody else is at it, and releases it when the job is done.
// A job whose lock ended on the way is left to the holder of the lock.

import { connect, LockLostError } from 'holdfast'
import { createClient } from 'redis'

const { REDIS_URL } = process.env

const locks = await connect(REDIS_URL)
const queue = await createClient({ url: REDIS_URL }).connect()
process.once('SIGTERM', () => queue.destroy())

try {
  for (;;) {
    const { element } = await queue.brPop('jobs', 0)
    await work(JSON.parse(element))
  }
} catch (error) {
  if (queue.isOpen) throw error
}
await locks.close()

async function work({ video, lock }) {
  let adopted
  try {
    adopted = await locks.adopt(lock)
  } catch (error) {
    if (!(error instanceof LockLostError)) throw error
    console.log(`${video} too late`)
    return
  }
  console.log(`${video} begun under ${adopted.fence}`)
  // The store refuses the fence of an earlier owner.
  await queue.hSet(`video:${video}`, { state: 'encoded', fence: adopted.fence })
  await adopted.release()
  console.log(`${video} done`)
}
