-- start_counter: issue a fence after an INCRBY of the counter that did not. Needs clock.lua, counter.lua and fence.lua.

-- The first fence of a counter that INCR has begun, or nothing and the error. `reply` is the answer to INCRBY by `block`.
local function start_counter(fence_key, reply, block, epoch_us)
  local before = type(reply) == 'number' and reply - block
  if before and before > FENCE_MAX then
    -- Scripts are not rolled back. The error is about the counter as it was.
    redis.call('INCRBY', fence_key, -block)
  end
  local now_us = server_time_us()
  if before and before < FENCE_MIN then
    return issue_fences(fence_key, before, block, epoch_us, now_us)
  end
  local _, failure = read_counter(fence_key)
  return nil, failure or reply
end
