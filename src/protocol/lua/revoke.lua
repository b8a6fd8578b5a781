-- revoke: take the lock from all its owners. Needs messages.lua.

local function revoke(lock)
  if is_shared(lock) then
    local tokens = redis.call('ZRANGEBYSCORE', lock.shared_key, '(' .. lock.now_ms, '+inf', 'LIMIT', 0, STEPS_MAX)
    for _, token in ipairs(tokens) do
      notify_owner(lock, 'stolen', token)
    end
  elseif lock.value then
    notify_owner(lock, 'stolen', strip_mark(lock.value))
  end
  redis.call('DEL', lock.key, lock.shared_key)
  lock.value = nil
  -- The owner has nothing left to claim, so its silence does not count against it.
  if lock.unclaimed then
    clear_unclaimed(lock)
  end
end
