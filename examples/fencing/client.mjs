/** Sells one item at a service that checks fences. */
export function sell(locks, url) {
  return locks.request('item:42', async (lock) => {
    const n = Number(await (await send(url, lock)).text())
    if (n > 0) await send(url, lock, { method: 'PUT', body: `${n - 1}` })
    return n > 0
  })
}

/** Sends the fence along, also with a GET, and gives up when the lock is lost. */
export async function send(url, lock, options = {}) {
  const headers = { Fence: `${lock.fence}` }
  const response = await fetch(url, { ...options, headers, signal: lock.signal })
  if (response.status === 412) throw new Error(`a later owner of ${lock.name} has been here`)
  if (!response.ok) throw new Error(`${url} answered ${response.status}`)
  return response
}
