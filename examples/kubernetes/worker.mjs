import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from 'holdfast'

// If the node of the pod dies, the others wait for so long.
const ttl = Number(process.env.LOCK_TTL_MS ?? 10_000)
const ending = new AbortController()
process.once('SIGTERM', () => ending.abort())

const locks = await connect(process.env.REDIS_URL)
const label = process.env.POD_NAME ?? 'pod'
await locks.lead(
  'settlement',
  { ttl, label, signal: ending.signal, onError: console.error },
  settle,
)
await locks.close()
console.log('ended')

/** Leads until the pod is told to end, or the lead is lost. */
async function settle({ signal, fence }) {
  console.log(`leads with ${fence}`)
  while (!signal.aborted) await sleep(50)
  console.log('hands over')
}
