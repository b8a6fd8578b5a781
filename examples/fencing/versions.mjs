/** Sells one item at a service that knows versions, but no fences. */
export function sell(locks, url) {
  return locks.request('item:42', async (lock) => {
    for (;;) {
      const read = await fetch(url, { signal: lock.signal })
      const n = Number(await read.text())
      if (n === 0) return false
      const headers = { 'If-Match': read.headers.get('etag') }
      const options = { method: 'PUT', body: `${n - 1}`, headers, signal: lock.signal }
      const { ok, status } = await fetch(url, options)
      if (ok) return true
      if (status !== 412) throw new Error(`${url} answered ${status}`)
      // Another process wrote first. The owner of the lock reads again; others end.
      lock.assertHeld()
    }
  })
}
