import { createServer } from 'node:http'
import { connect } from 'holdfast'

const locks = await connect(process.env.REDIS_URL)
const server = createServer((request, response) => {
  locks
    .request(`page:${request.url}`, { wait: 5_000 }, (lock) => response.end(`${lock.fence}\n`))
    .catch((error) => response.writeHead(503).end(error.message))
})
server.listen(process.env.PORT ?? 3000, () => console.log(`listens on ${server.address().port}`))

// docker stop sends SIGTERM.
process.once('SIGTERM', () => {
  server.close()
  locks.close()
})
