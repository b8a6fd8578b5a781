--[[ force: free a lock whoever holds it, tell them, and pass it on
  KEYS   1 lock  2 fence  3 queue  4 waiters  5 shared
  ARGV   1 token  2 epoch_us  3 scope
         token: who asks
         scope: 'foreign' to free it also from other code
  REPLY  1 freed, and passed on if somebody waits · 0 it was not held, or by other code
         2 freed, and nobody has it yet: the line is too long to be walked at once, call release
  WRITES lock fence queue waiters shared
  AGAIN  takes the lock away from whoever holds it then
  FAILS  WRONGTYPE if a key holds something else; then nothing is changed
]]
local lock_key, fence_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, epoch_us = ARGV[1], ARGV[2]

local holder = redis.call('GET', lock_key)
--#include queue.lua

local held = holder and (ARGV[3] == 'foreign' or holder:find('^hf1%.'))
if held then
  take_away('stolen')
end
if not holder and advance() == UNKNOWN then
  return 2
end
return held and 1 or 0
