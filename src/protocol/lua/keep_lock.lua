--[[ keep_lock: lengthen a shared lock by its own key alone, while its slot moves to another server, which answers for one
  key at a time
  KEYS   1 lock
  ARGV   1 ttl_ms
  REPLY  1 it is shared, and lasts at least ttl_ms from now · 0 it is not shared
  WRITES lock (its expiry only)
  AGAIN  the same; no lease is ever shortened
  FAILS  WRONGTYPE if lock holds something else; then nothing is changed
]]
--#include constants.lua
local lock_key, ttl_ms = KEYS[1], ARGV[1]

local value = redis.call('GET', lock_key)
if value ~= SHARED and value ~= SHARED .. MARK then
  return 0
end
--#include lengthen_lock.lua
return 1
