--[[ release: give up a lock, a share of it, or a place in line for it
  KEYS   1 lock  2 fence  3 queue  4 waiters  5 shared
  ARGV   1 token  2 epoch_us
  REPLY  1 freed, and passed on if somebody waits · 0 not the owner; its place in line is gone
         2 freed, and nobody has it yet: the line is too long to be walked at once, call again
  WRITES lock fence queue waiters shared
  AGAIN  0, or 2 as long as it stays free; after a lost reply the caller reads it as freed if it asked first while it held the lock
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is at its end; then nothing is changed
]]
local lock_key, fence_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, epoch_us = ARGV[1], ARGV[2]

-- The common cases: nobody waits, or the value would carry the mark.
local holder = redis.call('GET', lock_key)
if holder == token then
  redis.call('DEL', lock_key)
  return 1
end
local ends = holder == 'hf1.shared' and redis.pcall('ZSCORE', shared_key, token)
if type(ends) == 'string' then
  local time = redis.call('TIME')
  local now_ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
  redis.call('ZREM', shared_key, token, '#' .. token, '?' .. token)
  -- The lock lasts as long as the last share of it.
  local last = tonumber(redis.call('ZRANGE', shared_key, -1, -1, 'WITHSCORES')[2])
  if last and last > now_ms then
    redis.call('PEXPIRE', lock_key, last - now_ms)
  else
    redis.call('DEL', lock_key)
  end
  return tonumber(ends) > now_ms and 1 or 0
end

--#include queue.lua

local owned = holder == token .. MARK or share_end(token)
if holder == token .. MARK then
  redis.call('DEL', lock_key)
  holder = nil
else
  leave_line(token)
  if is_shared() then
    -- Also if the share has ended, or another call was cut off behind its first write.
    remove_share(token)
    fit_to_shares()
  end
end
if is_open() and advance() == UNKNOWN then
  return 2
end
return owned and 1 or 0
