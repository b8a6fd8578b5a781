--[[ copy_lock: write a lock that a majority of the servers has to one that lacks it
  KEYS   1 lock  2 fence
  ARGV   1 token  2 ttl_ms  3 last
         token: with its attempt
         last: the last fence that is reserved for the owner
  REPLY  1 the lock is the token's · 0 another token owns it, or owned it since
  WRITES lock fence
  AGAIN  the same; a lease is never shortened
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is too far ahead of the clock; then nothing is changed
]]
--#include constants.lua
--#include clock.lua
--#include counter.lua
local lock_key, fence_key = KEYS[1], KEYS[2]
local token, ttl_ms, last = ARGV[1], tonumber(ARGV[2]), ARGV[3]

--#include open_counter.lua
local value = redis.call('GET', lock_key)
local is_owner = value == token or value == token .. MARK
if (value and not is_owner) or (counter and counter > tonumber(last)) then
  return 0
end
if not is_owner then
  redis.call('SET', lock_key, token, 'PX', ttl_ms)
else
  -- A vote that was executed late took the lock meanwhile, with a shorter lease and without the fence.
  --#include lengthen_lock.lua
end
redis.call('SET', fence_key, last, 'PX', FENCE_MS)
return 1
