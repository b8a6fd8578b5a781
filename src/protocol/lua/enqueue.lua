-- enqueue: puts a caller into the wait queue. Needs constants.lua.
--
-- An entry is a table: token, deadline_ms, ttl_ms, block (the fences reserved for it), epoch_us, limit ('-' for the
-- whole lock, 0 for a share, else a share of a lock with at most this many), channel (the waiter's inbox, '' for one
-- that polls). All but the deadline is text, as the caller gave it.

-- The manager that a token belongs to.
local function manager_of(token)
  return token:match('^hf1%.([^.]*)%.')
end

local function write_entry(lock, entry)
  local text = string.format(
    '%.0f %s %s %s %s %s',
    entry.deadline_ms, entry.ttl_ms, entry.block, entry.epoch_us, entry.limit, entry.channel
  )
  redis.call('HSET', lock.waiters_key, entry.token, text)
end

-- Puts the caller's entry into the queue, keeps it or moves it back, and renews its deadline. `seq` is its number in
-- the queue, if it has one; `asked` the number to have, 0 for the end. The caller marks the lock's value.
local function enqueue(lock, entry, seq, asked)
  local unclaimed = lock.unclaimed
  if unclaimed and manager_of(unclaimed) == manager_of(entry.token) then
    redis.call('HDEL', lock.waiters_key, 'unclaimed')
    lock.unclaimed = nil
  end
  -- An entry moves back if its caller was served: others came before the manager's next caller.
  if not seq or asked and asked > (tonumber(seq) or 0) then
    seq = string.format('%.0f', asked ~= 0 and asked or math.max(lock.now_us, (lock.last_seq or 0) + 1))
    redis.call('ZADD', lock.queue_key, seq, entry.token)
  end
  -- PEXPIRE stands ahead of HSET: Redis lets a script write at maxmemory if its first write needs no memory, so
  -- entries that are in the queue can stay.
  redis.call('PEXPIRE', lock.queue_key, KEYS_MS)
  entry.deadline_ms = math.floor(lock.now_us / 1000) + LIVENESS_MS
  write_entry(lock, entry)
  redis.call('PEXPIRE', lock.waiters_key, KEYS_MS)
  redis.call('SET', lock.waiting_key, '', 'PX', KEYS_MS)
  return seq
end
