import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'

/** What is stored, by path. A fence must last as long as what it protects: keep them together. */
const stored = new Map()

export const service = createServer(async (request, response) => {
  const body = await text(request)
  // Nothing is awaited from here on: to check and to write is one step.
  const entry = stored.get(request.url) ?? { body: '0', fence: 0, version: 0 }
  const status = check(request, entry)
  if (status === 200) {
    if (request.headers.fence !== undefined) entry.fence = Number(request.headers.fence)
    if (request.method === 'PUT') Object.assign(entry, { body, version: entry.version + 1 })
    stored.set(request.url, entry)
  }
  // What a cache answers has not raised the fence.
  const headers = { 'Cache-Control': 'no-store', ETag: `"${entry.version}"` }
  response.writeHead(status, headers).end(status === 200 ? entry.body : '')
})

function check({ method, headers }, entry) {
  const { fence, 'if-match': match } = headers
  if (fence !== undefined && !/^\d{1,16}$/.test(fence)) return 400
  if (fence !== undefined && Number(fence) < entry.fence) return 412
  if (match !== undefined && match !== `"${entry.version}"`) return 412
  if (method === 'PUT' && fence === undefined && match === undefined) return 428
  return 200
}
