--[[ free_share: give up a share while its slot moves to another server, which refuses scripts that name keys which do
  not exist
  KEYS   1 lock  2 shared
  ARGV   1 token
  REPLY  1 freed, also of the whole lock or the lone share; waiters notice when they poll · 0 not the owner
  WRITES lock shared
  AGAIN  0; the caller reads it as release.lua says
  FAILS  WRONGTYPE if a key holds something else; then nothing is changed
]]
--#include constants.lua
--#include clock.lua
--#include permits.lua
local lock_key, shared_key = KEYS[1], KEYS[2]
local token = ARGV[1]

local value = redis.call('GET', lock_key)
if value == LONE_SHARE .. token or value == token or value == token .. MARK then
  -- The share is the lone one, or its owner asked for a downgrade that was not executed.
  redis.call('DEL', lock_key)
  return 1
end
local is_shared = value == SHARED or value == SHARED .. MARK
local ends_ms = is_shared and tonumber(redis.call('ZSCORE', shared_key, token) or nil)
if not ends_ms then
  -- Its owner comes late, and is not silent. Whatever else stands at the key, there is no share.
  redis.pcall('ZREM', shared_key, '?' .. token)
  return 0
end
local now_ms = math.floor(server_time_us() / 1000)
-- The end of the last share besides this one is read ahead of the first write: in a slot that moves, a key that a
-- script has deleted counts as moved, and any other command on it is an error.
local range = redis.call('ZRANGE', shared_key, -2, -1, 'WITHSCORES')
local last_ms = tonumber(range[3] == token and range[2] or range[4])
if last_ms and last_ms > now_ms then
  remove_share(shared_key, token)
  redis.call('PEXPIRE', lock_key, math.ceil(last_ms - now_ms))
else
  redis.call('DEL', lock_key)
  redis.call('DEL', shared_key)
end
return ends_ms > now_ms and 1 or 0
