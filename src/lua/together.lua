--[[ together: take several free locks, or none of them
  KEYS   lock,fence,queue,…
         these three of each lock; the caller bounds their number, and so the work
  ARGV   1 ttl_ms  2 epoch_us
         and then a token for each lock
  REPLY  { fence, … }  each lock is its token's · 0 one of them is held, or somebody waits for it
  WRITES lock fence
  AGAIN  the same fences; a lease is lengthened to ttl_ms, never shortened
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is at its end; then nothing is changed
]]
local ttl_ms, epoch_us = ARGV[1], ARGV[2]
local fence_key
--#include fence.lua

local function owns(holder, token)
  return holder == token or holder == token .. '+'
end

local holders, counters, fences = {}, {}, {}
for i = 1, #ARGV - 2 do
  local lock_key = KEYS[3 * i - 2]
  local holder = redis.pcall('GET', lock_key)
  if type(holder) == 'table' then
    return refusal(holder, lock_key, 'a lock')
  end
  if not owns(holder, ARGV[2 + i]) and (holder or redis.call('EXISTS', KEYS[3 * i]) == 1) then
    return 0
  end
  fence_key = KEYS[3 * i - 1]
  local counter, unreadable = last_fence()
  if unreadable then
    return unreadable
  end
  holders[i], counters[i] = holder, counter
end
for i = 1, #ARGV - 2 do
  local lock_key = KEYS[3 * i - 2]
  fence_key = KEYS[3 * i - 1]
  if not holders[i] then
    redis.call('SET', lock_key, ARGV[2 + i], 'PX', ttl_ms)
    fences[i] = issue(counters[i], 1)
  else
    if redis.call('PTTL', lock_key) < tonumber(ttl_ms) then
      redis.call('PEXPIRE', lock_key, ttl_ms)
    end
    fences[i] = counters[i] or issue(nil, 1)
  end
end
return fences
