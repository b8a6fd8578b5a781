--[[ acquire: take a free lock or a share of it, enqueue for one that is held, or confirm that the caller owns it
  KEYS   1 lock  2 fence  3 queue  4 waiters  5 shared  6 waiting
  ARGV   1 token  2 ttl_ms  3 epoch_us  4 inbox  5 intent  6 limit  7 block  8 seen
         inbox: the channel that a grant is published to, '' for a caller that only polls
         intent: 'try' takes only what is free; 'steal' takes the lock from its owners, unless other code holds it, and
         notifies them; 'poll' keeps a queue entry or a lock, and gets neither anew; a number makes an entry with that
         number or, if 0, at the end; an entry that exists moves back to the number, never ahead
         limit: '-' for the whole lock, 0 for a share of it, else a share if its permits and those that are held are at
         most limit; the token tells its permits
         block: the number of fences that the grant reserves, the same in every repeat; 1 for a share
         seen: only to steal: the owners, from an answer; if they have changed nothing is taken
         intent, limit and block may be left out together: 0, '-' and 1
  REPLY  fence                                            the lock is the token's; the first of block
         { fence }                                        so is a share of it, and others are held
         { remaining_ms, holder, now_us, position, seq,   it is not: -1 if it never expires; 0 and ''
           owners, queueing, sharer, sharers,             if it is free; position 0 if not enqueued; queueing, only
           awaited_ms }                                   for one that is not: 1 if it is shared or others wait;
                                                          of a shared one, the token of the share that ends in
                                                          remaining_ms, and the number of shares, else '' and 0;
                                                          for how long the first waiter, which finds no room, is
                                                          waited for unless it is heard of, else -1. The last four
                                                          may be missing
  WRITES lock fence queue waiters shared waiting
  AGAIN  the same position, or the same fence of a share, or later fences of the whole lock while the lease lasts, which
         is lengthened to ttl_ms, never shortened; once it has ended the lock is acquired anew
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is too far ahead of the clock; then nothing is changed
]]
--#include constants.lua
local lock_key, fence_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local waiting_key = KEYS[6]
local token, ttl_ms, epoch_us, inbox = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local intent, limit, block = ARGV[5] or '0', ARGV[6] or WHOLE, ARGV[7] or '1'

-- The common cases: the queue is empty and there is room. They stand ahead of most functions, since to define those
-- would cost the server more than all that is done here. Numbers stay text here for the same reason: Lua converts the
-- operands of an operator by itself, and faster than `tonumber`.
local is_taken, members, value, now_ms
if intent ~= 'poll' and redis.call('EXISTS', queue_key) == 0 then
  if limit == WHOLE then
    is_taken = redis.call('SET', lock_key, token, 'NX', 'PX', ttl_ms)
  else
    --#include clock.lua
    --#include room_for_one.lua
    members, value, now_ms = find_room_for_one(lock_key, shared_key, token, intent, limit)
    is_taken = members
  end
end
if is_taken then
  --#include next_fence.lua
  local failure
  if not fence then
    --#include counter.lua
    --#include fence.lua
    --#include start_counter.lua
    fence, failure = start_counter(fence_key, reply, tonumber(block), tonumber(epoch_us))
  end
  if failure and limit == WHOLE then
    -- The lock cannot be fenced, so it must not stay taken.
    redis.call('DEL', lock_key)
  elseif fence and limit ~= WHOLE then
    if not value and members > 0 then
      redis.call('DEL', shared_key)
    end
    redis.call('ZADD', shared_key, now_ms + ttl_ms, token, string.format('%.0f', -fence), '#' .. token)
    if not value or redis.call('PTTL', lock_key) < tonumber(ttl_ms) then
      redis.call('SET', lock_key, SHARED, 'PX', ttl_ms)
      redis.call('PEXPIRE', shared_key, ttl_ms + KEYS_MS)
    end
  end
  return value and fence and { fence } or fence or failure
end

-- The third common case: another token has the lock, so the caller is enqueued.
value = redis.call('GET', lock_key)
local owner = value and value:sub(-1) == MARK and value:sub(1, -2) or value
local is_whole = owner and owner:sub(1, 4) == 'hf1.' and owner ~= SHARED and owner:sub(1, #LONE_SHARE) ~= LONE_SHARE
if is_whole and owner ~= token and tonumber(intent) then
  --#include clock.lua
  --#include enqueue.lua
  local now_us, last = server_time_us(), redis.pcall('ZRANGE', queue_key, '-1', '-1', 'WITHSCORES')
  local unclaimed = redis.pcall('HGET', waiters_key, 'unclaimed')
  -- Otherwise other code wrote a key, which is reported below.
  if not last.err and type(unclaimed) ~= 'table' then
    local queue = {
      queue_key = queue_key, waiters_key = waiters_key, waiting_key = waiting_key,
      unclaimed = unclaimed, last_seq = last[2], now_us = now_us,
    }
    local entry = {
      token = token, ttl_ms = ttl_ms, block = block, epoch_us = epoch_us, limit = limit, channel = inbox,
    }
    local own_seq = last[2] and redis.call('ZSCORE', queue_key, token)
    local seq = enqueue(queue, entry, own_seq, tonumber(intent))
    if value == owner then
      -- The mark makes the owner's release serve the queue.
      redis.call('SET', lock_key, value .. MARK, 'KEEPTTL')
    end
    local position = last[2] and redis.call('ZRANK', queue_key, token) + 1 or 1
    return { redis.call('PTTL', lock_key), owner, now_us, position, math.floor(tonumber(seq) or 0), owner }
  end
end

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
ttl_ms, epoch_us, block = tonumber(ttl_ms), tonumber(epoch_us), tonumber(block)
--#include open_lock.lua

if lock.value and strip_mark(lock.value) == token then
  if redis.call('PTTL', lock_key) <= ttl_ms then
    redis.call('PEXPIRE', lock_key, ttl_ms)
  end
  if lock.last_seq then
    -- Plain commands that arrived late may have taken the lock for an entry of the queue, or ahead of those in it.
    dequeue(lock, token)
    if lock.value == token and redis.call('EXISTS', queue_key) == 1 then
      redis.call('SET', lock_key, token .. MARK, 'KEEPTTL')
    end
  end
  -- The counter is that of all locks, so the fences of an earlier grant or answer are unknown here. An owner that knows
  -- its fence keeps it.
  return next_fence(lock, block, epoch_us)
end
local ends_ms = limit ~= WHOLE and share_end(lock, token)
local fence = ends_ms and share_fence(lock, token)
if fence then
  if ends_ms <= lock.now_ms + ttl_ms then
    redis.call('ZADD', shared_key, lock.now_ms + ttl_ms, token)
    fit_to_shares(lock)
  end
  return fence
end

local entry = {
  token = token, ttl_ms = ARGV[2], block = ARGV[7] or '1', epoch_us = ARGV[3], limit = limit, channel = inbox,
}

local function take()
  local is_beside = is_shared(lock)
  local fence = grant(lock, entry)
  if limit ~= WHOLE then
    fit_to_shares(lock)
  end
  return is_beside and { fence } or fence
end

local is_foreign = lock.value and not lock.value:find('^hf1%.')
if intent == 'steal' and (not lock.value or not is_foreign and owners_of(lock) == ARGV[8]) then
  revoke(lock)
  return take()
end
local seq = redis.call('ZSCORE', queue_key, token)
if not seq and not lock.last_seq and intent ~= 'poll' and limit ~= WHOLE and has_room(lock, limit, token) then
  -- The queue is empty, so the caller need not be enqueued first.
  purge_expired(lock)
  return take()
end
if seq or tonumber(intent) then
  seq = enqueue(lock, entry, seq, tonumber(intent))
end
if is_open(lock) then
  local served = serve_queue(lock, token)
  if type(served) == 'number' then
    return served
  end
  if served == NOBODY and intent == 'try' and has_room(lock, limit, token) then
    return take()
  end
  lock.value = redis.call('GET', lock_key)
end
-- The mark makes the owner's release serve the queue.
if seq and lock.value and lock.value:find('^hf1%.') and lock.value:sub(-1) ~= MARK then
  redis.call('SET', lock_key, lock.value .. MARK, 'KEEPTTL')
end
local remaining_ms, sharer, sharers = lock.value and redis.call('PTTL', lock_key) or 0, '', 0
if is_shared(lock) then
  sharers = count_shares(lock)
  if limit == WHOLE then
    -- The lock lasts as long as its last share.
    sharer = redis.call('ZRANGE', shared_key, -1, -1)[1] or ''
  else
    -- The first share that ends makes room.
    local range = redis.call('ZRANGEBYSCORE', shared_key, '(' .. lock.now_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    sharer = range[1] or ''
    remaining_ms = range[2] and math.ceil(tonumber(range[2]) - lock.now_ms) or remaining_ms
  end
end
local rank = seq and redis.call('ZRANK', queue_key, token)
return {
  remaining_ms, lock.value and strip_mark(lock.value) or '', lock.now_us,
  rank and rank + 1 or 0, math.floor(tonumber(seq) or 0), owners_of(lock),
  (lock.last_seq or is_shared(lock)) and 1 or 0, sharer, sharers, lock.awaited_ms or -1,
}
