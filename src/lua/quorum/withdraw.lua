--[[ withdraw: give up what one attempt has on this server, and tell those who wait
  KEYS   1 lock
  ARGV   1 token  2 channel
         token: with its attempt; a later attempt of the same token is another's
  REPLY  1 freed · 0 not the owner
  WRITES lock
  AGAIN  0; after a lost reply the caller reads it as unknown
  FAILS  WRONGTYPE if lock holds something else; then nothing is changed
]]
local lock_key = KEYS[1]
local token, channel = ARGV[1], ARGV[2]

local holder = redis.call('GET', lock_key)
if holder ~= token and holder ~= token .. '+' then
  return 0
end
redis.call('DEL', lock_key)
-- The mark: somebody was refused meanwhile. Whether it may publish at all is no reason to fail.
if holder ~= token then
  redis.pcall('PUBLISH', channel, 'free ' .. lock_key)
end
return 1
