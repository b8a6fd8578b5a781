--[[ extend: make sure that the owner's lease lasts at least ttl_ms from now
  KEYS   1 lock
  ARGV   1 token  2 ttl_ms
  REPLY  1 lasts at least ttl_ms · 0 not the owner
  WRITES lock (its expiry only)
  AGAIN  the same; a lease is never shortened
  FAILS  WRONGTYPE if lock holds something else; then nothing is changed
]]
--#include constants.lua
local lock_key = KEYS[1]
local token, ttl_ms = ARGV[1], ARGV[2]

local value = redis.call('GET', lock_key)
if value ~= token and value ~= token .. MARK and value ~= LONE_SHARE .. token then
  return 0
end
--#include lengthen_lock.lua
return 1
