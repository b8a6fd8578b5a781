--[[ acquire_all: take several free locks, or none of them
  KEYS   lock,fence,queue,…
         these three of each lock; the caller bounds their number, and so the work
  ARGV   1 ttl_ms  2 epoch_us
         and then a token for each lock
  REPLY  { fence, … }  each lock is its token's · 0 one of them is held or waited for
  WRITES lock fence
  AGAIN  later fences; a lease is lengthened to ttl_ms, never shortened
  FAILS  WRONGTYPE if a key holds something else, FENCE if a counter is too far ahead of the clock; then nothing is changed
]]
--#include constants.lua
--#include clock.lua
--#include counter.lua
--#include fence.lua
local ttl_ms, epoch_us = tonumber(ARGV[1]), tonumber(ARGV[2])

local now_us = server_time_us()
-- The locks have one counter together, or one each.
local values, counters, counts, following, fences = {}, {}, {}, {}, {}
for i = 1, #ARGV - 2 do
  local token, lock_key, fence_key, queue_key = ARGV[2 + i], KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local value = redis.pcall('GET', lock_key)
  if type(value) == 'table' then
    return refusal(value, lock_key, 'a lock')
  end
  local is_owner = value == token or value == token .. MARK
  if not is_owner and (value or redis.call('EXISTS', queue_key) == 1) then
    return 0
  end
  values[i] = value
  if counters[fence_key] == nil then
    local counter, failure = read_counter(fence_key, now_us + AHEAD_US)
    if failure then
      return failure
    end
    counters[fence_key] = counter or false
  end
  counts[fence_key] = (counts[fence_key] or 0) + 1
end
for i = 1, #ARGV - 2 do
  local token, lock_key, fence_key, queue_key = ARGV[2 + i], KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  if not values[i] then
    redis.call('SET', lock_key, token, 'PX', ttl_ms)
  elseif redis.call('PTTL', lock_key) < ttl_ms then
    redis.call('PEXPIRE', lock_key, ttl_ms)
  end
  -- Plain commands may have taken the lock ahead of those who wait.
  if values[i] == token and redis.call('EXISTS', queue_key) == 1 then
    redis.call('SET', lock_key, token .. MARK, 'KEEPTTL')
  end
  fences[i] = following[fence_key]
    or issue_fences(fence_key, counters[fence_key], counts[fence_key], epoch_us, now_us)
  following[fence_key] = fences[i] + 1
end
return fences
