-- shares: the shares of a lock. Needs lock_state.lua.

local function count_shares(lock)
  return redis.call('ZCOUNT', lock.shared_key, '(' .. lock.now_ms, '+inf')
end

-- Whether some of the lock may be granted now: the whole or a share.
local function is_open(lock)
  return not lock.value or is_shared(lock)
end

-- Whether what `limit` stands for may be granted to `token` now: all its permits or none.
local function has_room(lock, limit, token)
  if not lock.value or limit == WHOLE then
    return not lock.value
  end
  local function fits()
    return count_shares(lock) + further_permits(lock.shared_key) + permits_of(token) <= tonumber(limit)
  end
  return is_shared(lock) and (limit == '0' or fits())
end

-- The end of the share of `token` in ms, unless it is over.
local function share_end(lock, token)
  local ends_ms = is_shared(lock) and tonumber(redis.call('ZSCORE', lock.shared_key, token) or nil)
  return ends_ms and ends_ms > lock.now_ms and math.ceil(ends_ms)
end

-- The fence of the share of `token`, unless other code wrote what is no fence.
local function share_fence(lock, token)
  local score = tonumber(redis.call('ZSCORE', lock.shared_key, '#' .. token) or nil)
  return score and score < 0 and score > -2 ^ 53 and math.floor(-score)
end

local function add_share(lock, token, ends_ms, fence)
  local permits = permits_of(token)
  -- A share of the token that has ended, and was not removed, still counts.
  if permits > 1 and not redis.call('ZSCORE', lock.shared_key, token) then
    change_permits(lock.shared_key, permits - 1)
  end
  redis.call('ZADD', lock.shared_key, ends_ms, token, string.format('%.0f', -fence), '#' .. token)
  lock.value = SHARED
end

-- Makes the lock last as long as its last share. Every change of the shares must be followed by this.
local function fit_to_shares(lock)
  local last_ms = tonumber(redis.call('ZRANGE', lock.shared_key, -1, -1, 'WITHSCORES')[2])
  if last_ms and last_ms > lock.now_ms then
    lock.value = SHARED .. waiters_mark(lock)
    local lasts_ms = math.ceil(last_ms - lock.now_ms)
    redis.call('SET', lock.key, lock.value, 'PX', lasts_ms)
    redis.call('PEXPIRE', lock.shared_key, lasts_ms + KEYS_MS)
  else
    redis.call('DEL', lock.key)
    lock.value = nil
  end
end

-- Frees a shared lock whose last share ends in this very ms, or whose shares were lost.
local function free_if_unshared(lock)
  if is_shared(lock) and count_shares(lock) == 0 then
    redis.call('DEL', lock.key)
    lock.value = nil
  end
end
