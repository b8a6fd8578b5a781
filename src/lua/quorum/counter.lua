-- counter: the last fence of a lock that this server knows of, read ahead of the first write. Part of vote,
-- seal and fill; uses their fence_key.

local FENCE_MS = 86400000

local counter = redis.pcall('GET', fence_key)
if type(counter) == 'table' or (counter and not counter:find('^%d+$')) then
  return redis.error_reply('WRONGTYPE ' .. fence_key .. ' is not a fence counter')
end
