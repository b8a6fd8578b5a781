-- room_for_one: whether a share with one permit can be taken at once, as if by has_room of shares.lua but without reading
-- the whole lock. Needs constants.lua and clock.lua.

-- The members of the set of shares, the lock's value and the time in ms if no share has ended, awaits its claim or has
-- more than one permit, and there is room for one more with one; else nothing. lock_state.lua says what the keys hold.
local function find_room_for_one(lock_key, shared_key, token, intent, limit)
  local members = redis.pcall('ZCOUNT', shared_key, '-inf', '+inf')
  local value = redis.call('GET', lock_key)
  local now_ms = math.floor(server_time_us() / 1000)
  if type(members) ~= 'number' or intent == 'steal' or value and value ~= SHARED then
    return nil
  elseif limit ~= '0' and token:find('^hf1%.[^.]*%.%d+/%d+/') then
    -- Several permits must be counted.
    return nil
  end
  if value then
    -- A share that lasts has two members. A third is the record of a grant by message, or of further permits.
    local live = redis.call('ZCOUNT', shared_key, '(' .. now_ms, '+inf')
    if live == 0 or members ~= 2 * live or not (limit == '0' or live < tonumber(limit))
      or redis.call('ZSCORE', shared_key, token) then
      return nil
    end
  end
  return members, value, now_ms
end
