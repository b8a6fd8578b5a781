--[[ claim: make sure that the owner's lease lasts at least ttl_ms from now, and that a grant by message counts as claimed
  KEYS   1 lock  2 waiters
  ARGV   1 token  2 ttl_ms
  REPLY  1 lasts at least ttl_ms · 0 not the owner, which is not silent all the same: its grant counts as claimed
  WRITES lock (its expiry only) waiters
  AGAIN  the same; a lease is never shortened
  FAILS  WRONGTYPE if a key holds something else; then nothing is changed
]]
--#include constants.lua
local lock_key, waiters_key = KEYS[1], KEYS[2]
local token, ttl_ms = ARGV[1], ARGV[2]

local value = redis.call('GET', lock_key)
if redis.call('HGET', waiters_key, 'unclaimed') == token then
  redis.call('HDEL', waiters_key, 'unclaimed')
end
if value ~= token and value ~= token .. MARK then
  return 0
end
--#include lengthen_lock.lua
return 1
