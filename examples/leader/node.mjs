// One of several processes. The leader says so, again and again; SIGTERM ends it.

import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from 'holdfast'
import { lead } from './lead.mjs'

const { REDIS_URL, LEASE_MS = 5_000 } = process.env

const stop = new AbortController()
process.once('SIGTERM', () => stop.abort())

const locks = await connect(REDIS_URL)
console.log('ready')
await lead(locks, 'leader', { ttl: Number(LEASE_MS), stop: stop.signal }, async (signal, fence) => {
  while (!signal.aborted) {
    // The time is that of the machine's monotonic clock, which its processes share.
    console.log(`leads ${fence} ${process.hrtime.bigint()}`)
    await sleep(10, undefined, { signal })
  }
})
await locks.close()
