--[[ adopt: take over a lock or a share from its owner, who exported the token
  KEYS   1 lock  2 fence  3 queue  4 waiters  5 shared  6 waiting
  ARGV   1 token  2 epoch_us  3 owner  4 ttl_ms  5 limit
         owner: the token of the owner until now; of a share with several permits, token has as many
         limit: '-' for the whole lock and nothing less, as in acquire
  REPLY  fence: the lock is the token's, under a new fence, and lasts at least ttl_ms · 0 the owner lost it
  WRITES lock fence queue waiters shared waiting
  AGAIN  a later fence of the whole lock, the same of a share
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
local lock_key, fence_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local waiting_key = KEYS[6]
local token, epoch_us, owner, ttl_ms, limit = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5]

local value = redis.call('GET', lock_key)
--#include open_lock.lua

local ends_ms = lock.now_ms + ttl_ms
local holder = lock.value and strip_mark(lock.value)
if holder and (holder == owner or holder == token) then
  ends_ms = math.max(ends_ms, lock.now_ms + redis.call('PTTL', lock_key))
  -- PEXPIRE stands first: Redis lets a script write at maxmemory if its first write needs no memory.
  redis.call('PEXPIRE', lock_key, ends_ms - lock.now_ms)
  if holder == token then
    -- A repeat. The fence of the first answer was not used.
    return next_fence(lock, 1, epoch_us)
  end
  -- The value is replaced, never deleted: a script that is cut off here, in a slot that moves, must leave the lock to
  -- one of the two.
  local mark = token:sub(1, 4) == 'hf1.' and waiters_mark(lock) or ''
  redis.call('SET', lock_key, token .. mark, 'PX', ends_ms - lock.now_ms)
  notify_owner(lock, 'adopted', owner)
  redis.call('DEL', shared_key)
  if lock.unclaimed then
    clear_unclaimed(lock)
  end
  -- The former owner may have handed the lock on under fences that it had reserved, so the adopter gets a later one.
  return next_fence(lock, 1, epoch_us)
end
-- An adopter of the whole lock gets no share: the owner may have downgraded the lock meanwhile.
local share_ends_ms = limit ~= WHOLE and permits_of(owner) == permits_of(token) and share_end(lock, owner)
local fence
if share_ends_ms then
  notify_owner(lock, 'adopted', owner)
  remove_share(lock.shared_key, owner)
  fence = next_fence(lock, 1, epoch_us)
  add_share(lock, token, math.max(share_ends_ms, ends_ms), fence)
else
  share_ends_ms = limit ~= WHOLE and share_end(lock, token)
  fence = share_ends_ms and share_fence(lock, token)
  if not fence then
    return 0
  end
  redis.call('ZADD', shared_key, math.max(share_ends_ms, ends_ms), token)
end
fit_to_shares(lock)
return fence
