--[[ downgrade: turn the whole lock into a share of it, and let in who waits for shares behind it
  KEYS   1 lock  2 fence  3 queue  4 waiters  5 shared
  ARGV   1 token  2 epoch_us  3 fence
         fence: the owner's, which it keeps
  REPLY  1 a share is the token's · 0 not the owner
  WRITES lock fence queue waiters shared
  AGAIN  the same
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is at its end; then nothing is changed
]]
local lock_key, fence_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, epoch_us = ARGV[1], ARGV[2]

local holder = redis.call('GET', lock_key)
--#include queue.lua

if holder == token or holder == token .. MARK then
  redis.call('DEL', shared_key)
  add_share(token, now_ms + math.max(redis.call('PTTL', lock_key), 1), ARGV[3])
  fit_to_shares()
  advance()
  return 1
end
return share_end(token) and 1 or 0
