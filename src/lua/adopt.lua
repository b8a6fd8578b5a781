--[[ adopt: take over a lock or a share from its owner, who has passed the token on
  KEYS   1 lock  2 fence  3 queue  4 waiters  5 shared
  ARGV   1 token  2 epoch_us  3 owner  4 ttl_ms  5 limit
         owner: the token until now
         limit: '-' for the whole lock and nothing less, as in acquire
  REPLY  fence: the lock is the token's, under a new fence, and lasts at least ttl_ms · 0 the owner has it no longer
  WRITES lock fence waiters shared
  AGAIN  the same fence
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is at its end; then nothing is changed
]]
local lock_key, fence_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, epoch_us, owner, ttl_ms, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]

local holder = redis.call('GET', lock_key)
--#include queue.lua

local ends_ms = now_ms + ttl_ms
if holder and (bare(holder) == owner or bare(holder) == token) then
  ends_ms = math.max(ends_ms, now_ms + redis.call('PTTL', lock_key))
  -- Ahead of the rest: it needs no memory, so Redis lets the others pass at maxmemory.
  redis.call('PEXPIRE', lock_key, ends_ms - now_ms)
  if bare(holder) == token then
    -- A repeat. Nobody else was issued a fence while the token owns the lock.
    return counter or issue(nil, 1)
  end
  -- Replaced, never deleted: what is cut off here, as in a slot that moves, must leave it to one of the two.
  redis.call('SET', lock_key, token .. mark(), 'PX', ends_ms - now_ms)
  announce('adopted', owner)
  redis.call('DEL', shared_key)
  if unclaimed then
    claimed()
  end
  -- A later owner: the one before may have handed the lock on under fences that it had reserved.
  return issue(counter, 1)
end
-- Who believes to have the whole lock would be mistaken in a share: the owner may have downgraded it since.
local ends = limit ~= WHOLE and share_end(owner)
local fence
if ends then
  announce('adopted', owner)
  remove_share(owner)
  fence = issue(counter, 1)
  add_share(token, math.max(ends, ends_ms), fence)
else
  ends = limit ~= WHOLE and share_end(token)
  fence = ends and share_fence(token)
  if not fence then
    return 0
  end
  redis.call('ZADD', shared_key, math.max(ends, ends_ms), token)
end
fit_to_shares()
return fence
