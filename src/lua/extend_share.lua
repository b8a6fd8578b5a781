--[[ extend_share: make sure that the owner's share lasts at least ttl_ms from now, and that it counts as claimed
  KEYS   1 lock  2 shared
         no others: a slot that moves refuses scripts that name keys which do not exist
  ARGV   1 token  2 ttl_ms
  REPLY  fence: the share's, which lasts at least ttl_ms · 0 not the owner
         1 so too, of the whole lock, which its owner is about to downgrade
  WRITES lock (its expiry only) shared
  AGAIN  the same; no lease is ever shortened
  FAILS  WRONGTYPE if a key holds something else; then nothing is changed
]]
local lock_key, shared_key = KEYS[1], KEYS[2]
local token, ttl_ms = ARGV[1], tonumber(ARGV[2])

local holder = redis.call('GET', lock_key)
-- The value carries a mark while somebody waits.
if holder == token or holder == token .. '+' then
  if redis.call('PTTL', lock_key) < ttl_ms then
    redis.call('PEXPIRE', lock_key, ttl_ms)
  end
  return 1
elseif holder ~= 'hf1.shared' and holder ~= 'hf1.shared+' then
  return 0
end
local ends_ms = tonumber(redis.call('ZSCORE', shared_key, token) or nil)
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- The fence stands beside it, as a number below zero.
local fence = -(tonumber(redis.call('ZSCORE', shared_key, '#' .. token) or nil) or 0)
if not ends_ms or ends_ms <= now_ms or fence <= 0 or fence >= 2 ^ 53 then
  return 0
end
-- Whoever was granted the share by message has been heard of.
redis.call('ZREM', shared_key, '?' .. token)
if ends_ms < now_ms + ttl_ms then
  redis.call('ZADD', shared_key, now_ms + ttl_ms, token)
  -- The lock lasts as long as the last share of it.
  if redis.call('PTTL', lock_key) < ttl_ms then
    redis.call('PEXPIRE', lock_key, ttl_ms)
    redis.call('PEXPIRE', shared_key, ttl_ms + 30000)
  end
end
return fence
