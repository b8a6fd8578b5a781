--[[ fill: give a lock that a majority carries to a server that lacks it
  KEYS   1 lock  2 fence
  ARGV   1 token  2 ttl_ms  3 last
         token: with its attempt
         last: the last fence that is reserved for the owner
  REPLY  1 the lock is the token's · 0 another owns it, or has owned it since
  WRITES lock fence
  AGAIN  the same; a lease is never shortened
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is at its end; then nothing is changed
]]
local lock_key, fence_key = KEYS[1], KEYS[2]
local token, ttl_ms, last = ARGV[1], ARGV[2], ARGV[3]

--#include counter.lua
local holder = redis.call('GET', lock_key)
-- The value carries a mark while somebody waits.
local own = holder == token or holder == token .. '+'
if (holder and not own) or (counter and tonumber(counter) > tonumber(last)) then
  return 0
end
if not own then
  redis.call('SET', lock_key, token, 'PX', ttl_ms)
elseif redis.call('PTTL', lock_key) < tonumber(ttl_ms) then
  -- A vote that was executed late has taken the lock meanwhile, for less and without the fence.
  redis.call('PEXPIRE', lock_key, ttl_ms)
end
redis.call('SET', fence_key, last, 'PX', FENCE_MS)
return 1
