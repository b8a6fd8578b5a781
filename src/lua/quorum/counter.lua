-- counter: the last fence of a lock that this server knows of, read ahead of the first write. Part of vote,
-- seal and fill; uses their fence_key.

local FENCE_MS = 86400000

local counter = redis.pcall('GET', fence_key)
if type(counter) == 'table' or (counter and not counter:find('^%d+$')) then
  return redis.error_reply('WRONGTYPE ' .. fence_key .. ' is not a fence counter')
elseif counter and tonumber(counter) > 9e15 then
  -- As in fence.lua: beyond 2^53 numbers are not exact.
  return redis.error_reply('FENCE ' .. fence_key .. ' is not a counter below 9000000000000000')
end
