import { once } from 'node:events'
import { createServer } from 'node:http'
import { connect, LockTimeoutError } from 'holdfast'
import { StaleFenceError, Stock } from './stock.mjs'

const { env } = process
const locks = await connect(env.REDIS_URL, { ttl: Number(env.LEASE_MS ?? 10_000) })
const stock = new Stock({
  connectionString: env.DATABASE_URL,
  checkFences: env.CHECK_FENCES !== 'no',
})

const server = createServer(async (request, response) => {
  const [status, answer] = await respond(request).catch(toAnswer)
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(answer))
})
server.listen(Number(env.PORT ?? 8080), '127.0.0.1')
await once(server, 'listening')
console.log(`http://127.0.0.1:${server.address().port}`)

process.once('SIGTERM', async () => {
  server.close()
  await once(server, 'close')
  await locks.close()
  await stock.close()
})

/** `GET /stock?item=42` and `POST /buy?item=42`. */
async function respond({ method, url }) {
  const { pathname, searchParams } = new URL(url, 'http://localhost')
  const item = Number(searchParams.get('item'))
  // Ahead of the lock: nobody shall take locks for what does not exist.
  const seen = Number.isInteger(item) ? await stock.look(item) : undefined
  if (seen === undefined) return [404, { error: 'no such item' }]
  if (`${method} ${pathname}` === 'GET /stock') return [200, seen]
  if (`${method} ${pathname}` === 'POST /buy') return buy(item)
  return [404, { error: 'GET /stock?item=42 or POST /buy?item=42' }]
}

async function buy(item) {
  let answer
  try {
    await locks.request(`item:${item}`, { wait: 10_000 }, async ({ fence }) => {
      answer = await sell(item, fence)
    })
  } catch (error) {
    // What the database has accepted stands, even if the lock was lost meanwhile.
    if (answer === undefined) throw error
  }
  return answer
}

async function sell(item, fence) {
  const left = await stock.read(item, fence)
  if (left === 0) return [410, { error: 'sold out' }]
  // To ask lock.held behind this line would notice a pause in it, but not one a moment later.
  const price = await priceOf(item)
  await stock.sell(item, fence, left - 1, price)
  return [200, { left: left - 1, price }]
}

async function priceOf(item) {
  if (env.PRICES_URL === undefined) return 100
  const response = await fetch(`${env.PRICES_URL}?item=${item}`)
  return Number(await response.text())
}

function toAnswer(error) {
  if (error instanceof StaleFenceError) return [409, { error: 'somebody was quicker: try again' }]
  if (error instanceof LockTimeoutError) return [503, { error: 'too many buyers: try again' }]
  console.error(error)
  return [500, { error: 'something went wrong' }]
}
