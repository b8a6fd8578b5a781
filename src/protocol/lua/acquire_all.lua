--[[ acquire_all: take several free locks, or none of them
  KEYS   lock,fence,queue,…
         these three of each lock; the caller bounds their number, and so the work
  ARGV   1 ttl_ms  2 epoch_us
         and then a token for each lock
  REPLY  { fence, … }  each lock is its token's · 0 one of them is held or waited for
  WRITES lock fence
  AGAIN  the same fences; a lease is lengthened to ttl_ms, never shortened
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is at its end; then nothing is changed
]]
--#include constants.lua
--#include clock.lua
--#include counter.lua
--#include fence.lua
local ttl_ms, epoch_us = tonumber(ARGV[1]), tonumber(ARGV[2])

local now_us = server_time_us()
local values, counters, fences = {}, {}, {}
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
  local counter, failure = read_counter(fence_key)
  if failure then
    return failure
  end
  values[i], counters[i] = value, counter
end
for i = 1, #ARGV - 2 do
  local token, lock_key, fence_key = ARGV[2 + i], KEYS[3 * i - 2], KEYS[3 * i - 1]
  if not values[i] then
    redis.call('SET', lock_key, token, 'PX', ttl_ms)
    fences[i] = issue_fences(fence_key, counters[i], 1, epoch_us, now_us)
  else
    if redis.call('PTTL', lock_key) < ttl_ms then
      redis.call('PEXPIRE', lock_key, ttl_ms)
    end
    fences[i] = counters[i] or issue_fences(fence_key, nil, 1, epoch_us, now_us)
  end
end
return fences
