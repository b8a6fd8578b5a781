--[[ extend_share: make sure that the owner's share lasts at least ttl_ms from now, and that it counts as claimed
  KEYS   1 lock  2 shared
         no others: a slot that moves refuses scripts that name keys which do not exist
  ARGV   1 token  2 ttl_ms  3 fence
         fence: the one that the owner knows, which the set may lack; it may be left out
  REPLY  fence: the share's, which lasts at least ttl_ms · 0 not the owner
         1 so too, of the whole lock, which its owner is about to downgrade, or of the lone share
         A grant by message counts as claimed in any case, since an owner that comes late is not silent
  WRITES lock (its expiry only) shared
  AGAIN  the same; no lease is ever shortened
  FAILS  WRONGTYPE if a key holds something else; then nothing is changed
]]
--#include constants.lua
--#include clock.lua
--#include lengthen_share.lua
local lock_key, shared_key = KEYS[1], KEYS[2]
local token, ttl_ms, own = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local value = redis.call('GET', lock_key)
if value == token or value == token .. MARK or value == LONE_SHARE .. token then
  --#include lengthen_lock.lua
  return 1
elseif value ~= SHARED and value ~= SHARED .. MARK then
  -- Its owner comes late, and is not silent. Whatever else stands at the key, there is no share.
  redis.pcall('ZREM', shared_key, '?' .. token)
  return 0
end
local fence = lengthen_share(shared_key, token, ttl_ms, own)
-- The lock lasts as long as its last share. Also a share that lasts long enough may have been lengthened by the set alone.
if fence and redis.call('PTTL', lock_key) < ttl_ms then
  redis.call('PEXPIRE', lock_key, ttl_ms)
  redis.call('PEXPIRE', shared_key, ttl_ms + KEYS_MS)
end
return fence or 0
