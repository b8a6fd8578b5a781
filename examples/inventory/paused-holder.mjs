// Two instances of the service. One is stopped while it sells, and goes on when others have sold
// meanwhile: once without the check of fences, once with it. Ends with 0 if the check kept the stock
// exact, and its absence did not.

import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import pg from 'pg'
import { Instance } from './instance.mjs'
import { Prices } from './prices.mjs'

const IN_STOCK = 5
const BUYERS_MEANWHILE = 3

// The end of this program ends its instances, the stopped one included.
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1))

// A schema of its own: what else is in the database is left alone.
const schema = `inventory_${randomBytes(4).toString('hex')}`
const db = new pg.Client({ connectionString: process.env.DATABASE_URL })
await db.connect()
try {
  await db.query(`CREATE SCHEMA ${schema}; SET search_path TO ${schema}`)
  await db.query(readFileSync(new URL('schema.sql', import.meta.url), 'utf8'))
  const unchecked = await pauseWhileSelling('no')
  const checked = await pauseWhileSelling('yes')
  process.exitCode = checked.wrong === 0 && unchecked.wrong !== 0 ? 0 : 1
} finally {
  await db.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`)
  await db.end()
}

async function pauseWhileSelling(checkFences) {
  await db.query('TRUNCATE stock, sales')
  await db.query('INSERT INTO stock (item, n) VALUES (42, $1)', [IN_STOCK])
  const prices = await Prices.open()
  const settings = {
    LEASE_MS: '1000',
    PRICES_URL: prices.url,
    PGOPTIONS: `-c search_path=${schema}`,
    CHECK_FENCES: checkFences,
  }
  const instances = []
  try {
    instances.push(await Instance.start(settings))
    instances.push(await Instance.start(settings))
    const [a, b] = instances

    console.log(`Fences checked: ${checkFences}`)
    const asked = prices.asked()
    const late = a.buy()
    const early = late.then(({ status }) => {
      throw new Error(`instance A answers HTTP ${status} and has not asked for the price`)
    })
    const answer = await Promise.race([asked, early])
    a.pause()
    say('instance A', 'has read the stock, asks for the price, and is stopped')

    prices.answerAtOnce()
    // The first of these waits in the queue until the lease of A has ended.
    for (let i = 0; i < BUYERS_MEANWHILE; i++) {
      const { status, left } = await b.buy()
      say('instance B', `sells one: HTTP ${status}, ${left} left`)
    }

    answer()
    a.resume()
    const { status } = await late
    const fate = status === 200 ? 'accepted' : 'refused'
    say('instance A', `goes on, and its late write is ${fate}: HTTP ${status}`)

    const { left, sold } = await b.look()
    const wrong = left + sold - IN_STOCK
    const verdict = wrong === 0 ? 'exact' : `wrong by ${wrong}`
    say('the stock', `says ${left} left of ${IN_STOCK}, and ${sold} were sold: ${verdict}`)
    return { wrong }
  } finally {
    await Promise.all(instances.map((instance) => instance.stop()))
    prices.close()
  }
}

function say(who, what) {
  console.log(`  ${who}  ${what}`)
}
