-- open_counter: reads the counter of fences, as it is now. Needs clock.lua, counter.lua and the local `fence_key`. Sets `now_us`
-- and `counter`, or returns an error.
local now_us = server_time_us()
local counter, failure = read_counter(fence_key, now_us + AHEAD_US)
if failure then
  return failure
end
