// How long four customers wait for a job each while a fifth has twenty: with a lock that the handler waits for, and with
// oneAtATime. One worker runs four jobs at a time; a job takes 200 ms.

import { setTimeout as sleep } from 'node:timers/promises'
import { Queue, Worker } from 'bullmq'
import { connect } from 'holdfast'
import { oneAtATime } from 'holdfast/bullmq'

const url = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379'
const { hostname, port } = new URL(url)
const connection = { host: hostname, port: Number(port || 6379), maxRetriesPerRequest: null }
const locks = await connect(url)

const JOB_MS = 200
const OTHERS = ['ann', 'ben', 'cat', 'dan']

const customerOf = (job) => job.data.customer
const waiting = (job) =>
  locks.request(`customer:${customerOf(job)}`, { wait: 30_000 }, () => sleep(JOB_MS))
const setAside = oneAtATime(locks, customerOf, () => sleep(JOB_MS))

/** Adds the jobs at once, and answers for how long each of the other customers waited for the end of its own. */
async function latencies(processor, hotJobs) {
  const name = `compare-${process.pid}-${performance.now()}`
  const queue = new Queue(name, { connection })
  const worker = new Worker(name, processor, { connection, concurrency: 4, autorun: false })
  await worker.waitUntilReady()
  const customers = [...Array(hotJobs).fill('hot'), ...OTHERS]
  await queue.addBulk(customers.map((customer) => ({ name: 'job', data: { customer } })))

  const waits = []
  const begun = performance.now()
  const done = new Promise((resolve) => {
    let left = customers.length
    worker.on('completed', (job) => {
      if (customerOf(job) !== 'hot') waits.push(performance.now() - begun)
      left -= 1
      if (left === 0) resolve()
    })
  })
  const running = worker.run()
  await done
  await worker.close()
  await running
  await queue.obliterate({ force: true })
  await queue.close()
  return waits
}

const rows = [
  ['without the customer with 20 jobs', setAside, 0],
  ['with it, a handler that waits for its lock', waiting, 20],
  ['with it, oneAtATime', setAside, 20],
]
const means = []
for (const [title, processor, hotJobs] of rows) {
  const waits = await latencies(processor, hotJobs)
  const mean = waits.reduce((sum, wait) => sum + wait) / waits.length
  means.push(mean)
  console.log(
    `${title}: ${Math.round(mean)} ms on average, ${Math.round(Math.max(...waits))} ms at most`,
  )
}
console.log(`oneAtATime: ${(means[2] / means[0]).toFixed(2)} times the average without it`)
await locks.close()
