--[[ acquire_unqueued: take a free lock, or confirm that the caller owns it, where scripts cannot read the clock
  KEYS   1 lock  2 fence
  ARGV   1 token  2 ttl_ms  3 epoch_us  4 intent  5 block
         intent: 'poll' only confirms, 'try' takes the lock if it is free
         block: the number of fences that the grant reserves, the same in every repeat
  REPLY  fence                      the lock is the token's; the first of block
         { remaining_ms, holder }   it is not: -1 if it never expires; 0 and '' if it is free
  WRITES lock fence
  AGAIN  later fences; a lease is lengthened to ttl_ms, never shortened
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is too far ahead of the clock; then nothing is changed
]]
--#include constants.lua
--#include counter.lua
--#include fence.lua
local lock_key, fence_key = KEYS[1], KEYS[2]
local token, ttl_ms, epoch_us, intent, block = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])

local value = redis.call('GET', lock_key)
local is_owner = value == token or value == token .. MARK
if not is_owner and (value or intent == 'poll') then
  local marked = value and value:sub(-1) == MARK and value:sub(1, 4) == 'hf1.'
  return { value and redis.call('PTTL', lock_key) or 0, marked and value:sub(1, -2) or value or '' }
end
-- The epoch was the server's clock a day ago at most, so it stands for the clock.
local counter, failure = read_counter(fence_key, epoch_us + AHEAD_US)
if failure then
  return failure
end
if not is_owner then
  redis.call('SET', lock_key, token, 'PX', ttl_ms)
elseif redis.call('PTTL', lock_key) < ttl_ms then
  redis.call('PEXPIRE', lock_key, ttl_ms)
end
return issue_fences(fence_key, counter, block, epoch_us, epoch_us)
