--[[ inspect: return the owners of a lock and its waiters
  KEYS   1 lock  2 queue  3 waiters  4 shared
  ARGV   1 most  2 scope
         most: the most shares to return, and the most waiters
         scope: 'foreign' to return the value of other code, too, or its beginning
  REPLY  { value, remaining_ms, shares, waiters }  shares: token, remaining_ms and fence by turns, 0 for a fence that only
                                                   the owner knows; waiters: token, limit and waited_ms by turns
         {}                                        it is free, or other code owns it and that was not asked for
  WRITES nothing
  AGAIN  the state then
  FAILS  WRONGTYPE if a key holds something else
]]
--#include constants.lua
--#include clock.lua
local lock_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local most, scope = tonumber(ARGV[1]), ARGV[2]
-- The value of other code may be anything, and of any length.
local FOREIGN_BYTES = 512

local value = redis.call('GET', lock_key)
local is_foreign = value and not value:find('^hf1%.')
if not value or (is_foreign and scope ~= 'foreign') then
  return {}
end
if #value > FOREIGN_BYTES and is_foreign then
  -- No letter is cut in two.
  value = value:sub(1, FOREIGN_BYTES):gsub('[\128-\255]*$', '')
end
local now_us = server_time_us()
local now_ms = math.floor(now_us / 1000)
local shares, waiters = {}, {}
if value:sub(1, #LONE_SHARE) == LONE_SHARE then
  shares = { value:sub(#LONE_SHARE + 1), redis.call('PTTL', lock_key), 0 }
  value = SHARED
elseif value == SHARED or value == SHARED .. MARK then
  local range = redis.call('ZRANGEBYSCORE', shared_key, '(' .. now_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #range, 2 do
    local fence = tonumber(redis.call('ZSCORE', shared_key, '#' .. range[i]) or nil) or 0
    table.insert(shares, range[i])
    table.insert(shares, math.ceil((tonumber(range[i + 1]) or now_ms) - now_ms))
    table.insert(shares, math.floor(fence % 1 == 0 and -fence or 0))
  end
end
local queue = redis.call('ZRANGE', queue_key, 0, most - 1, 'WITHSCORES')
for i = 1, #queue, 2 do
  local text = redis.call('HGET', waiters_key, queue[i]) or ''
  table.insert(waiters, queue[i])
  table.insert(waiters, text:match('^%d+ %d+ %d+ %d+ (%S+) ') or WHOLE)
  -- The number of an entry is the clock at its call. It may be ahead where two would be equal.
  table.insert(waiters, string.format('%.0f', math.max(0, now_us - (tonumber(queue[i + 1]) or now_us)) / 1000))
end
return { value, redis.call('PTTL', lock_key), shares, waiters }
