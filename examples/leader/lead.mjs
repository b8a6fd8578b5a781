/**
 * Leads whenever it is this process's turn, until `stop` is aborted: `work` gets a signal, and ends when
 * that is aborted, whether `stop` was or the lead is lost; and the fence of this lead, for whatever it
 * writes. A leader that is killed is followed after `ttl` ms, one that stops at once.
 */
export async function lead(locks, name, { ttl, stop }, work) {
  while (!stop.aborted) {
    let lead
    try {
      await locks.request(name, { ttl, wait: Infinity, signal: stop }, (lock) => {
        lead = lock.signal
        return work(AbortSignal.any([lead, stop]), lock.fence)
      })
    } catch (error) {
      // The lead was lost, or this process stops: work that breaks off then has not failed.
      if (!stop.aborted && !lead?.aborted && error.code !== 'ERR_LOCK_LOST') throw error
    }
  }
}
