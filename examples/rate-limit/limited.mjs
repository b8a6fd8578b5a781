import { setTimeout as sleep } from 'node:timers/promises'

/**
 * Runs `call` with one of `limit` permits that all processes share, and keeps the permit for at least
 * `per` ms: so at most `limit` calls run at a time, and at most `limit` begin within any `per` ms. The
 * permit of a process that dies comes back with its lease.
 */
export async function limited(locks, name, { limit, per = 0 }, call) {
  const options = { mode: 'shared', limit, wait: Number.POSITIVE_INFINITY }
  const permit = await locks.acquire(name, options)
  const period = sleep(per)
  try {
    return await call(permit.signal)
  } finally {
    // The caller need not wait for the rest of the period.
    period.then(() => permit.release()).catch((error) => console.error(error.message))
  }
}
