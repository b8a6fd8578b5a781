// An event loop that is blocked, and two locks meanwhile: one that holdfast renews from
// its own thread, and one that a timer of this process renews, as hand-written code does it.

import { randomUUID } from 'node:crypto';

const LEASES = 3;

/**
 * Holds two locks, blocks the event loop for three leases, and returns the state of each in the
 * first line after.
 */
export async function blockWhileHolding({ locks, redis, prefix, ttlMs }) {
  const lock = await locks.acquire('blocked', { ttl: ttlMs });
  const byHand = await holdByHand(redis, `${prefix}by-hand`, ttlMs);
  const began = performance.now();
  while (performance.now() - began < LEASES * ttlMs);
  const blockedMs = performance.now() - began;
  // In the first line after: nothing of this process has run meanwhile but the native thread.
  const { held, remaining } = lock;
  const timerLock = await byHand.owned();
  byHand.stop();
  const released = await lock.release();
  return { blockedMs, held, remaining, released, timerLock, fence: lock.fence };
}

/** `SET key token NX PX ttl`, renewed by `setInterval` at a third of the lease. */
async function holdByHand(redis, key, ttlMs) {
  const token = randomUUID();
  await redis.sendCommand(['SET', key, token, 'NX', 'PX', ttlMs]);
  const renew = () => redis.sendCommand(['PEXPIRE', key, ttlMs]).catch(() => {});
  const timer = setInterval(renew, ttlMs / 3);
  return {
    owned: async () => (await redis.sendCommand(['GET', key])) === token,
    stop: () => clearInterval(timer),
  };
}
