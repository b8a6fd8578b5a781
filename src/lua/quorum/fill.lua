--[[ fill: give a lock that a majority carries to a server that lacks it
  KEYS   1 lock  2 fence
  ARGV   1 token  2 ttl_ms  3 last
         token: with its attempt
         last: the last fence that is reserved for the owner
  REPLY  1 the lock is the token's · 0 another owns it, or has owned it since
  WRITES lock fence
  AGAIN  the same; a lease is never shortened
  FAILS  WRONGTYPE if a key holds something else; then nothing is changed
]]
local lock_key, fence_key = KEYS[1], KEYS[2]
local token, ttl_ms, last = ARGV[1], ARGV[2], ARGV[3]

--#include counter.lua
local holder = redis.call('GET', lock_key)
if holder then
  return (holder == token or holder == token .. '+') and 1 or 0
end
if counter and tonumber(counter) > tonumber(last) then
  return 0
end
redis.call('SET', lock_key, token, 'PX', ttl_ms)
redis.call('SET', fence_key, last, 'PX', FENCE_MS)
return 1
