//! The defects that the simulator of one server must find, and in which kind of schedule.

use super::defects::{Change, Defect, script};
use super::simulator::Kind;
use super::written::KEEPS_FOREIGN;

pub(super) const DEFECTS: &[(&str, Kind, Change)] = &[
    // Other code's leases.
    (
        "other code's lease is renewed under another value",
        Kind::Steady,
        script(KEEPS_FOREIGN, "if redis.call('EXISTS', lock_key) == 0 then\n  return 0"),
    ),
    (
        "other code's lock is taken when it is gone",
        Kind::Steady,
        script(
            KEEPS_FOREIGN,
            "redis.call('SET', lock_key, value, 'NX', 'PX', ttl_ms)\nif redis.call('GET', lock_key) ~= value then\n  return 0",
        ),
    ),
    (
        "other code's lock gets an end",
        Kind::Steady,
        script("if left_ms >= 0 and left_ms < ttl_ms then", "if left_ms < ttl_ms then"),
    ),
    (
        "what is renewed for other code is released",
        Kind::Steady,
        Change::Machine(Defect::ForeignReleased),
    ),
    // Changed keys.
    (
        "a message that a key has changed ends the lease of its lock",
        Kind::Steady,
        Change::Machine(Defect::ChangeBelieved),
    ),
    (
        "only the first message that a key has changed is heard",
        Kind::Steady,
        Change::Machine(Defect::ChangeHeardOnce),
    ),
    // Owners.
    (
        "a release compares the owner, and not its hold",
        Kind::Steady,
        script(
            "local is_owned = value == token or",
            "local is_owned = token:find('.@', 1, true) and value\n  and value:match('%.@[^+]*') == token:match('%.@.*') or value == token or",
        ),
    ),
    (
        "a take-over keeps the token of the earlier hold",
        Kind::Steady,
        script(
            "redis.call('SET', lock_key, token .. mark, 'PX', ends_ms - lock.now_ms)",
            "redis.call('SET', lock_key, owner .. mark, 'PX', ends_ms - lock.now_ms)",
        ),
    ),
    (
        "a renewal lengthens the later hold of its owner",
        Kind::Steady,
        script(
            "if value ~= token and value ~= token .. MARK and value ~= LONE_SHARE .. token then",
            "if value ~= token and value ~= token .. MARK and value ~= LONE_SHARE .. token\n  and not (value and token:find('.@', 1, true) and value:match('%.@[^+]*') == token:match('%.@.*')) then",
        ),
    ),
    (
        "an owner does not get what it has elsewhere",
        Kind::Steady,
        Change::Machine(Defect::OwnersHoldUnseen),
    ),
    // Renewals by the plain command.
    (
        "a plain renewal renews after the end",
        Kind::Steady,
        Change::Machine(Defect::PlainRenewalRevives),
    ),
    (
        "a plain renewal sets the value of another",
        Kind::Steady,
        Change::Machine(Defect::PlainRenewalOfAnother),
    ),
    // Ownership.
    (
        "a release frees another's lock",
        Kind::Steady,
        script(
            "if redis.call('GET', lock_key) == token then",
            "if redis.call('GET', lock_key) then",
        ),
    ),
    (
        "a lock is taken while it is held",
        Kind::Steady,
        script("token, 'NX', 'PX', ttl_ms)", "token, 'PX', ttl_ms)"),
    ),
    (
        "a newcomer takes a free lock ahead of the waiters",
        Kind::Steady,
        script("redis.call('EXISTS', queue_key) == 0", "true"),
    ),
    (
        "a poll takes a lock that it does not wait for",
        Kind::Steady,
        script("if intent ~= 'poll' and redis.call('EXISTS'", "if redis.call('EXISTS'"),
    ),
    (
        "a forced release takes the lock from others than are meant",
        Kind::Steady,
        script("if not meant[owner] then", "if false then"),
    ),
    (
        "a marked value is not known as the releaser's",
        Kind::Steady,
        script("if is_owner then\n  redis.call('DEL'", "if false then\n  redis.call('DEL'"),
    ),
    (
        "a release grants the lock to nobody",
        Kind::Steady,
        script(
            "if not failure and is_open(lock) and serve_queue(lock) == UNKNOWN then",
            "if false then",
        ),
    ),
    (
        "only an owner's release grants the lock to a waiter",
        Kind::Steady,
        script(
            "if not failure and is_open(lock) and serve_queue(lock) == UNKNOWN",
            "if is_held and serve_queue(lock) == UNKNOWN",
        ),
    ),
    ("a token is used again", Kind::Steady, Change::Machine(Defect::TokenUsedAgain)),
    ("an earlier holder's release counts", Kind::Steady, Change::Machine(Defect::StaleHandle)),
    // More handoffs.
    (
        "fences are reserved for whoever asks",
        Kind::Steady,
        script(
            "if value ~= token and value ~= token .. MARK then\n  return 0\nend\nlocal waiting",
            "local waiting",
        ),
    ),
    (
        "a reservation cuts the lease",
        Kind::Steady,
        script(
            "if redis.call('PTTL', lock_key) - ttl_ms < 0 then\n  redis.call('PEXPIRE', lock_key, ttl_ms)\nend\n\n\
             return { fence, waiting }",
            "redis.call('PEXPIRE', lock_key, 50)\nreturn { fence, waiting }",
        ),
    ),
    (
        "fences are counted and not reserved",
        Kind::Steady,
        script(
            "local waiting = redis.call('ZCOUNT', queue_key, '-inf', '+inf')\n-- next_fence",
            "block = '0'\nlocal waiting = redis.call('ZCOUNT', queue_key, '-inf', '+inf')\n-- next_fence",
        ),
    ),
    ("an idle lock is kept without an end", Kind::Steady, Change::Machine(Defect::IdleForEver)),
    ("an idle lock is kept at close", Kind::Steady, Change::Machine(Defect::IdleKeptAtClose)),
    // Leases.
    (
        "an extension cuts the lease",
        Kind::Steady,
        script("if redis.call('PTTL', lock_key) - ttl_ms < 0 then", "if true then"),
    ),
    (
        "a repeated acquire cuts the lease",
        Kind::Steady,
        script("if redis.call('PTTL', lock_key) <= ttl_ms then", "if true then"),
    ),
    (
        "an owner that asks again gets no lease",
        Kind::Steady,
        script("if redis.call('PTTL', lock_key) <= ttl_ms then", "if false then"),
    ),
    (
        "anybody may extend",
        Kind::Steady,
        script(
            "if value ~= token and value ~= token .. MARK and value ~= LONE_SHARE .. token then",
            "if not value then",
        ),
    ),
    (
        "anybody may claim",
        Kind::Steady,
        script("if value ~= token and value ~= token .. MARK then", "if not value then"),
    ),
    ("nobody claims a long lease", Kind::Steady, script("    entry.ttl_ms = CLAIM_MS\n", "")),
    (
        "a grant by message is longer than its message says",
        Kind::Steady,
        script("'%s,%.0f,%s', entry.token", "'%s,%.0f,9%s', entry.token"),
    ),
    (
        "a grant is dated too late",
        Kind::Steady,
        script("grants, lock.now_us, lock.key))", "grants, lock.now_us + 2000000, lock.key))"),
    ),
    ("validity counts from the answer", Kind::Steady, Change::Machine(Defect::ValidFromReply)),
    ("validity counts from the message", Kind::Steady, Change::Machine(Defect::ValidFromArrival)),
    ("a loss is not reported", Kind::Steady, Change::Machine(Defect::LossNotReported)),
    ("a claim that is over starts its owner", Kind::Steady, Change::Machine(Defect::ClaimNotTimed)),
    (
        "a claim is forgotten once it is denied",
        Kind::Steady,
        Change::Machine(Defect::DeniedClaimForgotten),
    ),
    (
        "a share that a token has already is dated by the request that finds it",
        Kind::Steady,
        Change::Machine(Defect::KnownShareDatedAnew),
    ),
    (
        "a message is dated after its arrival",
        Kind::Stepping,
        Change::Machine(Defect::MessageDatedAhead),
    ),
    (
        "clocks that were compared long ago are believed",
        Kind::Stepping,
        Change::Machine(Defect::ClocksNeverOld),
    ),
    (
        "a lock that is not renewed is not asked about after a reconnection",
        Kind::Losing,
        Change::Machine(Defect::DenialUnheard),
    ),
    (
        "a lock that is not renewed is not asked about before its end",
        Kind::Flushing,
        Change::Machine(Defect::UnrenewedUnasked),
    ),
    (
        "a late answer makes a lease valid again",
        Kind::Steady,
        Change::Machine(Defect::LateRenewalCounts),
    ),
    // Fences.
    (
        "a fence is not above the last",
        Kind::Steady,
        script("math.max((counter or 0) + 1, epoch_us", "math.max(counter or 0, epoch_us"),
    ),
    (
        "a fence of the fast path is the last again",
        Kind::Steady,
        script("fence = before + 1", "fence = before"),
    ),
    (
        "a block of fences is not reserved",
        Kind::Steady,
        script("redis.call('INCRBY', fence_key, block)", "redis.call('INCRBY', fence_key, 1)"),
    ),
    (
        "a block of fences is not reserved when an epoch lifts the counter",
        Kind::Losing,
        script("'%.0f', first + block - 1", "'%.0f', first"),
    ),
    ("a block of fences has no end", Kind::Steady, Change::Machine(Defect::FencesWithoutEnd)),
    (
        "a busy lock's fences outrun the clock",
        Kind::Losing,
        script(
            "redis.pcall('INCRBY', fence_key, block)",
            "redis.pcall('INCRBY', fence_key, block + 9999999)",
        ),
    ),
    ("no epoch lifts the fences", Kind::Losing, Change::Machine(Defect::NoEpoch)),
    // 1. A holds, with a counter that began at 10:00.
    // 2. B connects at 10:05, and is enqueued.
    // 3. A releases and issues a fence of 10:00. B cannot tell it from one of a lost history, and gives the grant back.
    (
        "a waiter's own epoch is ignored",
        Kind::Losing,
        script("math.max(lock.epoch_us, tonumber(epoch_us))", "lock.epoch_us"),
    ),
    (
        "a new counter begins at one",
        Kind::Losing,
        script("is_new and now_us or 0", "is_new and 1 or 0"),
    ),
    (
        "a lock that cannot be fenced stays taken",
        Kind::Steady,
        script("if failure and limit == WHOLE then", "if false then"),
    ),
    (
        "a counter that INCR has begun is taken for one that begins at the clock",
        Kind::Flushing,
        script("local FENCE_MIN, FENCE_MAX = 1e15", "local FENCE_MIN, FENCE_MAX = 1"),
    ),
    (
        "a fence counter ends",
        Kind::Steady,
        script(
            "redis.call('SET', fence_key, last, 'KEEPTTL')",
            "redis.call('SET', fence_key, last, 'PX', 864000)",
        ),
    ),
    (
        "the counter of a single lock never ends",
        Kind::Steady,
        script(
            "redis.call('SET', fence_key, last, 'PX', FENCE_MS)",
            "redis.call('SET', fence_key, last)",
        ),
    ),
    (
        "a counter that a first use lifts never ends",
        Kind::Steady,
        script("epoch_us + block - 1), 'KEEPTTL')", "epoch_us + block - 1))"),
    ),
    // Plain commands.
    ("plain commands take a lock that is held", Kind::Steady, Change::Machine(Defect::PlainSet)),
    // A waiter may enqueue between SET and MGET: it marks A's lock and writes the queue. Then A gives back a lock that it
    // owned rightly, and loses its turn. That is the whole price of looking at the queue after SET.
    ("plain commands overtake the waiters", Kind::Calm, Change::Machine(Defect::PlainWithoutFlag)),
    (
        "plain commands do not look whether the lock is still the token's",
        Kind::Steady,
        Change::Machine(Defect::PlainUnseen),
    ),
    (
        "a lock that plain commands have taken ahead of others is only deleted",
        Kind::Steady,
        script(
            "lock.value == token or lock.value == token .. MARK\n",
            "lock.value == token .. MARK\n",
        ),
    ),
    (
        "plain commands do not see the wait queue",
        Kind::Calm,
        script("  redis.call('SET', lock.waiting_key, '', 'PX', KEYS_MS)\n", ""),
    ),
    (
        "plain commands see a wait queue that is empty",
        Kind::Steady,
        script("      redis.call('DEL', lock.waiting_key)\n", ""),
    ),
    // Handoffs.
    (
        "a caller that hands off a share keeps it",
        Kind::Steady,
        script(
            "redis.call('ZREM', shared_key, token, '#' .. token, '?' .. token)\nredis.call('ZADD'",
            "redis.call('ZADD'",
        ),
    ),
    (
        "a successor's share outlives the lock",
        Kind::Steady,
        script(
            "  redis.call('PEXPIRE', lock_key, until_ms - now_ms)\n  redis.call('PEXPIRE', shared_key",
            "  redis.call('PEXPIRE', shared_key",
        ),
    ),
    (
        "a successor has the fence of another",
        Kind::Steady,
        script("local block = '1'\n", "local block = '0'\n"),
    ),
    // The wait queue.
    (
        "a waiter leaves no mark",
        Kind::Steady,
        script("value .. MARK, 'KEEPTTL')", "value, 'KEEPTTL')"),
    ),
    (
        "a lock that was handed off is not marked",
        Kind::Steady,
        script(
            "lock.value = entry.token .. (mark or waiters_mark(lock))",
            "lock.value = entry.token",
        ),
    ),
    (
        "foreign code's value is marked",
        Kind::Steady,
        script(
            "if seq and lock.value and lock.value:find('^hf1%.') and",
            "if seq and lock.value and",
        ),
    ),
    (
        "a release leaves the queue entry",
        Kind::Steady,
        script("end\ndequeue(lock, token)\nif is_shared", "end\nif is_shared"),
    ),
    (
        "newcomers are enqueued at the head",
        Kind::Steady,
        script("math.max(lock.now_us, (lock.last_seq or 0) + 1)", "lock.now_us - 1e12"),
    ),
    (
        "a waiter that connects again is passed over",
        Kind::Steady,
        script("math.min(until_ms, unreached_until_ms(lock, entry))", "0"),
    ),
    (
        "a waiter that is gone is waited for in vain",
        Kind::Steady,
        script("return since_ms + UNREACHED_MS", "return entry.deadline_ms"),
    ),
    (
        "each waiter that is gone is waited for anew",
        Kind::Steady,
        script("or entry.deadline_ms - LIVENESS_MS > since_ms then", "or true then"),
    ),
    (
        "a claim is not heard",
        Kind::Steady,
        script("if lock.unclaimed == token then\n    clear_unclaimed(lock)\n  end", ""),
    ),
    (
        "no message announces a grant",
        Kind::Steady,
        script("redis.pcall(is_sharded(channel) and 'SPUBLISH' or 'PUBLISH', channel,", "type("),
    ),
    (
        "the wait queue has no expiry",
        Kind::Steady,
        script("redis.call('PEXPIRE', lock.waiters_key, KEYS_MS)", ""),
    ),
    (
        "a lost position is replaced by a later one",
        Kind::Steady,
        Change::Machine(Defect::PositionForgotten),
    ),
    ("waiters never poll", Kind::Steady, Change::Machine(Defect::NoPoll)),
    // Shares.
    (
        "a lone share looks like the whole lock",
        Kind::Steady,
        script(" and owner:sub(1, #LONE_SHARE) ~= LONE_SHARE", ""),
    ),
    (
        "a lone share is lost when others join it",
        Kind::Steady,
        script(
            "redis.call('ZADD', lock.shared_key, lock.now_ms + lasts_ms, token, fence, '#' .. token)",
            "",
        ),
    ),
    (
        "others join a lone share beside shares that have ended",
        Kind::Steady,
        script("  if lock.members > 0 then\n    redis.call('DEL', lock.shared_key)\n  end\n", ""),
    ),
    // A theft names the owners of a shared lock by the fence of its newest share. If all collected shares had one number:
    //
    // 1. A has a lone share, C joins it and leaves, and B reads the owners.
    // 2. A releases, D takes a lone share, and E joins it and leaves.
    // 3. The owners look as B has read them, so B's theft, meant for A, takes the lock from D.
    (
        "a lone share gets the fence of whoever joins it",
        Kind::Steady,
        script("-next_fence(lock, 2, 0) - 0.5)", "-(lock.counter or 0) - 1)"),
    ),
    (
        "a lone share is cut short when others join it",
        Kind::Steady,
        script("local lasts_ms = math.max(redis.call('PTTL', lock.key), 1)", "local lasts_ms = 1"),
    ),
    (
        "a lone share is not renewed",
        Kind::Steady,
        script(
            "if value == token or value == token .. MARK or value == LONE_SHARE .. token then",
            "if value == token or value == token .. MARK then",
        ),
    ),
    (
        "a share is granted while another has the whole lock",
        Kind::Steady,
        script("return is_shared(lock) and (limit == '0'", "return (limit == '0'"),
    ),
    (
        "the holders of shares are not counted",
        Kind::Steady,
        script("return count_shares(lock) + further", "return further"),
    ),
    (
        "permits are granted beyond the limit, as if each share had one",
        Kind::Steady,
        script("count_shares(lock) + further_permits(lock.shared_key)", "count_shares(lock)"),
    ),
    (
        "several permits are granted where there is room for a part of them",
        Kind::Steady,
        script("+ permits_of(token) <= tonumber(limit)", "+ 1 <= tonumber(limit)"),
    ),
    (
        "a waiter for several permits loses its turn to those for one",
        Kind::Steady,
        script(
            "    elseif not has_room(lock, entry.limit, token) then\n",
            "    elseif permits_of(token) > 1 and not has_room(lock, entry.limit, token) then\n      \
             dequeue(lock, token)\n    elseif not has_room(lock, entry.limit, token) then\n",
        ),
    ),
    (
        "several permits are taken at once, and not counted",
        Kind::Steady,
        script("elseif limit ~= '0' and token:find(", "elseif false and token:find("),
    ),
    (
        "a lone share that others join counts as one permit",
        Kind::Steady,
        script(
            "  if permits > 1 then\n    change_permits(lock.shared_key, permits - 1)",
            "  if false then\n    change_permits(lock.shared_key, permits - 1)",
        ),
    ),
    (
        "a share that is granted again is counted twice",
        Kind::Steady,
        script("if permits > 1 and not redis.call(", "if permits > 1 and redis.call("),
    ),
    (
        "the permits of a share that is gone stay taken",
        Kind::Steady,
        script("if permits > 1 and removed > 0 then", "if false then"),
    ),
    (
        "a waiter that leaves gives permits back that it never had",
        Kind::Steady,
        script("if permits > 1 and removed > 0 then", "if permits > 1 then"),
    ),
    (
        "a permit is handed off beside several others beyond its limit",
        Kind::Steady,
        script("+ further_permits(shared_key) > (limit or 0)", "> (limit or 0)"),
    ),
    (
        "a share is taken at once, however many there are",
        Kind::Steady,
        script("or live < tonumber(limit)", "or true"),
    ),
    (
        "a repeated acquire takes a share anew",
        Kind::Steady,
        script("or redis.call('ZSCORE', shared_key, token) then", "then"),
    ),
    (
        "a share that is taken at once does not lengthen the lock",
        Kind::Steady,
        script("if not value or redis.call('PTTL', lock_key) <", "if not value or 0 >"),
    ),
    (
        "the last share is given up at once, and the lock lasts as long as it would have",
        Kind::Steady,
        script("  else\n    redis.call('DEL', lock_key)\n  end\n  return", "  end\n  return"),
    ),
    (
        "the whole lock is granted while others share it",
        Kind::Steady,
        script(
            "  if not lock.value or limit == WHOLE then\n    return not lock.value",
            "  if not lock.value or limit == WHOLE then\n    return true",
        ),
    ),
    (
        "waiters for shares overtake a waiter for the whole lock",
        Kind::Steady,
        script("not seq and not lock.last_seq and", "not seq and"),
    ),
    (
        "the lock ends with the first share",
        Kind::Steady,
        script(
            "redis.call('ZRANGE', lock.shared_key, -1, -1, 'WITHSCORES')[2]",
            "redis.call('ZRANGEBYSCORE', lock.shared_key, lock.now_ms, '+inf', 'WITHSCORES')[2]",
        ),
    ),
    (
        "a share is given up at once, and the lock ends with the first",
        Kind::Steady,
        script(
            "redis.call('ZRANGE', shared_key, -1, -1, 'WITHSCORES')[2]",
            "redis.call('ZRANGEBYSCORE', shared_key, now_ms, '+inf', 'WITHSCORES')[2]",
        ),
    ),
    (
        "a share is given up, and the lock lasts as long as it would have",
        Kind::Steady,
        script(
            "dequeue(lock, token)\nif is_shared(lock) then\n  fit_to_shares(lock)\nend\n",
            "dequeue(lock, token)\n",
        ),
    ),
    (
        "anybody has a share",
        Kind::Steady,
        script(
            "return ends_ms and ends_ms > lock.now_ms and math.ceil(ends_ms)",
            "return is_shared(lock) and lock.now_ms + 1",
        ),
    ),
    (
        "a share that has ended is lengthened",
        Kind::Steady,
        script("return ends_ms and ends_ms > lock.now_ms and math.ceil(ends_ms)", "return ends_ms"),
    ),
    (
        "a repeated acquire cuts a share",
        Kind::Steady,
        script("if ends_ms <= lock.now_ms + ttl_ms then", "if true then"),
    ),
    ("shares have one fence", Kind::Steady, script("  lock.counter = first + block - 1\n", "")),
    (
        "only one waiter for a share gets one",
        Kind::Steady,
        script(
            "      if entry.limit == WHOLE then\n        return fence or ANOTHER",
            "      if true then\n        return fence or ANOTHER",
        ),
    ),
    (
        "a downgrade grants no shares",
        Kind::Steady,
        script("  fit_to_shares(lock)\n  serve_queue(lock)\n", "  fit_to_shares(lock)\n"),
    ),
    (
        "a downgrade gets another fence",
        Kind::Steady,
        script(
            "math.max(redis.call('PTTL', lock_key), 1), fence)",
            "math.max(redis.call('PTTL', lock_key), 1), fence + 1)",
        ),
    ),
    (
        "a silent process costs a claim for each of its shares",
        Kind::Steady,
        script(
            "silent[manager] = math.max(silent[manager] or 0, -tonumber(granted_ms))",
            "local _ = manager",
        ),
    ),
    (
        "a process that has sent a request since is taken for silent",
        Kind::Steady,
        script(
            "and silent_ms and last_heard_ms(lock, token) <= silent_ms then",
            "and silent_ms then",
        ),
    ),
    (
        "a lock that nobody shares any more is not free",
        Kind::Losing,
        script("count_shares(lock) == 0 then", "count_shares(lock) < 0 then"),
    ),
    (
        "an adopted share has the fence of its former owner",
        Kind::Steady,
        script("  fence = next_fence(lock, 1, epoch_us)", "  fence = lock.counter"),
    ),
    (
        "an adopted share stays with its former owner as well",
        Kind::Steady,
        script(
            "notify_owner(lock, 'adopted', owner)\n  remove_share(lock.shared_key, owner)",
            "notify_owner(lock, 'adopted', owner)",
        ),
    ),
    (
        "an adopted lock has the fence of its former owner",
        Kind::Steady,
        script("  return next_fence(lock, 1, epoch_us)\nend", "  return lock.counter\nend"),
    ),
    // Several locks at once.
    (
        "a caller for several locks overtakes the waiters for one",
        Kind::Steady,
        script("(value or redis.call('EXISTS', queue_key) == 1)", "value"),
    ),
    (
        "several locks are granted though one is held",
        Kind::Steady,
        script(
            "(value or redis.call('EXISTS', queue_key) == 1)",
            "redis.call('EXISTS', queue_key) == 1",
        ),
    ),
    (
        "a repeat for several locks lengthens no lease",
        Kind::Steady,
        script(
            "elseif redis.call('PTTL', lock_key) < ttl_ms then\n    redis.call('PEXPIRE'",
            "elseif redis.call('PTTL', lock_key) < 0 then\n    redis.call('PEXPIRE'",
        ),
    ),
    (
        "several locks have the fences of those before",
        Kind::Steady,
        script(
            "following[fence_key]\n    or issue_fences(",
            "counters[fence_key]\n    or issue_fences(",
        ),
    ),
    // Claims, and what is done without the state of the whole lock.
    (
        "a release does not look at the queue",
        Kind::Steady,
        script("if is_owned and redis.call('EXISTS', queue_key) == 0 then", "if is_owned then"),
    ),
    (
        "a waiter does not mark the lock of another",
        Kind::Steady,
        script("if value == owner then\n", "if false then\n"),
    ),
    (
        "a waiter is enqueued for its own lock",
        Kind::Steady,
        script("if is_whole and owner ~= token and", "if is_whole and"),
    ),
    // Records of grants, and what is left of earlier ones.
    (
        "a release ahead of the claim leaves the record of the grant",
        Kind::Steady,
        script(
            "if not unclaimed then\n    redis.call('DEL', lock_key)",
            "if true then\n    redis.call('DEL', lock_key)",
        ),
    ),
    (
        "an extension of a share does not claim it",
        Kind::Steady,
        script("  redis.call('ZREM', shared_key, '?' .. token)\n", ""),
    ),
    (
        "a share is taken at once beside the records of shares that have ended",
        Kind::Steady,
        script("live == 0 or members ~= 2 * live or", "live == 0 or"),
    ),
    (
        "a share is taken at once among what is left of earlier shares",
        Kind::Steady,
        script(
            "    if not value and members > 0 then\n      redis.call('DEL', shared_key)\n    end\n",
            "",
        ),
    ),
    (
        "a request that enqueues is no sign of life",
        Kind::Steady,
        script(
            "if unclaimed and manager_of(unclaimed) == manager_of(entry.token) then",
            "if false then",
        ),
    ),
    (
        "an unclaimed grant of the whole lock purges nobody",
        Kind::Steady,
        script("    silent[manager_of(lock.unclaimed) or ''] = lock.now_ms\n", ""),
    ),
    (
        "a fence that a script could not issue stays counted",
        Kind::Steady,
        script("    redis.call('INCRBY', fence_key, -block)\n", ""),
    ),
    (
        "a share that is given up while its slot moves leaves the lock as long as it was",
        Kind::Moving,
        script(
            "  redis.call('PEXPIRE', lock_key, math.ceil(last_ms - now_ms))\nelse\n  \
             redis.call('DEL', lock_key)\n  redis.call('DEL', shared_key)",
            "else\n  redis.call('DEL', lock_key)\n  redis.call('DEL', shared_key)",
        ),
    ),
    (
        "what may still be executed is only deleted",
        Kind::Steady,
        Change::Machine(Defect::DeleteForUncertain),
    ),
    // What depends on the history of the data.
    (
        "plain commands follow a counter below the epoch",
        Kind::Losing,
        Change::Machine(Defect::EpochUnseen),
    ),
    // Moving slots.
    (
        "a release by the lock's key alone frees another's lock",
        Kind::Moving,
        script(
            "and value ~= LONE_SHARE .. token then\n  return 0\nend\nredis.call('DEL', lock_key)",
            "and false then\n  return 0\nend\nredis.call('DEL', lock_key)",
        ),
    ),
    // While it does so from server to server.
    (
        "a request to the target of a moving slot goes without ASKING",
        Kind::Cluster,
        Change::Machine(Defect::AskingForgotten),
    ),
    (
        "a request to a server without a connection is not repeated",
        Kind::Cluster,
        Change::Machine(Defect::AskNotRetried),
    ),
    (
        "a request to the target of a moving slot has the epoch of another server",
        Kind::Cluster,
        Change::Machine(Defect::EpochOfAnother),
    ),
    ("a request is sent on for ever", Kind::Cluster, Change::Machine(Defect::SentOnForEver)),
    ("nobody learns that a slot has moved", Kind::Cluster, Change::Machine(Defect::RoutesKept)),
    (
        "nobody connects to a server that gets its first slot",
        Kind::Cluster,
        Change::Machine(Defect::StrangersIgnored),
    ),
    (
        "a release is not sent to the target of a moving slot",
        Kind::Cluster,
        Change::Machine(Defect::ReleaseDoneOnAsk),
    ),
    (
        "a release waits until a slot has moved",
        Kind::Cluster,
        Change::Machine(Defect::ReleaseByAllKeys),
    ),
    (
        "a queue entry is given up while a slot moves",
        Kind::Cluster,
        Change::Machine(Defect::EntryByAllKeys),
    ),
    (
        "a lock is not lengthened until its slot has moved",
        Kind::Cluster,
        Change::Machine(Defect::ExtensionByAllKeys),
    ),
    (
        "a share is not lengthened until its slot has moved",
        Kind::Cluster,
        Change::Machine(Defect::ShareByAllKeys),
    ),
    (
        "a share whose keys are on two servers is not lengthened",
        Kind::Cluster,
        Change::Machine(Defect::ShareByBothKeys),
    ),
    // Taking a lock away, and keeping it.
    (
        "a late theft takes the lock from a later owner",
        Kind::Steady,
        script("not is_foreign and owners_of(lock) == ARGV[8]", "not is_foreign"),
    ),
    (
        "a late force frees the lock of a later owner",
        Kind::Steady,
        script("return owners_of(lock) == seen", "return seen ~= ''"),
    ),
    (
        "a theft takes the lock from other code",
        Kind::Steady,
        script("not is_foreign and owners_of(lock)", "owners_of(lock)"),
    ),
    (
        "every force takes the lock from other code",
        Kind::Steady,
        script("lock.value and (scope == 'foreign' or lock.value:find('^hf1%.'))", "lock.value"),
    ),
    (
        "the victim of a theft is not notified",
        Kind::Steady,
        script(
            "    notify_owner(lock, 'stolen', token)\n",
            "    if is_shared(lock) then notify_owner(lock, 'stolen', token) end\n",
        ),
    ),
    (
        "the victim of a stolen share is not notified",
        Kind::Steady,
        script(
            "    notify_owner(lock, 'stolen', token)\n",
            "    if not is_shared(lock) then notify_owner(lock, 'stolen', token) end\n",
        ),
    ),
    (
        "a lock that was freed goes to nobody",
        Kind::Steady,
        script("if not lock.value and serve_queue(lock) == UNKNOWN then", "if false then"),
    ),
    (
        "the former owner of an adopted lock is notified of a theft",
        Kind::Steady,
        script(
            "notify_owner(lock, 'adopted', owner)\n  redis.call('DEL', shared_key)",
            "notify_owner(lock, 'stolen', owner)\n  redis.call('DEL', shared_key)",
        ),
    ),
    (
        "a lock lasts longer than was asked for",
        Kind::Steady,
        script("token, 'NX', 'PX', ttl_ms)", "token, 'NX', 'PX', ttl_ms + 1)"),
    ),
    ("a theft is repeated", Kind::Steady, Change::Machine(Defect::StolenAgain)),
    ("the victim of a theft goes on", Kind::Steady, Change::Machine(Defect::TheftUnheard)),
    (
        "a lock that is left to expire is given back",
        Kind::Steady,
        Change::Machine(Defect::LeftLocksReleased),
    ),
    (
        "an adopted lock that is left to expire is given back",
        Kind::Steady,
        Change::Machine(Defect::AdoptedLeftReleased),
    ),
    (
        "a release of a chosen value is repeated",
        Kind::Steady,
        Change::Machine(Defect::ChosenReleasedAgain),
    ),
    (
        "what was adopted under a chosen value is given back",
        Kind::Steady,
        Change::Machine(Defect::ChosenGivenBack),
    ),
    ("a close gives nothing back", Kind::Steady, Change::Machine(Defect::AllLocksLeft)),
    // Requests without a reply.
    (
        "a grant without a reply is not given back",
        Kind::Steady,
        Change::Machine(Defect::NothingGivenBack),
    ),
    (
        "a request that may arrive late is given back once",
        Kind::Steady,
        Change::Machine(Defect::ReleasedOnce),
    ),
    (
        "a release whose answer was lost reports a loss",
        Kind::Steady,
        Change::Machine(Defect::RepeatReadAsLost),
    ),
    (
        "a connection is closed so that its requests arrive later",
        Kind::Steady,
        Change::Machine(Defect::ClosedGracefully),
    ),
];
