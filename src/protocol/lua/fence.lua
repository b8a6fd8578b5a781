-- fence: numbers that rise from owner to owner. Needs constants.lua.

-- The error for a key whose value the scripts have not written.
local function refusal(failure, key, what)
  if failure.err:find('WRONGTYPE') then
    return redis.error_reply('WRONGTYPE ' .. key .. ' is not ' .. what)
  end
  return failure
end

-- Reserves `block` fences above `counter`, the last one issued for any lock, and returns the first of them. A failover or
-- restart may have lost the fences above a counter at or below `epoch_us`, so the epoch lifts it. Without a counter, and
-- above one that INCR has begun, the fences begin at the server's time.
local function issue_fences(fence_key, counter, block, epoch_us, now_us)
  local first = math.max((counter or 0) + 1, epoch_us)
  if not counter or counter < FENCE_MIN then
    first = math.max(first, now_us)
  end
  redis.call('SET', fence_key, string.format('%.0f', first + block - 1))
  return first
end
