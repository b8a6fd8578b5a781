--[[ inspect: tell who holds a lock and who waits for it
  KEYS   1 lock  2 fence  3 queue  4 waiters  5 shared
  ARGV   1 most
         most: so many of those who share it, and of those who wait
  REPLY  { value, remaining_ms, fence, shares, line }  fence: the last one issued, 0 if that is unknown;
         shares: token, remaining_ms and fence by turns; line: token and limit by turns, as queue.lua has it
         {}                                            other code holds it, or nobody
  WRITES nothing
  AGAIN  what holds then
  FAILS  WRONGTYPE if a key holds something else
]]
local lock_key, fence_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local most = ARGV[1]

local value = redis.call('GET', lock_key)
if not value or not value:find('^hf1%.') then
  return {}
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local shares, line = {}, {}
if value:find('^hf1%.shared%+?$') then
  local found = redis.call('ZRANGEBYSCORE', shared_key, '(' .. now_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #found, 2 do
    local fence = redis.call('ZSCORE', shared_key, '#' .. found[i])
    table.insert(shares, found[i])
    table.insert(shares, found[i + 1] - now_ms)
    table.insert(shares, -tonumber(fence or 0))
  end
end
for _, waiter in ipairs(redis.call('ZRANGE', queue_key, 0, most - 1)) do
  local details = redis.call('HGET', waiters_key, waiter) or ''
  table.insert(line, waiter)
  table.insert(line, details:match('^%d+ %d+ %d+ %d+ (%S+) ') or '-')
end
local last = tonumber(redis.call('GET', fence_key) or 0) or 0
return { value, redis.call('PTTL', lock_key), last < 2 ^ 53 and last or 0, shares, line }
