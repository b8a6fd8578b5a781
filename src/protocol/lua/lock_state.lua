-- lock_state: the state of a lock by its keys. Needs constants.lua, clock.lua, counter.lua,
-- fence.lua and permits.lua.
-- `last_seq` is the number of the last entry of the queue, nothing if it is empty.
--
--   lock     STRING  the owner's token, SHARED, or what other code wrote; MARK follows the first two if a
--                    release must serve the queue. LONE_SHARE and a token, never marked: plain commands have taken a
--                    share, the only one, which is not in the set
--   queue    ZSET    token -> seq, the order of the queue; µs of the server's clock, raised where two meet
--   waiting  STRING  exists as long as the queue, for commands that cannot read a queue
--   waiters  HASH    token -> 'deadline_ms ttl_ms block epoch_us limit channel'; 'unclaimed' -> the token
--                    that was last granted the whole lock by message and has not been heard of since; 'unreached'
--                    -> when a script found a waiter whose inbox has no subscriber, in ms
--   shared   ZSET    token -> end of its share, in ms of the server's clock; '#token' -> its fence, negative
--                    so that it stands apart, and half a number more as long as it is not the one that the owner
--                    knows; '?token' -> when it was granted by message, in ms and negative, until it is claimed;
--                    '*' -> the permits that shares have besides one each, negative, if they have any. Counts only
--                    while the lock's value says that it is shared

-- A score is text or a number, as the server likes it. Lua 5.4 tells integers and floats apart, and servers disagree on
-- what a float becomes: whatever follows from a score is rounded before a command or the caller gets it.

-- One call handles no more waiters, and no more shares.
local STEPS_MAX = 128

-- The mark if the queue is not empty.
local function waiters_mark(lock)
  return redis.call('EXISTS', lock.queue_key) == 1 and MARK or ''
end

-- Removes the entry of `token`, if it has one. A `record` of its grant takes its place: the key keeps its expiry, which
-- is later than the end of any claim.
local function dequeue(lock, token, record)
  if redis.call('ZREM', lock.queue_key, token) == 1 then
    if record then
      redis.call('HSET', lock.waiters_key, record, token)
    end
    if redis.call('EXISTS', lock.queue_key) == 0 then
      redis.call('HDEL', lock.waiters_key, token, 'unreached')
      redis.call('DEL', lock.waiting_key)
    else
      redis.call('HDEL', lock.waiters_key, token)
    end
  end
end

-- The first of `block` fences above all that were issued, and at or above `epoch_us`.
local function next_fence(lock, block, epoch_us)
  local first = issue_fences(lock.fence_key, lock.counter, block, math.max(lock.epoch_us, tonumber(epoch_us)), lock.now_us)
  lock.counter = first + block - 1
  return first
end

-- Puts the share that plain commands have taken into the set, where others may follow. Its owner alone knows its fence, so
-- the set has a later one, since fences of the set identify the owners, and half of the next to tell it from an owner's.
-- Plain commands that arrived late may have taken the share for an entry of the queue, which must not be granted once more.
local function collect_lone_share(lock, token)
  dequeue(lock, token)
  local lasts_ms = math.max(redis.call('PTTL', lock.key), 1)
  if lock.members > 0 then
    redis.call('DEL', lock.shared_key)
  end
  local fence = string.format('%.1f', -next_fence(lock, 2, 0) - 0.5)
  redis.call('ZADD', lock.shared_key, lock.now_ms + lasts_ms, token, fence, '#' .. token)
  local permits = permits_of(token)
  if permits > 1 then
    change_permits(lock.shared_key, permits - 1)
  end
  redis.call('PEXPIRE', lock.shared_key, lasts_ms + KEYS_MS)
  lock.value, lock.members = SHARED .. waiters_mark(lock), 2
  redis.call('SET', lock.key, lock.value, 'KEEPTTL')
end

-- The keys and their values, or nothing and the error; both if only the counter is of no use, for callers that issue no
-- fence. Reads every key that could be of the wrong type ahead of the first write. `value` is the lock's; no fence is issued
-- below `epoch_us`, the epoch of the caller.
local function read_lock(lock_key, fence_key, queue_key, waiters_key, shared_key, waiting_key, value, epoch_us)
  local now_us = server_time_us()
  local last = redis.pcall('ZRANGE', queue_key, '-1', '-1', 'WITHSCORES')
  if last.err then
    return nil, refusal(last, queue_key, 'a queue of waiters')
  end
  local members = redis.pcall('ZCOUNT', shared_key, '-inf', '+inf')
  if type(members) == 'table' then
    return nil, refusal(members, shared_key, 'a set of holders')
  end
  local unclaimed = redis.pcall('HGET', waiters_key, 'unclaimed')
  if type(unclaimed) == 'table' then
    return nil, refusal(unclaimed, waiters_key, 'a table of waiters')
  end
  local counter, failure = read_counter(fence_key, now_us + AHEAD_US)
  local lock = {
    key = lock_key, fence_key = fence_key, queue_key = queue_key, waiters_key = waiters_key, shared_key = shared_key,
    waiting_key = waiting_key, value = value, last_seq = last[2], members = members, unclaimed = unclaimed, counter = counter,
    epoch_us = epoch_us, now_us = now_us, now_ms = math.floor(now_us / 1000),
  }
  if not failure and value and value:sub(1, #LONE_SHARE) == LONE_SHARE then
    collect_lone_share(lock, value:sub(#LONE_SHARE + 1))
  end
  return lock, failure
end

-- The value as the owner of the lock knows it.
local function strip_mark(value)
  return value:sub(-1) == MARK and value:sub(1, 4) == 'hf1.' and value:sub(1, -2) or value
end

local function is_shared(lock)
  return lock.value == SHARED or lock.value == SHARED .. MARK
end

-- Identifies the owners: it changes whenever another gets the lock or a share of it. Other code is one owner.
local function owners_of(lock)
  if not lock.value or not lock.value:find('^hf1%.') then
    return lock.value and 'foreign' or ''
  elseif is_shared(lock) then
    -- By the fence of the newest share: fences are stored negative, so it stands first.
    local score = tonumber(redis.call('ZRANGE', lock.shared_key, 0, 0, 'WITHSCORES')[2])
    return score and string.format('%.17g', score) or ''
  end
  return strip_mark(lock.value)
end

-- Forgets that a grant of the whole lock awaits its claim.
local function clear_unclaimed(lock)
  redis.call('HDEL', lock.waiters_key, 'unclaimed')
  lock.unclaimed = nil
end

-- A call for `token` claims what the token was granted by message.
local function claim(lock, token)
  if lock.unclaimed == token then
    clear_unclaimed(lock)
  end
  if lock.members > 0 then
    redis.call('ZREM', lock.shared_key, '?' .. token)
  end
end
