--[[ force: free a lock whoever holds it, tell them, and pass it on
  KEYS   1 lock  2 fence  3 queue  4 waiters  5 shared
  ARGV   1 token  2 epoch_us  3 scope  4 seen
         token: who asks
         scope: 'foreign' to free it also from other code
         seen: the last fence issued as an answer told it, '' to be told; if it is another now, nothing is done, for who
         has the lock may have come since
  REPLY  1 freed, and passed on if somebody waits · 0 it was not held, or by other code
         2 freed, and nobody has it yet: the line is too long to be walked at once, call release
         { last }  it is held, and nothing is done: the last fence issued, 0 if none is known
  WRITES lock fence queue waiters shared
  AGAIN  { last } if somebody was granted the lock since, else 0
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is at its end; then nothing is changed
]]
local lock_key, fence_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, epoch_us = ARGV[1], ARGV[2]

local holder = redis.call('GET', lock_key)
--#include queue.lua

local held = holder and (ARGV[3] == 'foreign' or holder:find('^hf1%.'))
if held and (ARGV[4] == '' or (counter or 0) ~= tonumber(ARGV[4])) then
  return { counter or 0 }
elseif held then
  take_away()
end
if not holder and advance() == UNKNOWN then
  return 2
end
return held and 1 or 0
