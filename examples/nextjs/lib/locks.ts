import { connect, type LockManager } from 'holdfast'

/** Next loads this module once for each of its bundles, and again after a change: all of them share one manager. */
const shared = globalThis as { locks?: Promise<LockManager> | undefined }

/** Connects with the first request, not while Next builds. */
export function locks(): Promise<LockManager> {
  shared.locks ??= connect(process.env.REDIS_URL).catch((error) => {
    // The next request tries again.
    shared.locks = undefined
    throw error
  })
  return shared.locks
}
