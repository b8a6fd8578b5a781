--[[ downgrade: turn the whole lock into a share of it, and grant shares to the waiters at the head of the queue
  KEYS   1 lock  2 fence  3 queue  4 waiters  5 shared  6 waiting
  ARGV   1 token  2 epoch_us  3 fence
         fence: the owner's, which it keeps
  REPLY  1 a share is the token's · 0 not the owner
  WRITES lock fence queue waiters shared waiting
  AGAIN  the same
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is too far ahead of the clock; then nothing is changed
]]
--#include constants.lua
--#include clock.lua
--#include counter.lua
--#include fence.lua
--#include permits.lua
--#include lock_state.lua
--#include enqueue.lua
--#include shares.lua
--#include messages.lua
--#include wait_queue.lua
local lock_key, fence_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local waiting_key = KEYS[6]
local token, epoch_us, fence = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local value = redis.call('GET', lock_key)
--#include open_lock.lua

if lock.value == token or lock.value == token .. MARK then
  redis.call('DEL', shared_key)
  add_share(lock, token, lock.now_ms + math.max(redis.call('PTTL', lock_key), 1), fence)
  fit_to_shares(lock)
  serve_queue(lock)
  return 1
end
return share_end(lock, token) and 1 or 0
