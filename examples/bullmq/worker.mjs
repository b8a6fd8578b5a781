import { Worker } from 'bullmq'
import { connect, LockTimeoutError } from 'holdfast'

const url = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379'
const { hostname, port } = new URL(url)
const connection = { host: hostname, port: Number(port || 6379), maxRetriesPerRequest: null }
const locks = await connect(url)

// BullMQ locks each job. That no two jobs of one customer run at a time, on any machine, is up to a lock.
const worker = new Worker(
  'invoices',
  async (job) => {
    const { customer } = job.data
    return locks.request(`customer:${customer}`, { wait: 30_000 }, async (lock) => {
      console.log(`begin ${customer} ${job.id}`)
      await invoice(job, lock)
      console.log(`end ${customer} ${job.id}`)
      return lock.fence
    })
  },
  { connection, concurrency: 4 },
)

worker.on('ready', () => console.log('ready'))
worker.on('failed', (job, error) => {
  // The job goes back to the queue if it has attempts left.
  const why = error instanceof LockTimeoutError ? 'its customer was busy' : error.message
  console.log(`failed ${job?.id}: ${why}`)
})

async function invoice(job, lock) {
  for (let line = 0; line < job.data.lines; line++) {
    // The job fails, and is repeated, rather than goes on beside the next holder.
    lock.assertHeld()
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

process.once('SIGTERM', async () => {
  // Waits for the jobs that run; then the locks.
  await worker.close()
  await locks.close()
})
