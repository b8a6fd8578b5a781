--[[ force: free a lock of any owner, notify the owners, and grant it to the next waiter
  KEYS   1 lock  2 fence  3 queue  4 waiters  5 shared
  ARGV   1 token  2 epoch_us  3 scope  4 seen
         token: the caller's
         scope: 'foreign' to free it also from other code
         seen: the last fence issued, from an answer, '' to query it; if it has changed nothing is done, since the
         owner may be a later one
  REPLY  1 freed, and granted to the next waiter if there is one · 0 it was not held, or by other code
         2 freed, and not granted yet: the queue is longer than one call serves, call release
         { last }  it is held, and nothing is done: the last fence issued, 0 if none is known
  WRITES lock fence queue waiters shared
  AGAIN  { last } if the lock was granted since, else 0
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is at its end; then nothing is changed
]]
--#include constants.lua
--#include clock.lua
--#include counter.lua
--#include fence.lua
--#include lock_state.lua
--#include shares.lua
--#include messages.lua
--#include revoke.lua
--#include wait_queue.lua
local lock_key, fence_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, epoch_us, scope, seen = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local value = redis.call('GET', lock_key)
local lock, failure = read_lock(lock_key, fence_key, queue_key, waiters_key, shared_key, value, epoch_us)
if failure then
  return failure
end
claim(lock, token)
free_if_unshared(lock)

local is_held = lock.value and (scope == 'foreign' or lock.value:find('^hf1%.'))
if is_held and (seen == '' or (lock.counter or 0) ~= tonumber(seen)) then
  return { lock.counter or 0 }
elseif is_held then
  revoke(lock)
end
if not lock.value and serve_queue(lock) == UNKNOWN then
  return 2
end
return is_held and 1 or 0
