--[[ vote: the first round of a ballot: take a free lock on this server, and return what its fence must exceed
  KEYS   1 lock  2 fence
  ARGV   1 token  2 attempt  3 ttl_ms  4 mark  5 first  6 last
         token, attempt: the lock's value becomes 'token.attempt'
         mark: '1' if the caller waits and wants a message when the owner releases the lock
         first, last: the fences that the caller proposes, 0 for none; they are written if the lock is new to the
         attempt, the counter is below first, and the clock not above it
  REPLY  { 1, counter, now_us, written }  the lock is the attempt's on this server; counter: 0 if there is none
                                          written: 1 if the proposed fences are written
         { 0, remaining_ms, holder }      it is not: -1 if it never expires
  WRITES lock fence
  AGAIN  the same, but not written; a lease is never shortened
         An attempt replaces an earlier one of its token, and never a later one.
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is too far ahead of the clock; then nothing is changed
]]
--#include constants.lua
--#include clock.lua
--#include counter.lua
local lock_key, fence_key = KEYS[1], KEYS[2]
local token, attempt, ttl_ms, mark = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local first, last = tonumber(ARGV[5]), ARGV[6]

--#include open_counter.lua
local value = redis.call('GET', lock_key)
local owner, owner_attempt, owner_mark
if value then
  owner, owner_attempt, owner_mark = value:match('^(hf1%..*)%.(%d+)(%+?)$')
  if owner ~= token or tonumber(owner_attempt) > tonumber(attempt) then
    if mark == '1' and owner and owner_mark == '' then
      redis.call('SET', lock_key, value .. MARK, 'KEEPTTL')
    end
    local holder = owner and value:sub(1, #value - #owner_mark) or value
    return { 0, redis.call('PTTL', lock_key), holder }
  end
end
if value and tonumber(owner_attempt) == tonumber(attempt) then
  -- The attempt may have got the lock here as a copy, and rely on a longer lease than this vote asks for.
  --#include lengthen_lock.lua
else
  -- An earlier attempt of the token was given up, and must not block this one.
  redis.call('SET', lock_key, token .. '.' .. attempt .. (owner_mark or ''), 'PX', ttl_ms)
  -- Strictly below, as in the second round: of two attempts that propose the same fence one gets it.
  if first > (counter or 0) and first >= now_us then
    redis.call('SET', fence_key, last, 'PX', FENCE_MS)
    return { 1, tonumber(last), now_us, 1 }
  end
end
return { 1, counter or 0, now_us, 0 }
