--[[ acquire: take a free lock, stand in line for one that is held, or confirm that the caller owns it
  KEYS   1 lock  2 fence  3 queue  4 waiters
  ARGV   1 token  2 ttl_ms  3 epoch_us  4 block  5 inbox  6 intent
         block: how many fences the grant reserves, the same in every repeat
         inbox: the channel that a grant is published to, '' for a caller who only polls
         intent: 'try' takes nothing but a free lock; 'poll' keeps a place in line or a lock, and gets
         neither anew; a number stands in line, at that number or, if 0, at the end
  REPLY  fence                                            the lock is the token's; the first of block
         { remaining_ms, holder, now_us, position, seq }  it is not: -1 if it never expires; 0 and ''
                                                          if it is free; position 0 if not in line
  WRITES lock fence queue waiters
  AGAIN  the same fence or place; a lease is lengthened to ttl_ms, never shortened
  FAILS  WRONGTYPE if a key holds something else; then nothing is changed
]]
local lock_key, fence_key, queue_key, waiters_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, ttl_ms, epoch_us, block = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local inbox, intent = ARGV[5], ARGV[6]

-- The common case, ahead of everything that only a queue needs: free, and nobody waits.
if intent ~= 'poll' and redis.call('EXISTS', queue_key) == 0
  and redis.call('SET', lock_key, token, 'NX', 'PX', ttl_ms) then
  local counter = redis.pcall('INCRBY', fence_key, block)
  local before = type(counter) == 'number' and counter - block
  if before and before > 0 and before >= tonumber(epoch_us) then
    return before + 1
  end
  -- As fence.lua says, without what only a new counter needs: every first use by a process comes here.
  if before and before > 0 then
    redis.call('SET', fence_key, string.format('%.0f', epoch_us + block - 1), 'KEEPTTL')
    return tonumber(epoch_us)
  end
  --#include fence.lua
  if before then
    return issue(nil, block)
  end
  -- Scripts are not rolled back: what could not be fenced is undone by hand.
  redis.call('DEL', lock_key)
  return refusal(counter, fence_key, 'a fence counter')
end

--#include queue.lua

local holder = redis.call('GET', lock_key)
if holder and bare(holder) == token then
  if redis.call('PTTL', lock_key) <= tonumber(ttl_ms) then
    redis.call('PEXPIRE', lock_key, ttl_ms)
  end
  return counter and counter - block + 1 or issue(counter, block)
end

local seq = redis.call('ZSCORE', queue_key, token)
if seq or (intent ~= 'try' and intent ~= 'poll') then
  seq = stand_in_line(seq)
end
if not holder then
  local passed = advance(token)
  if type(passed) == 'number' then
    return passed
  end
  if passed == NOBODY and intent == 'try' then
    redis.call('SET', lock_key, token .. mark(), 'PX', ttl_ms)
    return issue(counter, block)
  end
  holder = redis.call('GET', lock_key)
end
-- A holder whose value carries the mark looks at the queue when it releases.
if seq and holder and holder:find('^hf1%.') and holder:sub(-1) ~= MARK then
  redis.call('APPEND', lock_key, MARK)
end
local remaining_ms = holder and redis.call('PTTL', lock_key) or 0
local rank = seq and redis.call('ZRANK', queue_key, token)
return { remaining_ms, holder and bare(holder) or '', now_us, rank and rank + 1 or 0, tonumber(seq) or 0 }
