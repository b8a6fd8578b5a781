// Takes in a job: locks what it is about, puts the job and the lock into a queue, and ends as soon as a
// worker has the lock. Until then it is the holder, so the lock is never free.

import { connect } from 'holdfast'
import { createClient } from 'redis'

const { REDIS_URL } = process.env
const video = process.argv[2]

const locks = await connect(REDIS_URL)
const queue = await createClient({ url: REDIS_URL }).connect()

const lock = await locks.tryAcquire(`video:${video}`, { label: 'web' })
if (lock === null) {
  console.log('somebody is at it')
} else {
  const adopted = new Promise((resolve) => locks.once('lost', (_lock, error) => resolve(error)))
  await queue.lPush('jobs', JSON.stringify({ video, lock }))
  console.log(`${(await adopted).reason} ${lock.fence}`)
}
queue.destroy()
await locks.close()
