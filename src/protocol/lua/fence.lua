-- fence: numbers that rise from owner to owner. Needs constants.lua.

-- The error for a key whose value the scripts have not written.
local function refusal(failure, key, what)
  if failure.err:find('WRONGTYPE') then
    return redis.error_reply('WRONGTYPE ' .. key .. ' is not ' .. what)
  end
  return failure
end

-- Reserves `block` fences above `counter`, the last one issued, and returns the first of them. A failover or
-- restart may have lost the fences above a counter at or below `epoch_us`, so the epoch lifts it. Without a
-- counter the fences begin at the server's time.
local function issue_fences(fence_key, counter, block, epoch_us, now_us)
  local first = math.max(counter and counter + 1 or now_us, epoch_us)
  local last = string.format('%.0f', first + block - 1)
  if counter then
    redis.call('SET', fence_key, last, 'KEEPTTL')
  else
    redis.call('SET', fence_key, last, 'PX', FENCE_MS)
  end
  return first
end
