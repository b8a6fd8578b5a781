// A nightly job, started by the cron of every machine at the same time:
//
//   0 2 * * *  node settle.mjs
//
// It ends with 0 where it ran and where another machine ran it, and with 1 if it failed.

import { appendFile } from 'node:fs/promises'
import { connect } from 'holdfast'

const {
  REDIS_URL,
  JOURNAL = '/dev/stdout',
  CRON = '0 2 * * *',
  TIME_ZONE = 'Europe/Berlin',
  FAIL,
} = process.env

const locks = await connect(REDIS_URL)
try {
  // With retry the next machine runs it if this one fails, or crashes; it waits until then.
  const options = { cron: CRON, timeZone: TIME_ZONE, retry: true, wait: 600_000 }
  const { ran, slot } = await locks.runOnce('cron:settle', options, settle)
  console.log(ran ? `done: ${slot}` : `another machine has done it: ${slot}`)
} finally {
  await locks.close()
}

/** `signal` ends it should the lock be lost, and a store that checks the fence refuses what is late. */
async function settle({ fence, signal }, slot, missed) {
  if (FAIL !== undefined) throw new Error('the books are closed')
  // The nights in which no machine was up, and then this one.
  for (const night of [...missed, slot])
    await appendFile(JOURNAL, `settled ${night} under ${fence}\n`, { signal })
}
