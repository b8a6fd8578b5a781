--[[ write_fence: the second round of a ballot: write the fence where the attempt still has the lock
  KEYS   1 lock  2 fence
  ARGV   1 token  2 first  3 last
         token: with its attempt
         first, last: the fence of the grant, and the last one that is reserved with it
  REPLY  1 written · 0 not the owner, or the counter is not below first
  WRITES fence
  AGAIN  0, for the counter is not below first any more: a lost reply is read as 0
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is too far ahead of the clock; then nothing is changed
]]
--#include constants.lua
--#include clock.lua
--#include counter.lua
local lock_key, fence_key = KEYS[1], KEYS[2]
local token, first, last = ARGV[1], tonumber(ARGV[2]), ARGV[3]

--#include open_counter.lua
local value = redis.call('GET', lock_key)
-- Strictly below: two attempts may have computed the same fence, and one of them gets it.
if (value ~= token and value ~= token .. MARK) or (counter and counter >= first) then
  return 0
end
redis.call('SET', fence_key, last, 'PX', FENCE_MS)
return 1
