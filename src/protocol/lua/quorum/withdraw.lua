--[[ withdraw: give up the lock of one attempt on this server, and notify the waiters
  KEYS   1 lock
  ARGV   1 token  2 channel
         token: with its attempt; a later attempt of the same token is another's
  REPLY  1 freed · 0 not the owner
  WRITES lock
  AGAIN  0; after a lost reply the caller reads it as unknown
  FAILS  WRONGTYPE if lock holds something else; then nothing is changed
]]
--#include constants.lua
local lock_key = KEYS[1]
local token, channel = ARGV[1], ARGV[2]

local value = redis.call('GET', lock_key)
if value ~= token and value ~= token .. MARK then
  return 0
end
redis.call('DEL', lock_key)
if value ~= token then
  -- The mark says that a waiter was refused. A server that refuses to publish is no reason to fail.
  redis.pcall('PUBLISH', channel, 'free ' .. lock_key)
end
return 1
