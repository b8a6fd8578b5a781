-- counter: the last fence that this server knows. Needs constants.lua.

-- The counter, or nothing; and the error if it cannot be read.
local function read_counter(fence_key)
  local counter = redis.pcall('GET', fence_key)
  local failed = type(counter) == 'table'
  if failed and not counter.err:find('WRONGTYPE') then
    return nil, counter
  elseif failed or counter and (not counter:find('^%d+$') or counter:find('^0.')) then
    return nil, redis.error_reply('WRONGTYPE ' .. fence_key .. ' is not a fence counter')
  elseif counter and tonumber(counter) > FENCE_MAX then
    return nil, redis.error_reply('FENCE ' .. fence_key .. ' is not a counter below 9000000000000000')
  end
  return counter and tonumber(counter) or nil
end
