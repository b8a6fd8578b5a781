-- share: take a share of a lock that nobody waits for. Part of acquire, whose names it uses. What it does not
-- return from is left to queue.lua, which also says what the keys hold.

local members = redis.pcall('ZCOUNT', shared_key, '-inf', '+inf')
local value = redis.call('GET', lock_key)
local is_plain = type(members) == 'number' and intent ~= 'steal' and (not value or value == 'hf1.shared')
local time = redis.call('TIME')
local now_ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
if is_plain and value then
  -- Two members for each share that lasts, and no more: nothing has ended, or was granted by message a moment ago.
  local live = redis.call('ZCOUNT', shared_key, '(' .. now_ms, '+inf')
  is_plain = live > 0 and members == 2 * live and (limit == '0' or live < tonumber(limit))
    and not redis.call('ZSCORE', shared_key, token)
end
if is_plain then
  local fence, failure = next_fence(fence_key, epoch_us, block)
  if failure then
    return failure
  end
  if not value and members > 0 then
    redis.call('DEL', shared_key)
  end
  redis.call('ZADD', shared_key, now_ms + ttl_ms, token, string.format('%.0f', -fence), '#' .. token)
  if not value or redis.call('PTTL', lock_key) < tonumber(ttl_ms) then
    redis.call('SET', lock_key, 'hf1.shared', 'PX', ttl_ms)
    redis.call('PEXPIRE', shared_key, ttl_ms + 30000)
  end
  return fence
end
