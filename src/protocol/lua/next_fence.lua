-- next_fence: reserve `block` fences of a counter that has begun, above all that were issued. Needs constants.lua; `block`
-- and `epoch_us` are text. Sets `fence` to the first of them; if it sets none, start_counter.lua goes on from `reply`.
-- To define a function would cost the server more than all that is done here, and to read the clock as much again: the
-- epoch was the clock once.
local fence
local reply = redis.pcall('INCRBY', fence_key, block)
local before = type(reply) == 'number' and reply - block
if before and before >= FENCE_MIN and before - epoch_us <= AHEAD_US then
  fence = before + 1
  if before - epoch_us < 0 then
    -- The first use by a process comes here, since its epoch is later than the last fence.
    fence = tonumber(epoch_us)
    redis.call('SET', fence_key, string.format('%.0f', epoch_us + block - 1), 'KEEPTTL')
  end
end
