/** Reads the hash, and writes `n` if it is given, unless a greater fence has been there. */
const GUARD = `
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence')) or 0
if tonumber(ARGV[1]) < seen then
  return redis.error_reply('STALE a later owner of the lock has been here')
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
if ARGV[2] then redis.call('HSET', KEYS[1], 'n', ARGV[2]) end
return redis.call('HGET', KEYS[1], 'n')
`

/** Sells one item. `redis` is a client of the package redis, which the service has anyway. */
export function sell(locks, redis, item) {
  return locks.request(`item:${item}`, async (lock) => {
    const n = await read(redis, lock, item)
    if (n > 0) await write(redis, lock, item, n - 1)
    return n > 0
  })
}

export async function read(redis, lock, item) {
  const n = await redis.eval(GUARD, { keys: [`stock:${item}`], arguments: [`${lock.fence}`] })
  return Number(n)
}

export async function write(redis, lock, item, n) {
  await redis.eval(GUARD, { keys: [`stock:${item}`], arguments: [`${lock.fence}`, `${n}`] })
}
