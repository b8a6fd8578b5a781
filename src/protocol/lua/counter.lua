-- counter: the last fence that this server knows. Needs constants.lua.

-- The counter, or nothing; and the error if it cannot be read, or no fence may follow it: it is above `most`, which is
-- AHEAD_US ahead of the clock.
local function read_counter(fence_key, most)
  local counter = redis.pcall('GET', fence_key)
  local failed = type(counter) == 'table'
  if failed and not counter.err:find('WRONGTYPE') then
    return nil, counter
  elseif failed or counter and (not counter:find('^%d+$') or counter:find('^0.')) then
    return nil, redis.error_reply('WRONGTYPE ' .. fence_key .. ' is not a fence counter')
  elseif counter and tonumber(counter) > most then
    return nil, redis.error_reply('FENCE ' .. fence_key .. ' is not less than a year ahead of the clock')
  end
  return counter and tonumber(counter) or nil
end
