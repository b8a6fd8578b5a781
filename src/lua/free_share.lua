--[[ free_share: give up a share while its slot moves to another server, which refuses scripts that name keys which do
  not exist
  KEYS   1 lock  2 shared
  ARGV   1 token
  REPLY  1 freed, also of the whole lock; whoever waits finds out by asking · 0 not the owner
  WRITES lock shared
  AGAIN  0; the caller reads it as release.lua says
  FAILS  WRONGTYPE if a key holds something else; then nothing is changed
]]
local lock_key, shared_key = KEYS[1], KEYS[2]
local token = ARGV[1]

local holder = redis.call('GET', lock_key)
-- The value carries a mark while somebody waits.
if holder == token or holder == token .. '+' then
  -- A downgrade that was asked for has not been executed.
  redis.call('DEL', lock_key)
  return 1
end
local shared = holder == 'hf1.shared' or holder == 'hf1.shared+'
local ends_ms = shared and tonumber(redis.call('ZSCORE', shared_key, token) or nil)
if not ends_ms then
  return 0
end
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- The end of the last share beside it. Read ahead of the first write: a key that a script has deleted counts as moved,
-- and any other command on it is an error.
local last = redis.call('ZRANGE', shared_key, -2, -1, 'WITHSCORES')
local last_ms = tonumber(last[3] == token and last[2] or last[4])
if last_ms and last_ms > now_ms then
  redis.call('ZREM', shared_key, token, '#' .. token, '?' .. token)
  redis.call('PEXPIRE', lock_key, last_ms - now_ms)
else
  redis.call('DEL', lock_key)
  redis.call('DEL', shared_key)
end
return ends_ms > now_ms and 1 or 0
