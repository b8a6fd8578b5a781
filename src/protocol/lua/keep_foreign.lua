--[[ keep_foreign: make sure that other code's lease of a lock lasts at least ttl_ms from now
  KEYS   1 lock
  ARGV   1 value  2 ttl_ms
         value: what that code has put there, and nothing but that: no mark of holdfast is part of it
  REPLY  1 lasts at least ttl_ms, or has no end · 0 the value is another, or none
  WRITES lock (its expiry only)
  AGAIN  the same; a lease is never shortened
  FAILS  WRONGTYPE if lock holds something else; then nothing is changed
]]
local lock_key, value, ttl_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])

if redis.call('GET', lock_key) ~= value then
  return 0
end
local left_ms = redis.call('PTTL', lock_key)
-- A key without an end keeps having none.
if left_ms >= 0 and left_ms < ttl_ms then
  redis.call('PEXPIRE', lock_key, ARGV[2])
end
return 1
