import { LockTimeoutError } from 'holdfast'
import { locks } from '../../../lib/locks'

type Context = { params: Promise<{ id: string }> }

export async function POST(request: Request, { params }: Context): Promise<Response> {
  const { id } = await params
  const manager = await locks()
  // A client that disconnects leaves the wait queue.
  const options = { wait: Number(process.env.WAIT_MS ?? 5_000), signal: request.signal }
  try {
    const report = await manager.request(`report:${id}`, options, async (lock) => {
      // The work ends when the client has gone, and when the lock is lost.
      const lines = await build(AbortSignal.any([request.signal, lock.signal]))
      return { lines, fence: lock.fence }
    })
    return Response.json(report)
  } catch (error) {
    if (!(error instanceof LockTimeoutError)) throw error
    return Response.json({ error: 'busy: try again' }, { status: 503 })
  }
}

async function build(signal: AbortSignal): Promise<number> {
  for (let step = 0; step < Number(process.env.STEPS ?? 3); step++) {
    signal.throwIfAborted()
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  return 3
}
