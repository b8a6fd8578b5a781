--[[ change_shares: take shares of a lock and give others up, for several callers at once, as if each asked alone
  KEYS   1 lock  2 fence  3 queue  4 shared
  ARGV   1 count  2 ttl_ms  3 epoch_us
         and then the tokens: `count` of them take a share, the others give theirs up
  REPLY  { fence, beside }  done: the first of the fences of those that took a share, in their order, 0 if none did; beside is
                            1 if the lock was shared before
         0                  nothing is changed, each must ask alone: others wait, the lock is not free to share, a share of it
                            has ended, awaits its claim or has several permits, or a token has a share that was to take
                            one, or none
  WRITES lock fence shared
  AGAIN  0
  FAILS  WRONGTYPE if a key but the counter holds something else; then nothing is changed
]]
--#include constants.lua
--#include clock.lua
local lock_key, fence_key, queue_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local block, ttl_ms, epoch_us = ARGV[1], ARGV[2], ARGV[3]
-- How many tokens there are, and how many of them, the first, take a share.
local tokens, takers = #ARGV - 3, tonumber(block)
local value = redis.call('GET', lock_key)
if redis.call('EXISTS', queue_key) == 1 or value and value ~= SHARED or not value and tokens > takers then
  return 0
end
local now_ms = math.floor(server_time_us() / 1000)
local members = redis.call('ZCOUNT', shared_key, '-inf', '+inf')
if value then
  -- A share that lasts has two members. A third is the record of a grant by message, or of further permits.
  local live = redis.call('ZCOUNT', shared_key, '(' .. now_ms, '+inf')
  if live == 0 or members ~= 2 * live then
    return 0
  end
  for i = 1, tokens do
    local token = ARGV[3 + i]
    if (redis.call('ZSCORE', shared_key, token) and true or false) ~= (i > takers) then
      return 0
    end
  end
end

local first = 0
if takers > 0 then
  --#include next_fence.lua
  if not fence then
    return 0
  end
  first = fence
  if not value and members > 0 then
    redis.call('DEL', shared_key)
  end
  for i = 1, takers do
    local token = ARGV[3 + i]
    redis.call('ZADD', shared_key, now_ms + ttl_ms, token, string.format('%.0f', 1 - i - first), '#' .. token)
  end
end
for i = takers + 1, tokens do
  local token = ARGV[3 + i]
  redis.call('ZREM', shared_key, token, '#' .. token)
end
-- The lock lasts as long as its last share.
local last_ms = redis.call('ZRANGE', shared_key, -1, -1, 'WITHSCORES')[2]
if last_ms then
  local lasts_ms = math.ceil(last_ms - now_ms)
  redis.call('SET', lock_key, SHARED, 'PX', lasts_ms)
  redis.call('PEXPIRE', shared_key, lasts_ms + KEYS_MS)
else
  redis.call('DEL', lock_key)
end
return { first, value and 1 or 0 }
