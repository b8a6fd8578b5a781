--[[ free: give up a lock while its slot moves to another server, which is asked about one key at a time
  KEYS   1 lock
  ARGV   1 token
  REPLY  1 freed; who waits finds out when it asks · 0 not the owner
  WRITES lock
  AGAIN  0; the caller reads it as release.lua says
  FAILS  WRONGTYPE if lock holds something else; then nothing is changed
]]
local lock_key = KEYS[1]
local token = ARGV[1]

local holder = redis.call('GET', lock_key)
-- The value carries a mark while somebody waits.
if holder ~= token and holder ~= token .. '+' then
  return 0
end
redis.call('DEL', lock_key)
return 1
