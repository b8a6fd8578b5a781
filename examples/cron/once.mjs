import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'

/**
 * Runs `job`, unless another machine does; answers whether it ran here.
 *
 * The lock is kept for at least `atLeast` ms, even if the job is quicker: a machine whose clock is late
 * must find it taken. So that is longer than the clocks differ, and shorter than the job's period. A job
 * that fails gives the lock back at once, for the next machine.
 */
export async function once(locks, name, atLeast, job) {
  const lock = await locks.tryAcquire(name, {
    label: hostname()
      .replace(/[^\w.-]/g, '-')
      .slice(0, 48),
  })
  if (lock === null) return false
  const begun = performance.now()
  try {
    await job(lock)
    await sleep(Math.max(0, begun + atLeast - performance.now()))
    return true
  } finally {
    await lock.release()
  }
}
