--[[ reserve: reserve fences for further handoffs of a whole lock in its owner's process, and count who waits for it
  KEYS   1 lock  2 fence  3 queue
  ARGV   1 token  2 ttl_ms  3 epoch_us  4 block
         block: the number of fences
  REPLY  {fence, waiting}: the first of block, above all that were issued; entries in the wait queue. The lease lasts at
         least ttl_ms
         0 not the owner
  WRITES lock (its expiry only) fence
  AGAIN  the same, with later fences; a lease is never shortened
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is too far ahead of the clock; then nothing is changed
]]
--#include constants.lua
local lock_key, fence_key, queue_key = KEYS[1], KEYS[2], KEYS[3]
local token, ttl_ms, epoch_us, block = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local value = redis.call('GET', lock_key)
if value ~= token and value ~= token .. MARK then
  return 0
end
local waiting = redis.call('ZCOUNT', queue_key, '-inf', '+inf')
--#include next_fence.lua
if not fence then
  --#include counter.lua
  --#include fence.lua
  --#include start_counter.lua
  local failure
  fence, failure = start_counter(fence_key, reply, tonumber(block), tonumber(epoch_us))
  if failure then
    return failure
  end
end
--#include lengthen_lock.lua
return { fence, waiting }
