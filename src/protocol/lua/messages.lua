-- messages: publishing to managers. Needs enqueue.lua and lock_state.lua.

-- On Cluster a message must stay in the slot of the lock, so the channel has the lock's hash tag.
local function is_sharded(channel)
  return channel:find('{', 1, true)
end

-- A server that refuses to publish is no reason to fail: waiters poll before their claims end, and owners
-- notice a loss when they renew.
local function publish(channel, message)
  redis.pcall(is_sharded(channel) and 'SPUBLISH' or 'PUBLISH', channel, message)
end

-- Notifies an owner of the loss of its lock. The channel is never sharded: these messages are rare.
local function notify_owner(lock, event, token)
  local manager = manager_of(token)
  if manager then
    publish('holdfast:' .. manager, string.format('%s %s %s', event, token, lock.key))
  end
end
