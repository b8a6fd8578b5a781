--[[ keep_entry: renew the deadline of a queue entry while its slot moves to another server, which refuses
  scripts that name keys which do not exist
  KEYS   1 queue  2 waiters
  ARGV   1 token
  REPLY  1 its entry is kept · 0 there is none
  WRITES queue (its expiry only) waiters
  AGAIN  the same
  FAILS  WRONGTYPE if a key holds something else; then nothing is changed
]]
--#include constants.lua
--#include clock.lua
local queue_key, waiters_key = KEYS[1], KEYS[2]
local token = ARGV[1]

local seq = redis.call('ZSCORE', queue_key, token)
local text = seq and redis.call('HGET', waiters_key, token)
if not text then
  return 0
end
local now_ms = math.floor(server_time_us() / 1000)
redis.call('PEXPIRE', queue_key, KEYS_MS)
-- An entry begins with its deadline.
redis.call('HSET', waiters_key, token, string.format('%.0f', now_ms + LIVENESS_MS) .. text:match('^%d+(.*)$'))
redis.call('PEXPIRE', waiters_key, KEYS_MS)
return 1
