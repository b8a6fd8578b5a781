--[[ pass: give a share of a lock up, and let the next of the same process have it
  KEYS   1 lock  2 fence  3 shared
  ARGV   1 token  2 epoch_us  3 heir  4 ttl_ms  5 limit
         heir: a token that was never used before
         limit: at most so many share the lock then
  REPLY  fence: the share is the heir's, for ttl_ms · 0 not the owner
         2 more have a share than limit, so the heir has to wait: nothing is changed, release it
  WRITES lock fence shared
  AGAIN  0; the heir keeps its share
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is at its end; then nothing is changed
]]
local lock_key, fence_key, shared_key = KEYS[1], KEYS[2], KEYS[3]
local token, epoch_us, heir, ttl_ms, limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

--#include fence.lua

local now_ms = math.floor(now_us / 1000)
local holder = redis.call('GET', lock_key)
local ends = (holder == 'hf1.shared' or holder == 'hf1.shared+') and redis.call('ZSCORE', shared_key, token)
if not ends or tonumber(ends) <= now_ms then
  return 0
end
-- Others may have asked for shares with a higher limit, or with none.
if redis.call('ZCOUNT', shared_key, '(' .. now_ms, '+inf') > (tonumber(limit) or 0) then
  return 2
end
local counter, unreadable = last_fence()
if unreadable then
  return unreadable
end
-- Ahead of the rest: it needs no memory, so Redis lets the others pass at maxmemory.
redis.call('ZREM', shared_key, token, '#' .. token, '?' .. token)
local fence = issue(counter, 1)
redis.call('ZADD', shared_key, now_ms + ttl_ms, heir, string.format('%.0f', -fence), '#' .. heir)
-- The lock lasts as long as the last share of it.
local last = tonumber(redis.call('ZRANGE', shared_key, -1, -1, 'WITHSCORES')[2])
redis.call('PEXPIRE', lock_key, last - now_ms)
redis.call('PEXPIRE', shared_key, last - now_ms + 30000)
return fence
