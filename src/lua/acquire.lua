--[[ acquire: take a free lock or a share of it, stand in line for one that is held, or confirm that the
  caller owns it
  KEYS   1 lock  2 fence  3 queue  4 waiters  5 shared
  ARGV   1 token  2 ttl_ms  3 epoch_us  4 inbox  5 intent  6 limit  7 block  8 seen
         inbox: the channel that a grant is published to, '' for a caller who only polls
         intent: 'try' takes nothing but what is free; 'steal' takes the lock from whoever of holdfast
         holds it, and tells them; 'poll' keeps a place in line or a lock, and gets neither anew; a number
         stands in line, at that number or, if 0, at the end; whoever is in line already moves back to it, never ahead
         limit: '-' for the whole lock, 0 for a share of it, else a share if fewer than so many have one
         block: how many fences the grant reserves, the same in every repeat; 1 for a share
         seen: only to steal: the last fence issued as an answer told it; if it is another now, nobody is robbed, for who
         has the lock may have come since
         intent, limit and block may be left out together: 0, '-' and 1
  REPLY  fence                                            the lock is the token's; the first of block
         { remaining_ms, holder, now_us, position, seq,   it is not: -1 if it never expires; 0 and ''
           last }                                         if it is free; position 0 if not in line;
                                                          last: the last fence issued, 0 if none
  WRITES lock fence queue waiters shared
  AGAIN  the same fence or place while the lease lasts, which is lengthened to ttl_ms, never shortened; once it has
         ended the lock is acquired anew, with a new fence
  FAILS  WRONGTYPE if a key holds something else, FENCE if the counter is at its end; then nothing is changed
]]
local lock_key, fence_key, queue_key, waiters_key, shared_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, ttl_ms, epoch_us, inbox = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local intent, limit, block = ARGV[5] or '0', ARGV[6] or '-', ARGV[7] or '1'

-- A fence as fence.lua issues it, without what only a new counter needs; or nothing, and the error. What it
-- needs is passed: a function that refers to locals around it costs each call more than all that it does.
local function next_fence(fence_key, epoch_us, block)
  local counter = redis.pcall('INCRBY', fence_key, block)
  local before = type(counter) == 'number' and counter - block
  if before and before > 9e15 then
    -- Scripts are not rolled back: fence.lua says what is wrong with the counter as it was.
    redis.call('INCRBY', fence_key, -block)
    before = nil
  elseif before and before > 0 and before - epoch_us >= 0 then
    return before + 1
  elseif before and before > 0 then
    -- Every first use by a process comes here.
    redis.call('SET', fence_key, string.format('%.0f', epoch_us + block - 1), 'KEEPTTL')
    return tonumber(epoch_us)
  end
  --#include fence.lua
  if before then
    return issue(nil, block)
  end
  local _, unreadable = last_fence()
  return nil, unreadable or counter
end

-- The common cases, ahead of everything that only a queue needs: nobody waits, and there is room.
if intent ~= 'poll' and redis.call('EXISTS', queue_key) == 0 then
  if limit ~= '-' then
    --#include share.lua
  elseif redis.call('SET', lock_key, token, 'NX', 'PX', ttl_ms) then
    local fence, failure = next_fence(fence_key, epoch_us, block)
    if failure then
      -- Scripts are not rolled back: what could not be fenced is undone by hand.
      redis.call('DEL', lock_key)
      return failure
    end
    return fence
  end
end

local holder = redis.call('GET', lock_key)
--#include queue.lua

if holder and bare(holder) == token then
  if redis.call('PTTL', lock_key) <= tonumber(ttl_ms) then
    redis.call('PEXPIRE', lock_key, ttl_ms)
  end
  -- A counter that is too small for this has not issued the fence: it was lost, or set.
  return counter and counter >= tonumber(block) and counter - block + 1 or issue(counter, block)
end
local ends = limit ~= WHOLE and share_end(token)
local fence = ends and share_fence(token)
if fence then
  if ends <= now_ms + ttl_ms then
    redis.call('ZADD', shared_key, now_ms + ttl_ms, token)
    fit_to_shares()
  end
  return fence
end

-- Gives the caller what there is room for.
local function take()
  local fence = give(token, ttl_ms, block, epoch_us, limit)
  if limit ~= WHOLE then
    fit_to_shares()
  end
  return fence
end

if intent == 'steal' and (not holder or holder:find('^hf1%.') and (counter or 0) == tonumber(ARGV[8])) then
  take_away()
  return take()
end
local seq = redis.call('ZSCORE', queue_key, token)
if not seq and not found[1] and intent ~= 'poll' and limit ~= WHOLE and has_room(limit) then
  -- Nobody waits, so the caller need not stand in line first.
  bury()
  return take()
end
if seq or tonumber(intent) then
  seq = stand_in_line(seq)
end
if is_open() then
  local passed = advance(token)
  if type(passed) == 'number' then
    return passed
  end
  if passed == NOBODY and intent == 'try' and has_room(limit) then
    return take()
  end
  holder = redis.call('GET', lock_key)
end
-- A holder whose value carries the mark looks at the queue when it releases.
if seq and holder and holder:find('^hf1%.') and holder:sub(-1) ~= MARK then
  redis.call('APPEND', lock_key, MARK)
end
local remaining_ms = holder and redis.call('PTTL', lock_key) or 0
if is_shared() and limit ~= WHOLE then
  -- The first share that ends makes room.
  local first = redis.call('ZRANGEBYSCORE', shared_key, '(' .. now_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  remaining_ms = first and tonumber(first) - now_ms or remaining_ms
end
local rank = seq and redis.call('ZRANK', queue_key, token)
return {
  remaining_ms, holder and bare(holder) or '', now_us, rank and rank + 1 or 0, tonumber(seq) or 0, counter or 0,
}
