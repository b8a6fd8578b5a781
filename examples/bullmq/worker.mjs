import { Worker } from 'bullmq'
import { connect } from 'holdfast'
import { oneAtATime } from 'holdfast/bullmq'

const url = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379'
const { hostname, port } = new URL(url)
const connection = { host: hostname, port: Number(port || 6379), maxRetriesPerRequest: null }
const locks = await connect(url)

// BullMQ gives each job to one worker. That no two jobs of one customer run at a time, in any worker, is up to a lock.
const worker = new Worker(
  'invoices',
  oneAtATime(
    locks,
    (job) => job.data.customer,
    async (job, lock, signal) => {
      const { customer } = job.data
      console.log(`begin ${customer} ${job.id}`)
      await invoice(job, signal)
      console.log(`end ${customer} ${job.id}`)
      return lock.fence
    },
  ),
  { connection, concurrency: 4 },
)

worker.on('ready', () => console.log('ready'))
// The job goes back to the queue if it has attempts left.
worker.on('failed', (job, error) => console.log(`failed ${job?.id}: ${error.message}`))

async function invoice(job, signal) {
  for (let line = 0; line < job.data.lines; line++) {
    // The job fails, and is repeated, rather than goes on beside the next holder.
    signal.throwIfAborted()
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

process.once('SIGTERM', async () => {
  // Waits for the jobs that run, and starts none; then the locks.
  await worker.close()
  await locks.close()
})
