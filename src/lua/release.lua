--[[ release: give up a lock
  KEYS   1 lock
  ARGV   1 token
  REPLY  1 freed · 0 not the owner
  WRITES lock
  AGAIN  0; after a lost reply the caller reads it as freed if it asked first while it held the lock
  FAILS  WRONGTYPE if lock holds something else; then nothing is changed
]]
local lock_key = KEYS[1]
local token = ARGV[1]

if redis.call('GET', lock_key) ~= token then
  return 0
end
redis.call('DEL', lock_key)
return 1
