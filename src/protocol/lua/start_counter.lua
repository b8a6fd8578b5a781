-- start_counter: issue a fence after an INCRBY of the counter that did not, as by next_fence.lua. Needs counter.lua and
-- fence.lua.

-- The first fence of a counter that INCRBY has begun, or nothing and the error. `reply` is the answer to INCRBY by `block`.
local function start_counter(fence_key, reply, block, epoch_us)
  local before = type(reply) == 'number' and reply - block
  -- By `pcall`: the lock is taken already, and its taker frees it if the server refuses the time.
  local time = before and before < FENCE_MIN and redis.pcall('TIME')
  if time and not time.err then
    return issue_fences(fence_key, before, block, epoch_us, time[1] * 1000000 + time[2])
  end
  -- Scripts are not rolled back. The error is about the counter as it was.
  if before == 0 then
    redis.call('DEL', fence_key)
  elseif before then
    redis.call('INCRBY', fence_key, -block)
  end
  local _, failure = read_counter(fence_key)
  return nil, time or failure or reply
end
