-- queue: who waits for a lock, and how it passes on. Part of acquire and release, and uses the names
-- that they bind: the four keys, token, epoch_us, and in acquire also ttl_ms, block, inbox, intent.
--
--   queue    ZSET  token -> seq, the order of the line; µs of the server's clock, raised where two meet
--   waiters  HASH  token -> 'deadline_ms ttl_ms block epoch_us inbox'; 'unclaimed' -> the token that was
--                  last granted by message and has not been heard of since
--
--#include fence.lua

-- Stands behind the token in the lock's value when the queue is worth a look.
local MARK = '+'
-- A waiter that is not heard of for so long has left; the keys outlive the last one.
local LIVENESS_MS, KEYS_MS = 15000, 30000
-- A waiter that cannot be reached keeps its place for so long.
local UNREACHED_MS = 2000
-- A grant by message lasts so long at most until its owner has claimed it.
local CLAIM_MS = 3000
local STEPS_MAX = 128
local NOBODY, ANOTHER, UNKNOWN = 'nobody', 'another', 'unknown'

-- All that could turn out to be of the wrong type is read ahead of the first write.
local found = redis.pcall('ZRANGE', queue_key, 0, 0)
if found.err then
  return refusal(found, queue_key, 'a queue of waiters')
end
local unclaimed = redis.pcall('HGET', waiters_key, 'unclaimed')
if type(unclaimed) == 'table' then
  return refusal(unclaimed, waiters_key, 'a table of waiters')
end
local counter = redis.pcall('GET', fence_key)
if type(counter) == 'table' then
  return refusal(counter, fence_key, 'a fence counter')
elseif counter and not counter:find('^%d+$') then
  return refusal({ err = 'not an integer' }, fence_key, 'a fence counter')
end
counter = counter and tonumber(counter)
local now_ms = math.floor(now_us / 1000)

-- The lock's value as its owner knows it.
local function bare(value)
  return (value:gsub('^(hf1%..*)%+$', '%1'))
end

-- Which manager a token belongs to.
local function client(owner)
  return owner:match('^hf1%.([^.]*)%.')
end

local function mark()
  return redis.call('EXISTS', queue_key) == 1 and MARK or ''
end

local function describe(deadline_ms, lease_ms, reserved, epoch, channel)
  return string.format('%.0f %s %s %s %s', deadline_ms, lease_ms, reserved, epoch, channel)
end

-- Whoever was granted the lock by message has been heard of.
local function claimed()
  redis.call('HDEL', waiters_key, 'unclaimed')
  unclaimed = nil
end

-- Takes the caller's place in line, or keeps it, and notes that the caller lives.
local function stand_in_line(seq)
  if unclaimed and client(unclaimed) == client(token) then
    claimed()
  end
  if not seq then
    seq = tonumber(intent)
    if seq == 0 then
      local last = redis.call('ZRANGE', queue_key, -1, -1, 'WITHSCORES')[2]
      seq = math.max(now_us, last and last + 1 or 0)
    end
    seq = string.format('%.0f', seq)
    redis.call('ZADD', queue_key, seq, token)
  end
  -- Ahead of the rest: after a write that needs no memory Redis lets the others pass at maxmemory, and
  -- who is in line already can stay there.
  redis.call('PEXPIRE', queue_key, KEYS_MS)
  local details = describe(now_ms + LIVENESS_MS, ttl_ms, block, epoch_us, inbox)
  redis.call('HSET', waiters_key, token, details)
  redis.call('PEXPIRE', waiters_key, KEYS_MS)
  return seq
end

local function leave_line(waiter)
  redis.call('ZREM', queue_key, waiter)
  redis.call('HDEL', waiters_key, waiter)
end

-- On Cluster messages stay with the server of their slot: the channel has the lock's hash tag.
local function is_sharded(channel)
  return channel:find('{', 1, true)
end

-- Gives the free lock to a waiter and tells it. The message is a hint; the lock's value is the truth.
-- A fence below the waiter's own epoch would be of no use to it.
local function offer(waiter, lease_ms, reserved, epoch, channel)
  lease_ms = math.min(lease_ms, CLAIM_MS)
  redis.call('ZREM', queue_key, waiter)
  redis.call('HSET', waiters_key, 'unclaimed', waiter)
  redis.call('HDEL', waiters_key, waiter)
  redis.call('SET', lock_key, waiter .. MARK, 'PX', lease_ms)
  local fence = issue(counter, reserved, epoch)
  if channel ~= '' then
    -- Whether it may publish at all is no reason to fail: a waiter polls before its claim ends.
    redis.pcall(is_sharded(channel) and 'SPUBLISH' or 'PUBLISH', channel, string.format('%s %.0f %d %.0f %s', waiter, fence, lease_ms, now_us, lock_key))
  end
end

-- Passes the free lock to the first in line who can be reached: returns the fence if that is `caller`,
-- ANOTHER, NOBODY at the end of the line, or UNKNOWN if the line is too long to be walked at once.
local function advance(caller)
  if unclaimed then
    -- Its owner let a whole claim pass in silence: one is enough for all that it waits for here.
    redis.call('HDEL', waiters_key, 'unclaimed')
    for _, waiter in ipairs(redis.call('ZRANGE', queue_key, 0, STEPS_MAX - 1)) do
      if client(waiter) == client(unclaimed) then
        leave_line(waiter)
      end
    end
  end
  local skipped = 0
  for _ = 1, STEPS_MAX do
    local waiter = redis.call('ZRANGE', queue_key, skipped, skipped)[1]
    if not waiter then
      return NOBODY
    end
    local details = redis.call('HGET', waiters_key, waiter) or ''
    local deadline_ms, lease_ms, reserved, epoch, channel = details:match('^(%d+) (%d+) (%d+) (%d+) (.*)$')
    if not deadline_ms or tonumber(deadline_ms) < now_ms then
      leave_line(waiter)
    elseif waiter == caller then
      leave_line(waiter)
      redis.call('SET', lock_key, waiter .. mark(), 'PX', ttl_ms)
      return issue(counter, reserved)
    elseif channel ~= '' and redis.pcall('PUBSUB', is_sharded(channel) and 'SHARDNUMSUB' or 'NUMSUB', channel)[2] == 0 then
      local until_ms = now_ms + UNREACHED_MS
      if tonumber(deadline_ms) < until_ms then
        -- Not for the first time. Should it come back, it has its number.
        leave_line(waiter)
      else
        redis.call('HSET', waiters_key, waiter, describe(until_ms, lease_ms, reserved, epoch, channel))
        skipped = skipped + 1
      end
    else
      offer(waiter, lease_ms, reserved, epoch, channel)
      return ANOTHER
    end
  end
  return UNKNOWN
end

if unclaimed == token then
  claimed()
end
