// One of several processes. The leader says so, again and again; SIGTERM ends it.

import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from 'holdfast'

const { REDIS_URL, LEASE_MS = 5_000 } = process.env

const stop = new AbortController()
process.once('SIGTERM', () => stop.abort())

const locks = await connect(REDIS_URL)
console.log('ready')
// An error of the work is told, and this process campaigns again; without onError it would end the program.
const options = {
  ttl: Number(LEASE_MS),
  signal: stop.signal,
  onError: (error) => console.error(error),
}
await locks.lead('work', options, async ({ signal, fence }) => {
  while (!signal.aborted) {
    // The time is that of the machine's monotonic clock, which its processes share.
    console.log(`leads ${fence} ${process.hrtime.bigint()}`)
    await sleep(10, undefined, { signal })
  }
})
await locks.close()
