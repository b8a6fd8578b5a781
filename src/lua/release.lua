--[[ release: give up a lock, a share of it, or a place in line for it
  KEYS   1 lock  2 fence  3 queue  4 waiters  5 shared
  ARGV   1 token  2 epoch_us
  REPLY  1 freed, and passed on if somebody waits · 0 not the owner; its place in line is gone
         2 freed, and nobody has it yet: the line is too long to be walked at once, call again
  WRITES lock fence queue waiters shared
  AGAIN  0, or 2 as long as it stays free; after a lost reply the caller reads it as freed if it asked first while it held the lock
  FAILS  WRONGTYPE if a key holds something else; then nothing is changed
]]
local lock_key, token = KEYS[1], ARGV[1]

-- The common case: nobody waits, or the value would carry the mark.
local holder = redis.call('GET', lock_key)
if holder == token then
  redis.call('DEL', lock_key)
  return 1
end

local fence_key, queue_key, waiters_key, shared_key = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local epoch_us = ARGV[2]
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
