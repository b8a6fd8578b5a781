--[[ extend_share: make sure that the owner's share lasts at least ttl_ms from now, and that it counts as claimed
  KEYS   1 lock  2 shared
         no others: a slot that moves refuses scripts that name keys which do not exist
  ARGV   1 token  2 ttl_ms
  REPLY  fence: the share's, which lasts at least ttl_ms · 0 not the owner
         1 so too, of the whole lock, which its owner is about to downgrade, or of the lone share
  WRITES lock (its expiry only) shared
  AGAIN  the same; no lease is ever shortened
  FAILS  WRONGTYPE if a key holds something else; then nothing is changed
]]
--#include constants.lua
--#include clock.lua
local lock_key, shared_key = KEYS[1], KEYS[2]
local token, ttl_ms = ARGV[1], tonumber(ARGV[2])

local value = redis.call('GET', lock_key)
if value == token or value == token .. MARK or value == LONE_SHARE .. token then
  if redis.call('PTTL', lock_key) < ttl_ms then
    redis.call('PEXPIRE', lock_key, ttl_ms)
  end
  return 1
elseif value ~= SHARED and value ~= SHARED .. MARK then
  return 0
end
local ends_ms = tonumber(redis.call('ZSCORE', shared_key, token) or nil)
local now_ms = math.floor(server_time_us() / 1000)
-- The fence is stored as a negative score.
local fence = -(tonumber(redis.call('ZSCORE', shared_key, '#' .. token) or nil) or 0)
if not ends_ms or ends_ms <= now_ms or fence <= 0 or fence >= 2 ^ 53 then
  return 0
end
-- This call claims what the token was granted by message.
redis.call('ZREM', shared_key, '?' .. token)
if ends_ms < now_ms + ttl_ms then
  redis.call('ZADD', shared_key, now_ms + ttl_ms, token)
  -- The lock lasts as long as its last share.
  if redis.call('PTTL', lock_key) < ttl_ms then
    redis.call('PEXPIRE', lock_key, ttl_ms)
    redis.call('PEXPIRE', shared_key, ttl_ms + KEYS_MS)
  end
end
return math.floor(fence)
