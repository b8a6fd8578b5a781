-- permits: how many permits the shares of a lock have, and how a share gives its own back.

-- The permits of the share of `token`. The token tells them, if there is more than one.
local function permits_of(token)
  return tonumber(token:match('^hf1%.[^.]*%.%d+/%d+/([1-9]%d*)') or nil) or 1
end

-- The permits that the shares in the set have besides one each. Those of a share that has ended count until it is removed.
local function further_permits(shared_key)
  return -(tonumber(redis.call('ZSCORE', shared_key, '*') or nil) or 0)
end

-- Adds `change` to them. Without any the set has no record of them.
local function change_permits(shared_key, change)
  local further = further_permits(shared_key) + change
  if further > 0 then
    redis.call('ZADD', shared_key, string.format('%.0f', -further), '*')
  else
    redis.call('ZREM', shared_key, '*')
  end
end

-- Removes the share of `token` and its records, and gives its permits back. A token without a share has none to give.
local function remove_share(shared_key, token)
  local removed, permits = redis.call('ZREM', shared_key, token, '#' .. token, '?' .. token), permits_of(token)
  if permits > 1 and removed > 0 then
    change_permits(shared_key, 1 - permits)
  end
end
