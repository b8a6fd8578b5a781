-- open_lock: reads the lock and its keys, and brings it up to now: what `token` was granted by message counts as claimed, and
-- a lock without shares that last as free. Needs lock_state.lua and shares.lua, the locals of the keys, `value` (the lock's),
-- `token` and `epoch_us`. Sets `lock`, or returns an error.
local lock, failure = read_lock(lock_key, fence_key, queue_key, waiters_key, shared_key, waiting_key, value, epoch_us)
if failure then
  return failure
end
claim(lock, token)
free_if_unshared(lock)
