--[[ keep_entry: say that a waiter lives, while its slot moves to another server, which refuses scripts that name keys
  which do not exist
  KEYS   1 queue  2 waiters
  ARGV   1 token
  REPLY  1 its entry is kept · 0 it has none
  WRITES queue (its expiry only) waiters
  AGAIN  the same
  FAILS  WRONGTYPE if a key holds something else; then nothing is changed
]]
local queue_key, waiters_key = KEYS[1], KEYS[2]
local token = ARGV[1]

local seq = redis.call('ZSCORE', queue_key, token)
local details = seq and redis.call('HGET', waiters_key, token)
if not details then
  return 0
end
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('PEXPIRE', queue_key, 30000)
-- As queue.lua describes a waiter: its liveness deadline stands first.
redis.call('HSET', waiters_key, token, string.format('%.0f', now_ms + 15000) .. details:match('^%d+(.*)$'))
redis.call('PEXPIRE', waiters_key, 30000)
return 1
