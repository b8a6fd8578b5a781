--[[ acquire: take a lock that is free, or confirm that the caller owns it
  KEYS   1 lock  2 fence
  ARGV   1 token  2 ttl_ms  3 epoch_us
  REPLY  fence                          granted, or owned already by this token
         { remaining_ms, holder }       held by another; remaining_ms is -1 if it never expires
  WRITES lock fence
  AGAIN  the same fence; the lease is lengthened to ttl_ms, never shortened
  FAILS  WRONGTYPE if lock or fence holds something else; then nothing is changed
]]
local lock_key, fence_key = KEYS[1], KEYS[2]
local token, ttl_ms, epoch_us = ARGV[1], ARGV[2], ARGV[3]

-- The fence must exceed every fence issued before. A counter at or below the caller's epoch may
-- have lost numbers (a failover, a restart), so it is lifted; a missing one starts from the clock.
local function seed(at_least)
  local time = redis.call('TIME')
  local fence = string.format('%.0f', math.max(time[1] * 1000000 + time[2], at_least))
  redis.call('SET', fence_key, fence, 'PX', 86400000)
  return tonumber(fence)
end

local function refuse(failure)
  if failure.err:find('WRONGTYPE') or failure.err:find('not an integer') then
    return redis.error_reply('WRONGTYPE ' .. fence_key .. ' is not a fence counter')
  end
  return failure
end

if redis.call('SET', lock_key, token, 'NX', 'PX', ttl_ms) then
  -- Scripts are not rolled back: what can fail after the first write is undone by hand.
  local fence = redis.pcall('INCR', fence_key)
  if type(fence) == 'table' then
    redis.call('DEL', lock_key)
    return refuse(fence)
  end
  if fence == 1 then
    return seed(tonumber(epoch_us))
  end
  if fence > tonumber(epoch_us) then
    return fence
  end
  redis.call('SET', fence_key, epoch_us, 'KEEPTTL')
  return tonumber(epoch_us)
end

local holder = redis.call('GET', lock_key)
local remaining_ms = redis.call('PTTL', lock_key)
if holder ~= token then
  return { remaining_ms, holder }
end

-- A repeat after a lost reply. The fence of a hold never changes while its counter lives.
local fence = redis.pcall('GET', fence_key)
if type(fence) == 'table' then
  return refuse(fence)
end
if remaining_ms < tonumber(ttl_ms) then
  redis.call('PEXPIRE', lock_key, ttl_ms)
end
return fence and tonumber(fence) or seed(tonumber(epoch_us))
