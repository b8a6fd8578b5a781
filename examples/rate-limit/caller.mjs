// Calls an API that takes three calls at a time, and three in PER_MS. Any number of processes may do so.

import { connect } from 'holdfast'
import { limited } from './limited.mjs'

const { REDIS_URL, API_URL, CALLS = 10, PER_MS = 1_000 } = process.env

const locks = await connect(REDIS_URL)
const calls = Array.from({ length: Number(CALLS) }, () =>
  limited(locks, 'api', { limit: 3, per: Number(PER_MS) }, (signal) => fetch(API_URL, { signal })),
)
const answers = await Promise.all(calls)
console.log(`${answers.filter(({ ok }) => ok).length} answers`)
await locks.close()
