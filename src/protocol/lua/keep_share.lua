--[[ keep_share: lengthen a share by the set of shares alone, while its slot moves to another server, which refuses scripts
  that name keys which do not exist
  KEYS   1 shared
  ARGV   1 token  2 ttl_ms
  REPLY  fence: the share's, which lasts at least ttl_ms from now if the lock does · 0 it is over. It counts as claimed
  WRITES shared
  AGAIN  the same; no lease is ever shortened
  FAILS  WRONGTYPE if shared holds something else; then nothing is changed
]]
--#include constants.lua
--#include clock.lua
--#include lengthen_share.lua
local shared_key = KEYS[1]
local token, ttl_ms = ARGV[1], tonumber(ARGV[2])

local fence = lengthen_share(shared_key, token, ttl_ms)
if fence and redis.call('PTTL', shared_key) < ttl_ms + KEYS_MS then
  redis.call('PEXPIRE', shared_key, ttl_ms + KEYS_MS)
end
return fence or 0
