-- fence: numbers that rise from owner to owner. Part of every script that may issue one; uses their fence_key
-- and epoch_us.

local FENCE_MS = 86400000
-- The largest counter that fences may follow: beyond 2^53 numbers are not exact, and no call reserves the rest.
local COUNTER_MAX = 9e15

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- Reserves fences above `counter`, the last one issued, and returns the first of them. A counter at or
-- below the caller's epoch, or that of whom they are for, may have lost numbers (a failover, a restart),
-- so it is lifted; without a counter they begin at the server's clock.
local function issue(counter, reserved, epoch)
  local first = math.max(counter and counter + 1 or now_us, tonumber(epoch_us), tonumber(epoch or 0))
  local last = string.format('%.0f', first + reserved - 1)
  if counter then
    redis.call('SET', fence_key, last, 'KEEPTTL')
  else
    redis.call('SET', fence_key, last, 'PX', FENCE_MS)
  end
  return first
end

-- The error for a key that holds something else than ours.
local function refusal(failure, key, what)
  if failure.err:find('WRONGTYPE') or failure.err:find('not an integer') then
    return redis.error_reply('WRONGTYPE ' .. key .. ' is not ' .. what)
  end
  return failure
end

-- The last fence issued, or nothing; and the error, if their key holds something else.
local function last_fence()
  local counter = redis.pcall('GET', fence_key)
  if type(counter) == 'table' then
    return nil, refusal(counter, fence_key, 'a fence counter')
  elseif counter and not counter:find('^%d+$') then
    return nil, refusal({ err = 'not an integer' }, fence_key, 'a fence counter')
  elseif counter and tonumber(counter) > COUNTER_MAX then
    return nil, redis.error_reply('FENCE ' .. fence_key .. ' is not a counter below 9000000000000000')
  end
  return counter and tonumber(counter) or nil
end
