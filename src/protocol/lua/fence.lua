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
  local is_new = not counter or counter < FENCE_MIN
  local first = math.max((counter or 0) + 1, epoch_us, is_new and now_us or 0)
  if not is_new and first == counter + 1 then
    -- The usual case, without a number to format.
    redis.call('INCRBY', fence_key, block)
    return first
  end
  local last = string.format('%.0f', first + block - 1)
  if not is_new or fence_key == 'holdfast:fence' or fence_key:find('^holdfast:{%d+}:fence$') then
    redis.call('SET', fence_key, last, 'KEEPTTL')
  else
    -- A lock's own counter, which would otherwise remain for ever.
    redis.call('SET', fence_key, last, 'PX', FENCE_MS)
  end
  return first
end
