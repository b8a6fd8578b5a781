-- lengthen_share: a share by the set of shares alone. Needs constants.lua and clock.lua.

-- Makes the share of `token` last at least `ttl_ms` from now, as far as the set tells. Returns its fence, or nothing if it is
-- over; it counts as claimed in either case, since an owner that comes late is not silent. The set gets `own`, the fence that
-- the owner knows, if it has another one so far.
local function lengthen_share(shared_key, token, ttl_ms, own)
  local ends_ms = tonumber(redis.call('ZSCORE', shared_key, token) or nil)
  local now_ms = math.floor(server_time_us() / 1000)
  -- The fence is stored as a negative score.
  local fence = -(tonumber(redis.call('ZSCORE', shared_key, '#' .. token) or nil) or 0)
  if ends_ms then
    redis.call('ZREM', shared_key, '?' .. token)
  end
  if not ends_ms or ends_ms <= now_ms or fence <= 0 or fence >= 2 ^ 53 then
    return nil
  end
  if own and fence % 1 ~= 0 then
    redis.call('ZADD', shared_key, '-' .. own, '#' .. token)
  end
  if ends_ms < now_ms + ttl_ms then
    redis.call('ZADD', shared_key, now_ms + ttl_ms, token)
  end
  return math.floor(fence)
end
