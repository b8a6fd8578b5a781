--[[ force: free a lock of any owner, notify the owners, and grant it to the next waiter
  KEYS   1 lock  2 fence  3 queue  4 waiters  5 shared  6 waiting
  ARGV   1 token  2 epoch_us  3 scope  4 seen  5... owners
         token: the caller's
         scope: 'foreign' to free it also from other code
         seen: the owners, from an answer, '' to query them; if they have changed nothing is done
         owners: in place of seen, the values of all from whom it may be taken; if another owns it nothing is done
  REPLY  1 freed, and granted to the next waiter if there is one · 0 it was not held, or by other code
         2 freed, and not granted yet: the queue is longer than one call serves, call release
         { owners }  it is held by others than those, and nothing is done
  WRITES lock fence queue waiters shared waiting
  AGAIN  { owners } if the lock was granted since, else 0
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
--#include revoke.lua
--#include wait_queue.lua
local lock_key, fence_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local waiting_key = KEYS[6]
local token, epoch_us, scope, seen = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local value = redis.call('GET', lock_key)
--#include open_lock.lua

-- Whether the lock is owned by none but those whom the caller means.
local function is_meant()
  if not ARGV[5] then
    return owners_of(lock) == seen
  end
  local meant = {}
  for i = 1, #ARGV - 4 do
    local owner = ARGV[4 + i]
    meant[owner] = true
  end
  -- One more than are meant must be another.
  for _, owner in ipairs(tokens_of(lock, #ARGV - 3)) do
    if not meant[owner] then
      return false
    end
  end
  return true
end

local is_held = lock.value and (scope == 'foreign' or lock.value:find('^hf1%.'))
if is_held and not is_meant() then
  return { owners_of(lock) }
elseif is_held then
  revoke(lock)
end
if not lock.value and serve_queue(lock) == UNKNOWN then
  return 2
end
return is_held and 1 or 0
