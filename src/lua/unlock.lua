--[[ unlock: give up a lock that nobody waits for
  KEYS   1 lock
  ARGV   1 token
  REPLY  1 freed · 0 somebody waits for it, it is shared, or not the owner's: release.lua tells, and does the rest
  WRITES lock
  AGAIN  0; the caller reads it as release.lua says
  FAILS  WRONGTYPE if lock holds something else; then nothing is changed
]]
-- The value would carry the mark if somebody waited.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
