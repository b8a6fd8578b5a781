import express from 'express'
import { connect, LockTimeoutError } from 'holdfast'

const locks = await connect(process.env.REDIS_URL)
const app = express()

app.post('/reports/:id', async ({ params: { id } }, response) => {
  const gone = goneSignal(response)
  const report = await locks.request(
    `report:${id}`,
    { wait: 10_000, signal: gone },
    async (lock) => {
      // The work ends when the client has gone, and when the lock is lost.
      const lines = await build(id, AbortSignal.any([gone, lock.signal]))
      return { lines, fence: lock.fence }
    },
  )
  response.json(report)
})

app.use((error, _request, response, _next) => {
  if (error instanceof LockTimeoutError) {
    response.status(503).json({ error: 'busy: try again' })
    return
  }
  console.error(error.name)
  response.status(500).json({ error: 'something went wrong' })
})

/** Aborted when the client disconnects before it has the answer. */
function goneSignal(response) {
  const gone = new AbortController()
  response.once('close', () => {
    if (!response.writableFinished) gone.abort()
  })
  return gone.signal
}

async function build(id, signal) {
  console.log(`building ${id}`)
  for (let step = 0; step < Number(process.env.STEPS ?? 3); step++) {
    signal.throwIfAborted()
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  console.log(`built ${id}`)
  return 3
}

const server = app.listen(Number(process.env.PORT ?? 8080), '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${server.address().port}`)
})

process.once('SIGTERM', async () => {
  // Connections are kept for a next request, which shall go to another instance.
  const sweep = setInterval(() => server.closeIdleConnections(), 50)
  // First the requests, which still need their locks; then the locks.
  await new Promise((resolve) => server.close(resolve))
  clearInterval(sweep)
  await locks.close()
})
