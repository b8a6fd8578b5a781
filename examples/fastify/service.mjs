import fastify from 'fastify'
import { connect, LockTimeoutError } from 'holdfast'

const locks = await connect(process.env.REDIS_URL)
const app = fastify()

app.post('/reports/:id', async (request, reply) => {
  const gone = goneSignal(reply.raw)
  return locks.request(
    `report:${request.params.id}`,
    { wait: 10_000, signal: gone },
    async (lock) => {
      // The work ends when the client has gone, and when the lock is lost.
      const lines = await build(request.params.id, AbortSignal.any([gone, lock.signal]))
      return { lines, fence: lock.fence }
    },
  )
})

app.setErrorHandler((error, _request, reply) => {
  if (error instanceof LockTimeoutError) return reply.code(503).send({ error: 'busy: try again' })
  console.error(error.name)
  return reply.code(500).send({ error: 'something went wrong' })
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

console.log(await app.listen({ host: '127.0.0.1', port: Number(process.env.PORT ?? 8080) }))

process.once('SIGTERM', async () => {
  // Connections are kept for a next request, which shall go to another instance.
  const sweep = setInterval(() => app.server.closeIdleConnections(), 50)
  // First the requests, which still need their locks; then the locks.
  await app.close()
  clearInterval(sweep)
  await locks.close()
})
