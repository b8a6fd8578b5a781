--[[ vote: the first round of a ballot: take a free lock on this server, and return what its fence must exceed
  KEYS   1 lock  2 fence
  ARGV   1 token  2 attempt  3 ttl_ms  4 mark
         token, attempt: the lock's value becomes 'token.attempt'
         mark: '1' if the caller waits and wants a message when the owner releases the lock
  REPLY  { 1, counter, now_us }           the lock is the attempt's on this server; 0 without a counter
         { 0, remaining_ms, holder }      it is not: -1 if it never expires
  WRITES lock
  AGAIN  the same; a lease is never shortened
         An attempt replaces an earlier one of its token, and never a later one.
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is at its end; then nothing is changed
]]
--#include constants.lua
--#include clock.lua
--#include counter.lua
local lock_key, fence_key = KEYS[1], KEYS[2]
local token, attempt, ttl_ms, mark = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local counter, failure = read_counter(fence_key)
if failure then
  return failure
end
local value = redis.call('GET', lock_key)
local owner, owner_attempt, owner_mark
if value then
  owner, owner_attempt, owner_mark = value:match('^(hf1%..*)%.(%d+)(%+?)$')
  if owner ~= token or tonumber(owner_attempt) > tonumber(attempt) then
    if mark == '1' and owner and owner_mark == '' then
      redis.call('APPEND', lock_key, MARK)
    end
    local holder = owner and value:sub(1, #value - #owner_mark) or value
    return { 0, redis.call('PTTL', lock_key), holder }
  end
end
if value and tonumber(owner_attempt) == tonumber(attempt) then
  -- The attempt may have got the lock here by a fill, and rely on a longer lease than this vote asks for.
  if redis.call('PTTL', lock_key) < ttl_ms then
    redis.call('PEXPIRE', lock_key, ttl_ms)
  end
else
  -- An earlier attempt of the token was given up, and must not block this one.
  redis.call('SET', lock_key, token .. '.' .. attempt .. (owner_mark or ''), 'PX', ttl_ms)
end
return { 1, counter or 0, server_time_us() }
