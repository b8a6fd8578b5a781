--[[ vote: the first round of a ballot: take a free lock on this server, and tell what its fence must exceed
  KEYS   1 lock  2 fence
  ARGV   1 token  2 attempt  3 ttl_ms  4 mark
         token, attempt: the lock's value becomes 'token.attempt'
         mark: '1' if the caller waits and wants a message when the holder lets go
  REPLY  { 1, counter, now_us }           the lock is the attempt's on this server; 0 without a counter
         { 0, remaining_ms, holder }      it is not: -1 if it never expires
  WRITES lock
  AGAIN  the same; a lease is never shortened
         An attempt replaces an earlier one of its token, and never a later one.
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is at its end; then nothing is changed
]]
local lock_key, fence_key = KEYS[1], KEYS[2]
local token, attempt, ttl_ms, mark = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

--#include counter.lua
local holder = redis.call('GET', lock_key)
local owner, number, plus
if holder then
  owner, number, plus = holder:match('^(hf1%..*)%.(%d+)(%+?)$')
  if owner ~= token or tonumber(number) > tonumber(attempt) then
    if mark == '1' and owner and plus == '' then
      redis.call('APPEND', lock_key, '+')
    end
    local bare = owner and holder:sub(1, #holder - #plus) or holder
    return { 0, redis.call('PTTL', lock_key), bare }
  end
end
if holder and tonumber(number) == tonumber(attempt) then
  -- The attempt may have got the lock here by a fill, and rely on a longer lease than this vote asks for.
  if redis.call('PTTL', lock_key) < tonumber(ttl_ms) then
    redis.call('PEXPIRE', lock_key, ttl_ms)
  end
else
  -- An earlier attempt of the token was given up: it must not stand in the way of this one.
  redis.call('SET', lock_key, token .. '.' .. attempt .. (plus or ''), 'PX', ttl_ms)
end
local time = redis.call('TIME')
return { 1, tonumber(counter or 0), time[1] * 1000000 + time[2] }
