-- queue: who holds a lock and who waits for it, and how it passes on. Part of every script that may give
-- a lock to somebody, and uses the names that they bind: the five keys, token, epoch_us, holder (the
-- lock's value), and in acquire also ttl_ms, block, inbox, intent, limit.
--
--   queue    ZSET  token -> seq, the order of the line; µs of the server's clock, raised where two meet
--   waiters  HASH  token -> 'deadline_ms ttl_ms block epoch_us limit inbox'; 'unclaimed' -> the token that
--                  was last granted the whole lock by message and has not been heard of since
--   shared   ZSET  token -> end of its share, in ms of the server's clock; '#token' -> its fence, negative
--                  so that it stands apart; '?token' -> when it was granted by message, in ms and negative,
--                  until it is claimed. Counts only while the lock's value says that it is shared
--
--   limit    '-' for the whole lock, 0 for a share of it, else a share of one that at most so many hold
--
--#include fence.lua

-- Stands behind the token in the lock's value when the queue is worth a look.
local MARK = '+'
-- The lock's value while others share it.
local SHARED = 'hf1.shared'
local WHOLE = '-'
-- A waiter that is not heard of for so long has left; the keys outlive the last one.
local LIVENESS_MS, KEYS_MS = 15000, 30000
-- A waiter that cannot be reached keeps its place for so long.
local UNREACHED_MS = 2000
-- A grant by message lasts so long at most until its owner has claimed it.
local CLAIM_MS = 3000
local STEPS_MAX = 128
-- No waiter has more fences reserved than this.
local BLOCK_MAX = 128
local NOBODY, ANOTHER, UNKNOWN = 'nobody', 'another', 'unknown'

-- All that could turn out to be of the wrong type is read ahead of the first write.
local found = redis.pcall('ZRANGE', queue_key, 0, 0)
if found.err then
  return refusal(found, queue_key, 'a queue of waiters')
end
local shares = redis.pcall('ZCOUNT', shared_key, '-inf', '+inf')
if type(shares) == 'table' then
  return refusal(shares, shared_key, 'a set of holders')
end
local unclaimed = redis.pcall('HGET', waiters_key, 'unclaimed')
if type(unclaimed) == 'table' then
  return refusal(unclaimed, waiters_key, 'a table of waiters')
end
local counter, unreadable = last_fence()
if unreadable then
  return unreadable
end
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

local function is_shared()
  return holder and bare(holder) == SHARED
end

-- Whether somebody may get something of the lock now.
local function is_open()
  return not holder or is_shared()
end

-- Whether that is as much as `limit` says.
local function has_room(limit)
  if not holder or limit == WHOLE then
    return not holder
  end
  return is_shared()
    and (limit == '0' or redis.call('ZCOUNT', shared_key, '(' .. now_ms, '+inf') < tonumber(limit))
end

local function describe(deadline_ms, lease_ms, reserved, epoch, limit, channel)
  return string.format('%.0f %.0f %.0f %.0f %s %s', deadline_ms, lease_ms, reserved, epoch, limit, channel)
end

-- What `describe` has noted of a waiter; nothing if it has left, or if what others wrote there makes no sense.
local function details_of(waiter)
  local details = redis.call('HGET', waiters_key, waiter) or ''
  local deadline_ms, lease_ms, reserved, epoch, limit, channel =
    details:match('^(%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  if not deadline_ms then
    return nil
  end
  lease_ms, reserved, epoch = tonumber(lease_ms), tonumber(reserved), tonumber(epoch)
  if lease_ms < 1 or reserved < 1 or reserved > BLOCK_MAX or math.max(lease_ms, epoch) > COUNTER_MAX then
    return nil
  elseif limit ~= WHOLE and not limit:find('^%d+$') then
    return nil
  end
  return tonumber(deadline_ms), lease_ms, reserved, epoch, limit, channel
end

-- Whoever was granted the lock by message has been heard of.
local function claimed()
  redis.call('HDEL', waiters_key, 'unclaimed')
  unclaimed = nil
end

-- Takes the caller's place in line, keeps it or moves it back, and notes that the caller lives.
local function stand_in_line(seq)
  if unclaimed and client(unclaimed) == client(token) then
    claimed()
  end
  local asked = tonumber(intent)
  -- An entry may move back: the caller for whom it was at its place has been served, and others came before the next.
  if not seq or asked and asked > tonumber(seq) then
    seq = asked
    if seq == 0 then
      local last = tonumber(redis.call('ZRANGE', queue_key, -1, -1, 'WITHSCORES')[2])
      seq = math.max(now_us, (last or 0) + 1)
    end
    seq = string.format('%.0f', seq)
    redis.call('ZADD', queue_key, seq, token)
  end
  -- Ahead of the rest: after a write that needs no memory Redis lets the others pass at maxmemory, and
  -- who is in line already can stay there.
  redis.call('PEXPIRE', queue_key, KEYS_MS)
  local details = describe(now_ms + LIVENESS_MS, ttl_ms, block, epoch_us, limit, inbox)
  redis.call('HSET', waiters_key, token, details)
  redis.call('PEXPIRE', waiters_key, KEYS_MS)
  return seq
end

local function leave_line(waiter)
  redis.call('ZREM', queue_key, waiter)
  redis.call('HDEL', waiters_key, waiter)
end

-- The lock lasts as long as the last share of it. Follows every change of the shares.
local function fit_to_shares()
  local last = tonumber(redis.call('ZRANGE', shared_key, -1, -1, 'WITHSCORES')[2])
  if last and last > now_ms then
    holder = SHARED .. mark()
    redis.call('SET', lock_key, holder, 'PX', last - now_ms)
    redis.call('PEXPIRE', shared_key, last - now_ms + KEYS_MS)
  else
    redis.call('DEL', lock_key)
    holder = nil
  end
end

-- When the share of `owner` ends, in ms; nothing if it has none or it has ended.
local function share_end(owner)
  local ends = is_shared() and tonumber(redis.call('ZSCORE', shared_key, owner) or nil)
  return ends and ends > now_ms and ends
end

-- The fence of a share; nothing if others wrote what is no fence there.
local function share_fence(owner)
  local score = tonumber(redis.call('ZSCORE', shared_key, '#' .. owner) or nil)
  return score and score < 0 and score > -2 ^ 53 and -score
end

local function add_share(owner, ends, fence)
  redis.call('ZADD', shared_key, ends, owner, string.format('%.0f', -fence), '#' .. owner)
  holder = SHARED
end

local function remove_share(owner)
  redis.call('ZREM', shared_key, owner, '#' .. owner, '?' .. owner)
end

-- Gives `owner` what there is room for, and returns the fence. A fence below the owner's own epoch would
-- be of no use to it. Of the whole lock the mark follows the token, if `marked` or if somebody waits.
local function give(owner, lease_ms, reserved, epoch, limit, marked)
  local fence
  if limit == WHOLE then
    holder = owner .. (marked or mark())
    redis.call('SET', lock_key, holder, 'PX', lease_ms)
    fence = issue(counter, reserved, epoch)
  else
    if not holder then
      redis.call('DEL', shared_key)
    end
    fence = issue(counter, reserved, epoch)
    add_share(owner, now_ms + lease_ms, fence)
  end
  counter = fence + reserved - 1
  return fence
end

-- On Cluster messages stay with the server of their slot: the channel has the lock's hash tag.
local function is_sharded(channel)
  return channel:find('{', 1, true)
end

-- Whether it may publish at all is no reason to fail: a waiter polls before its claim ends, an owner
-- finds out when it renews.
local function publish(channel, message)
  redis.pcall(is_sharded(channel) and 'SPUBLISH' or 'PUBLISH', channel, message)
end

-- Tells an owner what has become of its lock. On Cluster too it is found by its own channel, which all
-- servers pass on: this is rare.
local function announce(what, owner)
  local manager = client(owner)
  if manager then
    publish('holdfast:' .. manager, string.format('%s %s %s', what, owner, lock_key))
  end
end

-- Takes the lock from all who hold it, and tells them.
local function take_away()
  if is_shared() then
    local owners = redis.call('ZRANGEBYSCORE', shared_key, '(' .. now_ms, '+inf', 'LIMIT', 0, STEPS_MAX)
    for _, owner in ipairs(owners) do
      announce('stolen', owner)
    end
  elseif holder then
    announce('stolen', bare(holder))
  end
  redis.call('DEL', lock_key, shared_key)
  holder = nil
  -- Its owner need not claim it any more, so silence is no sign of death.
  if unclaimed then
    claimed()
  end
end

-- What each process is told at the end, one message for all that it is granted, and in which order.
local told, channels = {}, {}

-- Gives what there is room for to a waiter, who is told. The message is a hint; the data are the truth.
local function offer(waiter, lease_ms, reserved, epoch, limit, channel)
  lease_ms = math.min(lease_ms, CLAIM_MS)
  leave_line(waiter)
  -- Marked, so that also a release ahead of the claim finds the record of it.
  local fence = give(waiter, lease_ms, reserved, epoch, limit, MARK)
  if limit == WHOLE then
    redis.call('HSET', waiters_key, 'unclaimed', waiter)
    redis.call('PEXPIRE', waiters_key, KEYS_MS)
  else
    redis.call('ZADD', shared_key, -now_ms, '?' .. waiter)
  end
  if channel ~= '' then
    if not told[channel] then
      told[channel] = {}
      table.insert(channels, channel)
    end
    table.insert(told[channel], string.format('%s,%.0f,%d', waiter, fence, lease_ms))
  end
end

local function tell()
  for _, channel in ipairs(channels) do
    local grants = table.concat(told[channel], ';')
    publish(channel, string.format('%s %.0f %s', grants, now_us, lock_key))
  end
end

-- When a waiter was heard of last, in ms.
local function heard(waiter)
  local details = redis.call('HGET', waiters_key, waiter) or ''
  return tonumber(details:match('^(%d+) ') or 0) - LIVENESS_MS
end

-- Purges what has ended. Who let a whole claim pass in silence is gone, and one is enough for all that
-- its process waits for here, unless it has been heard of since.
local function bury()
  -- manager -> until when it has been silent, in ms
  local silent = {}
  if unclaimed and not holder then
    silent[client(unclaimed) or ''] = now_ms
    claimed()
  end
  if shares > 0 then
    local ended = redis.call('ZRANGEBYSCORE', shared_key, 0, holder and now_ms or '+inf', 'LIMIT', 0, STEPS_MAX)
    for _, owner in ipairs(ended) do
      local granted_ms = redis.call('ZSCORE', shared_key, '?' .. owner)
      if granted_ms then
        local manager = client(owner) or ''
        silent[manager] = math.max(silent[manager] or 0, -granted_ms)
      end
      remove_share(owner)
    end
  end
  if next(silent) then
    for _, waiter in ipairs(redis.call('ZRANGE', queue_key, 0, STEPS_MAX - 1)) do
      local silent_ms = silent[client(waiter) or '']
      local heard_ms = silent_ms and heard(waiter)
      if silent_ms and heard_ms <= silent_ms then
        leave_line(waiter)
      end
    end
  end
end

-- Whether a waiter would get a message; it asks by itself if it has no channel.
local listens = { [''] = true }
local function is_reachable(channel)
  if listens[channel] == nil then
    local answer = redis.pcall('PUBSUB', is_sharded(channel) and 'SHARDNUMSUB' or 'NUMSUB', channel)
    listens[channel] = answer[2] ~= 0
  end
  return listens[channel]
end

-- Passes on what is open of the lock to the first in line who can be reached, and shares of it to all
-- behind who may have one too. Returns the fence if `caller` is among them; else ANOTHER if somebody
-- still waits, NOBODY at the end of the line, or UNKNOWN if that is too long to be walked at once.
local function walk(caller)
  bury()
  local skipped, own = 0, nil
  for _ = 1, STEPS_MAX do
    local waiter = redis.call('ZRANGE', queue_key, skipped, skipped)[1]
    if not waiter then
      return own or NOBODY
    end
    local deadline_ms, lease_ms, reserved, epoch, limit, channel = details_of(waiter)
    if not deadline_ms or deadline_ms < now_ms then
      leave_line(waiter)
    elseif waiter ~= caller and not is_reachable(channel) then
      local until_ms = now_ms + UNREACHED_MS
      if deadline_ms < until_ms then
        -- Not for the first time. Should it come back, it has its number.
        leave_line(waiter)
      else
        redis.call('HSET', waiters_key, waiter, describe(until_ms, lease_ms, reserved, epoch, limit, channel))
        skipped = skipped + 1
      end
    elseif not has_room(limit) then
      return own or ANOTHER
    else
      if waiter == caller then
        leave_line(waiter)
        own = give(waiter, lease_ms, reserved, epoch, limit)
      else
        offer(waiter, lease_ms, reserved, epoch, limit, channel)
      end
      if limit == WHOLE then
        return own or ANOTHER
      end
    end
  end
  return own or UNKNOWN
end

local function advance(caller)
  local passed = walk(caller)
  if is_shared() then
    fit_to_shares()
  end
  tell()
  return passed
end

if unclaimed == token then
  claimed()
end
if shares > 0 then
  redis.call('ZREM', shared_key, '?' .. token)
end
if is_shared() and redis.call('ZCOUNT', shared_key, '(' .. now_ms, '+inf') == 0 then
  -- The last share ends in this very ms, or their key was lost.
  redis.call('DEL', lock_key)
  holder = nil
end
