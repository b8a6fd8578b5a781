-- start_counter: issue a fence after an INCRBY of the counter that did not, as by next_fence.lua. Needs counter.lua and
-- fence.lua.

-- The first fence of a counter that has not begun, or may be too far ahead of the clock; or nothing and the error. `reply`
-- is the answer to INCRBY by `block`.
local function start_counter(fence_key, reply, block, epoch_us)
  -- Scripts are not rolled back, and an error is about the counter as it was.
  local before = type(reply) == 'number' and reply - block
  if before == 0 then
    redis.call('DEL', fence_key)
  elseif before then
    redis.call('INCRBY', fence_key, -block)
  end
  -- By `pcall`: the lock is taken already, and its taker frees it if the server refuses the time.
  local time = redis.pcall('TIME')
  if time.err then
    return nil, time
  end
  local now_us = time[1] * 1000000 + time[2]
  local counter, failure = read_counter(fence_key, now_us + AHEAD_US)
  if failure or not before then
    return nil, failure or reply
  end
  return issue_fences(fence_key, counter, block, epoch_us, now_us)
end
