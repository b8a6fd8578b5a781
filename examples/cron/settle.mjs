// A nightly job, started by the cron of every machine at the same time:
//
//   0 2 * * *  node settle.mjs
//
// It ends with 0 where it ran and where another machine ran it, and with 1 if it failed.

import { appendFile } from 'node:fs/promises'
import { connect } from 'holdfast'
import { once } from './once.mjs'

const { REDIS_URL, JOURNAL = '/dev/stdout', AT_LEAST_MS = 30_000, FAIL } = process.env

const locks = await connect(REDIS_URL)
try {
  const ran = await once(locks, 'cron:settle', Number(AT_LEAST_MS), settle)
  console.log(ran ? 'done' : 'another machine does it')
} finally {
  await locks.close()
}

/** `signal` ends it should the lock be lost, and a store that checks the fence refuses what is late. */
async function settle({ fence, signal }) {
  if (FAIL !== undefined) throw new Error('the books are closed')
  await appendFile(JOURNAL, `settled under ${fence}\n`, { signal })
}
