--[[ release: give up a lock, a share of it, or a queue entry, and grant what is open to the next waiters
  KEYS   1 lock  2 fence  3 queue  4 waiters  5 shared  6 waiting
  ARGV   1 token  2 epoch_us
  REPLY  1 freed, and granted to the next waiter if there is one · 0 not the owner; its queue entry is gone
         2 freed, and not granted yet: the queue is longer than one call serves, call again
         Without a fence counter of use, freed and granted to nobody: the waiters get that error as they ask again
  WRITES lock fence queue waiters shared waiting
  AGAIN  0, or 2 as long as it stays free; after a lost reply the caller reads 0 as freed if it first asked while it
         owned the lock
  FAILS  WRONGTYPE if a key but the counter holds something else; then nothing is changed
]]
--#include constants.lua
local lock_key, fence_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local waiting_key = KEYS[6]
local token = ARGV[1]

-- The common cases: there is no waiter.
local value = redis.call('GET', lock_key)
local is_owned = value == token or value == token .. MARK or value == LONE_SHARE .. token
if is_owned and redis.call('EXISTS', queue_key) == 0 then
  -- With the mark, the lock may have been granted by message, which this call claims.
  local unclaimed = value == token .. MARK and redis.pcall('HGET', waiters_key, 'unclaimed')
  if not unclaimed then
    redis.call('DEL', lock_key)
    return 1
  end
end
--#include clock.lua
--#include permits.lua
local ends = value == SHARED and redis.pcall('ZSCORE', shared_key, token)
if ends and type(ends) ~= 'table' then
  local now_ms = math.floor(server_time_us() / 1000)
  remove_share(shared_key, token)
  -- The lock lasts as long as its last share.
  local last_ms = tonumber(redis.call('ZRANGE', shared_key, -1, -1, 'WITHSCORES')[2])
  if last_ms and last_ms > now_ms then
    redis.call('PEXPIRE', lock_key, math.ceil(last_ms - now_ms))
  else
    redis.call('DEL', lock_key)
  end
  return tonumber(ends) > now_ms and 1 or 0
end

--#include counter.lua
--#include fence.lua
--#include lock_state.lua
--#include enqueue.lua
--#include shares.lua
--#include messages.lua
--#include wait_queue.lua
local epoch_us = tonumber(ARGV[2])
local lock, failure = read_lock(lock_key, fence_key, queue_key, waiters_key, shared_key, waiting_key, value, epoch_us)
if not lock then
  return failure
end
claim(lock, token)
free_if_unshared(lock)

-- A lock that was taken by plain commands has no mark, though others may have waited before.
local is_owner = lock.value == token or lock.value == token .. MARK
  or lock.value == LONE_SHARE .. token
local is_held = is_owner or share_end(lock, token)
if is_owner then
  redis.call('DEL', lock_key)
  lock.value = nil
elseif is_shared(lock) then
  -- The token may have a share that has ended, or whose release was cut off behind its first write.
  remove_share(lock.shared_key, token)
end
dequeue(lock, token)
if is_shared(lock) then
  fit_to_shares(lock)
end
if lock.last_seq and not is_open(lock) and not lock.unclaimed then
  unmark(lock)
end
if not failure and is_open(lock) and serve_queue(lock) == UNKNOWN then
  return 2
end
return is_held and 1 or 0
