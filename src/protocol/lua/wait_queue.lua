-- wait_queue: grants to the waiters for a lock. Needs enqueue.lua, shares.lua and messages.lua.

-- A waiter whose inbox has no subscriber is waited for this long: it may be connecting again.
local UNREACHED_MS = 3000
-- The longest lease of a grant by message until its owner claims it.
local CLAIM_MS = '3000'
-- No entry has more fences reserved than this.
local BLOCK_MAX = 128
-- The results of serving the queue, besides a fence.
local NOBODY, ANOTHER, UNKNOWN = 'nobody', 'another', 'unknown'

-- The entry of `token`, or nothing if it has left or other code wrote what is no entry.
local function read_entry(lock, token)
  local text = redis.call('HGET', lock.waiters_key, token) or ''
  local deadline_ms, ttl_ms, block, epoch_us, limit, channel =
    text:match('^(%d+) ([1-9]%d*) ([1-9]%d*) (%d+) (%S+) (.*)$')
  if not deadline_ms then
    return nil
  elseif block - BLOCK_MAX > 0 or ttl_ms - FENCE_MAX > 0 or epoch_us - FENCE_MAX > 0 then
    return nil
  elseif limit ~= WHOLE and not limit:find('^%d+$') then
    return nil
  end
  return {
    token = token, deadline_ms = tonumber(deadline_ms), ttl_ms = ttl_ms, block = block, epoch_us = epoch_us,
    limit = limit, channel = channel,
  }
end

-- Takes the mark off the owner's value once the queue is empty, so that the value is the token again.
local function unmark(lock)
  if waiters_mark(lock) == '' and lock.value ~= strip_mark(lock.value) then
    lock.value = strip_mark(lock.value)
    redis.call('SET', lock.key, lock.value, 'KEEPTTL')
  end
end

-- Grants what `entry` asks for, with a fence that its manager accepts, and returns the fence. The value of the whole
-- lock gets `mark`, or the mark if the queue is not empty.
local function grant(lock, entry, mark)
  if entry.limit == WHOLE then
    lock.value = entry.token .. (mark or waiters_mark(lock))
    redis.call('SET', lock.key, lock.value, 'PX', entry.ttl_ms)
    return next_fence(lock, entry.block, entry.epoch_us)
  end
  if not lock.value then
    redis.call('DEL', lock.shared_key)
  end
  local fence = next_fence(lock, entry.block, entry.epoch_us)
  add_share(lock, entry.token, lock.now_ms + entry.ttl_ms, fence)
  return fence
end

-- Grants what `entry` asks for until the claim is over, and adds the notice for its manager to `notices`. The message
-- is a hint; the keys are the truth.
local function grant_by_message(lock, entry, notices)
  if entry.ttl_ms - CLAIM_MS > 0 then
    entry.ttl_ms = CLAIM_MS
  end
  dequeue(lock, entry.token, entry.limit == WHOLE and 'unclaimed')
  -- The mark makes a release that comes ahead of the claim read the record of the grant.
  local fence = grant(lock, entry, MARK)
  if entry.limit ~= WHOLE then
    redis.call('ZADD', lock.shared_key, -lock.now_ms, '?' .. entry.token)
  end
  local channel = entry.channel
  if channel ~= '' then
    if not notices[channel] then
      notices[channel] = {}
      table.insert(notices, channel)
    end
    table.insert(notices[channel], string.format('%s,%.0f,%s', entry.token, fence, entry.ttl_ms))
  end
end

-- Publishes one message to each manager, in the order of their first grants.
local function send_notices(lock, notices)
  for _, channel in ipairs(notices) do
    local grants = table.concat(notices[channel], ';')
    publish(channel, string.format('%s %.0f %s', grants, lock.now_us, lock.key))
  end
end

-- When a waiter last renewed its entry, in ms.
local function last_heard_ms(lock, token)
  local text = redis.call('HGET', lock.waiters_key, token) or ''
  return tonumber(text:match('^(%d+) ') or 0) - LIVENESS_MS
end

-- Removes unclaimed grants and ended shares. Returns the managers that let a whole claim pass in silence, each with
-- the ms until which it was silent.
local function purge_grants(lock)
  local silent = {}
  if lock.unclaimed and not lock.value then
    silent[manager_of(lock.unclaimed) or ''] = lock.now_ms
    clear_unclaimed(lock)
  end
  if lock.members > 0 then
    local until_ms = lock.value and lock.now_ms or '+inf'
    local ended = redis.call('ZRANGEBYSCORE', lock.shared_key, 0, until_ms, 'LIMIT', 0, STEPS_MAX)
    for _, token in ipairs(ended) do
      local granted_ms = redis.call('ZSCORE', lock.shared_key, '?' .. token)
      if granted_ms then
        local manager = manager_of(token) or ''
        silent[manager] = math.max(silent[manager] or 0, -tonumber(granted_ms))
      end
      remove_share(lock.shared_key, token)
    end
  end
  return silent
end

-- Removes ended grants and shares, and all entries of a silent manager that were not renewed since: one unclaimed
-- grant is enough to count it as dead. The `caller` is not: it may seem so after the clock was set back.
local function purge_expired(lock, caller)
  local silent = purge_grants(lock)
  if next(silent) then
    for _, token in ipairs(redis.call('ZRANGE', lock.queue_key, 0, STEPS_MAX - 1)) do
      local silent_ms = silent[manager_of(token) or '']
      if token ~= caller and silent_ms and last_heard_ms(lock, token) <= silent_ms then
        dequeue(lock, token)
      end
    end
  end
end

-- Whether a message would reach the entry. Its answer is kept in `listens`, by channel.
local function is_reachable(entry, listens)
  local channel = entry.channel
  if channel ~= '' and listens[channel] == nil then
    local answer = redis.pcall('PUBSUB', is_sharded(channel) and 'SHARDNUMSUB' or 'NUMSUB', channel)
    listens[channel] = answer[2] ~= 0
  end
  return channel == '' or listens[channel]
end

-- The ms until which an entry that no message reaches is waited for: until UNREACHED_MS after a script has first found such
-- an entry. One record tells that time for all entries that were last renewed before, so that any number of dead waiters
-- costs that time once. An entry that was renewed since begins it anew.
local function unreached_until_ms(lock, entry)
  local since_ms = tonumber(redis.call('HGET', lock.waiters_key, 'unreached') or nil)
  if not since_ms or since_ms > lock.now_ms or entry.deadline_ms - LIVENESS_MS > since_ms then
    redis.call('HSET', lock.waiters_key, 'unreached', string.format('%.0f', lock.now_ms))
    since_ms = lock.now_ms
  end
  return since_ms + UNREACHED_MS
end

-- Grants what is open to the first entries, as long as there is room for the next; an entry that is waited for in vain
-- leaves the queue, and its caller knows its number. Of one that finds no room, `lock.awaited_ms` tells for how long those
-- behind it wait for it, unless it is heard of again. Returns the fence if `caller` is among them; else ANOTHER if an entry
-- got the lock or finds no room, NOBODY if no entry is left, or UNKNOWN if the queue is longer than one call serves.
local function grant_next(lock, caller, notices)
  purge_expired(lock, caller)
  local fence, listens = nil, {}
  for _ = 1, STEPS_MAX do
    local token = redis.call('ZRANGE', lock.queue_key, 0, 0)[1]
    if not token then
      return fence or NOBODY
    end
    local entry = read_entry(lock, token)
    local until_ms = entry and entry.deadline_ms or 0
    local hears = until_ms >= lock.now_ms and (token == caller or is_reachable(entry, listens))
    if until_ms >= lock.now_ms and not hears then
      until_ms = math.min(until_ms, unreached_until_ms(lock, entry))
    end
    if until_ms < lock.now_ms then
      dequeue(lock, token)
    elseif not has_room(lock, entry.limit, token) then
      lock.awaited_ms = until_ms - lock.now_ms
      return fence or ANOTHER
    else
      if token == caller then
        dequeue(lock, token)
        fence = grant(lock, entry)
      else
        -- A message without a subscriber here would still reach a waiter by a replica to which that is connected.
        grant_by_message(lock, entry, hears and notices or {})
      end
      if entry.limit == WHOLE then
        return fence or ANOTHER
      end
    end
  end
  return fence or UNKNOWN
end

-- Grants what is open to the waiters, and notifies them; returns the result of `grant_next`.
local function serve_queue(lock, caller)
  local notices = {}
  local served = grant_next(lock, caller, notices)
  if is_shared(lock) then
    fit_to_shares(lock)
  end
  send_notices(lock, notices)
  return served
end
