--[[ free: give up a lock while its slot moves to another server, which answers for one key at a time
  KEYS   1 lock
  ARGV   1 token
  REPLY  1 freed; waiters notice when they poll · 0 not the owner
  WRITES lock
  AGAIN  0; the caller reads it as release.lua says
  FAILS  WRONGTYPE if lock holds something else; then nothing is changed
]]
--#include constants.lua
local lock_key = KEYS[1]
local token = ARGV[1]

local value = redis.call('GET', lock_key)
if value ~= token and value ~= token .. MARK and value ~= LONE_SHARE .. token then
  return 0
end
redis.call('DEL', lock_key)
return 1
