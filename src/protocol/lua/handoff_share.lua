--[[ handoff_share: give a share up to another caller of the same process
  KEYS   1 lock  2 fence  3 shared  4 queue
  ARGV   1 token  2 epoch_us  3 successor  4 ttl_ms  5 limit
         successor: a token that was never used before, with as many permits
         limit: of the successor: a share if at most limit permits are held
  REPLY  {fence, waiting}: the share is the successor's, for ttl_ms; entries in the wait queue
         0 not the owner
         2 more permits than limit are held, so the successor must wait, or no other: release the share
  WRITES lock fence shared
  AGAIN  0; the successor keeps its share
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is too far ahead of the clock; then nothing is changed
]]
--#include constants.lua
local lock_key, fence_key, shared_key, queue_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, epoch_us, successor = ARGV[1], ARGV[2], ARGV[3]
local ttl_ms, limit = tonumber(ARGV[4]), tonumber(ARGV[5])

--#include clock.lua
--#include permits.lua
local now_ms = math.floor(server_time_us() / 1000)
local value = redis.call('GET', lock_key)
if value == LONE_SHARE .. token then
  -- No other share was asked for yet.
  return 2
end
local ends_ms = (value == SHARED or value == SHARED .. MARK) and tonumber(redis.call('ZSCORE', shared_key, token) or nil)
if not ends_ms or ends_ms <= now_ms then
  -- Its owner comes late, and is not silent. Whatever else stands at the key, there is no share.
  redis.pcall('ZREM', shared_key, '?' .. token)
  return 0
end
-- Others may have taken shares with a higher limit, or with none.
if redis.call('ZCOUNT', shared_key, '(' .. now_ms, '+inf') + further_permits(shared_key) > (limit or 0) then
  redis.call('ZREM', shared_key, '?' .. token)
  return 2
end
local waiting = redis.call('ZCOUNT', queue_key, '-inf', '+inf')
local block = '1'
--#include next_fence.lua
if not fence then
  --#include counter.lua
  --#include fence.lua
  --#include start_counter.lua
  local failure
  fence, failure = start_counter(fence_key, reply, 1, tonumber(epoch_us))
  if failure then
    return failure
  end
end
local until_ms = now_ms + ttl_ms
redis.call('ZREM', shared_key, token, '#' .. token, '?' .. token)
redis.call('ZADD', shared_key, until_ms, successor, string.format('%.0f', -fence), '#' .. successor)
-- The lock lasts as long as its last share.
if ends_ms > until_ms then
  until_ms = math.ceil(tonumber(redis.call('ZRANGE', shared_key, -1, -1, 'WITHSCORES')[2]))
end
if ends_ms > until_ms or redis.call('PTTL', lock_key) < until_ms - now_ms then
  redis.call('PEXPIRE', lock_key, until_ms - now_ms)
  redis.call('PEXPIRE', shared_key, until_ms - now_ms + KEYS_MS)
end
return { fence, waiting }
