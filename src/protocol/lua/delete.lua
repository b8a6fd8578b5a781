--[[ delete: free a lock without waiters
  KEYS   1 lock
  ARGV   1 token
  REPLY  1 freed · 0 not the owner, or somebody waits: call release
  WRITES lock
  AGAIN  0
  FAILS  WRONGTYPE if lock holds something else; then nothing is changed
]]
local lock_key, token = KEYS[1], ARGV[1]
if redis.call('GET', lock_key) == token then
  return redis.call('DEL', lock_key)
end
return 0
