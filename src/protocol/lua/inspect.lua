--[[ inspect: return the owners of a lock and its waiters
  KEYS   1 lock  2 queue  3 waiters  4 shared
  ARGV   1 most
         most: the most shares to return, and the most waiters
  REPLY  { value, remaining_ms, shares, waiters }  shares: token, remaining_ms and fence by turns; waiters: token and
                                                   limit by turns
         {}                                        other code owns it, or it is free
  WRITES nothing
  AGAIN  the state then
  FAILS  WRONGTYPE if a key holds something else
]]
--#include constants.lua
--#include clock.lua
local lock_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local most = tonumber(ARGV[1])

local value = redis.call('GET', lock_key)
if not value or not value:find('^hf1%.') then
  return {}
end
local now_ms = math.floor(server_time_us() / 1000)
local shares, waiters = {}, {}
if value == SHARED or value == SHARED .. MARK then
  local range = redis.call('ZRANGEBYSCORE', shared_key, '(' .. now_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #range, 2 do
    local fence = redis.call('ZSCORE', shared_key, '#' .. range[i])
    table.insert(shares, range[i])
    table.insert(shares, math.ceil((tonumber(range[i + 1]) or now_ms) - now_ms))
    table.insert(shares, math.floor(-tonumber(fence or 0)))
  end
end
for _, token in ipairs(redis.call('ZRANGE', queue_key, 0, most - 1)) do
  local text = redis.call('HGET', waiters_key, token) or ''
  table.insert(waiters, token)
  table.insert(waiters, text:match('^%d+ %d+ %d+ %d+ (%S+) ') or WHOLE)
end
return { value, redis.call('PTTL', lock_key), shares, waiters }
