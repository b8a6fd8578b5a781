-- revoke: take the lock from all its owners. Needs messages.lua.

-- The tokens of the owners, or the value of other code; of a shared lock at most `most`.
local function tokens_of(lock, most)
  if is_shared(lock) then
    return redis.call('ZRANGEBYSCORE', lock.shared_key, '(' .. lock.now_ms, '+inf', 'LIMIT', 0, most)
  end
  return lock.value and { strip_mark(lock.value) } or {}
end

local function revoke(lock)
  for _, token in ipairs(tokens_of(lock, STEPS_MAX)) do
    notify_owner(lock, 'stolen', token)
  end
  redis.call('DEL', lock.key, lock.shared_key)
  lock.value = nil
  -- The owner has nothing left to claim, so its silence does not count against it.
  if lock.unclaimed then
    clear_unclaimed(lock)
  end
end
