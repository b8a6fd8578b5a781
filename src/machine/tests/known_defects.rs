//! The defects that the simulator of one server must find, and in which kind of schedule.

use super::defects::{Change, Defect, script};
use super::simulator::Kind;

pub(super) const DEFECTS: &[(&str, Kind, Change)] = &[
    // Who owns the lock.
    (
        "a release frees another's lock",
        Kind::Steady,
        script("if holder == token then\n  redis.call('DEL'", "if holder then\n  redis.call('DEL'"),
    ),
    (
        "a lock is taken while it is held",
        Kind::Steady,
        script("token, 'NX', 'PX', ttl_ms)", "token, 'PX', ttl_ms)"),
    ),
    (
        "a newcomer takes a free lock ahead of those who wait",
        Kind::Steady,
        script("redis.call('EXISTS', queue_key) == 0", "true"),
    ),
    (
        "a poll takes a lock that it does not wait for",
        Kind::Steady,
        script("if intent ~= 'poll' and redis.call('EXISTS'", "if redis.call('EXISTS'"),
    ),
    (
        "a marked value is not known as the releaser's",
        Kind::Steady,
        script("if holder == token .. MARK then", "if false then"),
    ),
    (
        "a release passes nothing on",
        Kind::Steady,
        script("if is_open() and advance() == UNKNOWN then", "if false then"),
    ),
    (
        "only an owner's release passes the lock on",
        Kind::Steady,
        script("if is_open() and advance() == UNKNOWN", "if owned and advance() == UNKNOWN"),
    ),
    (
        "the lock is passed to whoever is gone",
        Kind::Steady,
        script("listens[channel] = answer[2] ~= 0", "listens[channel] = true"),
    ),
    ("a token is used again", Kind::Steady, Change::Machine(Defect::TokenUsedAgain)),
    ("an earlier holder's release counts", Kind::Steady, Change::Machine(Defect::StaleHandle)),
    // How long.
    (
        "an extension cuts the lease",
        Kind::Steady,
        script("if redis.call('PTTL', lock_key) < tonumber(ttl_ms) then", "if true then"),
    ),
    (
        "a repeated acquire cuts the lease",
        Kind::Steady,
        script("if redis.call('PTTL', lock_key) <= tonumber(ttl_ms) then", "if true then"),
    ),
    (
        "who owns the lock is told so without a lease",
        Kind::Steady,
        script("if redis.call('PTTL', lock_key) <= tonumber(ttl_ms) then", "if false then"),
    ),
    (
        "anybody may extend",
        Kind::Steady,
        script("if holder ~= token and holder ~= token .. '+' then", "if not holder then"),
    ),
    (
        "nobody claims a long lease",
        Kind::Steady,
        script("math.min(lease_ms, CLAIM_MS)", "lease_ms"),
    ),
    (
        "a grant by message is longer than its message says",
        Kind::Steady,
        script("'%s,%.0f,%d', waiter", "'%s,%.0f,9%d', waiter"),
    ),
    (
        "a grant is dated too late",
        Kind::Steady,
        script("grants, now_us, lock_key))", "grants, now_us + 2000000, lock_key))"),
    ),
    ("validity counts from the answer", Kind::Steady, Change::Machine(Defect::ValidFromReply)),
    ("validity counts from the message", Kind::Steady, Change::Machine(Defect::ValidFromArrival)),
    ("a loss is not told", Kind::Steady, Change::Machine(Defect::LossNotTold)),
    ("a claim that is over starts its owner", Kind::Steady, Change::Machine(Defect::ClaimNotTimed)),
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
        "a late answer makes a lease valid again",
        Kind::Steady,
        Change::Machine(Defect::LateRenewalCounts),
    ),
    // Fences.
    (
        "a fence is not above the last",
        Kind::Steady,
        script("counter and counter + 1 or", "counter or"),
    ),
    (
        "a fence of the fast path is the last again",
        Kind::Steady,
        script("return before + 1", "return before"),
    ),
    ("a block of fences is not reserved", Kind::Steady, script("first + reserved - 1", "first")),
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
    ("a waiter's own epoch is not looked at", Kind::Losing, script("tonumber(epoch or 0)", "0")),
    (
        "a new counter begins at one",
        Kind::Losing,
        script("counter and counter + 1 or now_us", "counter and counter + 1 or 1"),
    ),
    (
        "a lock that cannot be fenced stays taken",
        Kind::Steady,
        script("redis.call('DEL', lock_key)\n      return failure", "return failure"),
    ),
    (
        "a lifted fence counter never ends",
        Kind::Steady,
        script(
            "redis.call('SET', fence_key, last, 'KEEPTTL')",
            "redis.call('SET', fence_key, last)",
        ),
    ),
    (
        "a fence counter that a first use lifts never ends",
        Kind::Steady,
        script("epoch_us + block - 1), 'KEEPTTL')", "epoch_us + block - 1))"),
    ),
    (
        "a fence counter ends after a quarter of an hour",
        Kind::Steady,
        script("local FENCE_MS = 86400000", "local FENCE_MS = 864000"),
    ),
    (
        "a lock is handed on though the server has not confirmed it for long",
        Kind::Flushing,
        Change::Machine(Defect::HandedOnUnconfirmed),
    ),
    // Passing on.
    (
        "whoever passes a share on keeps it",
        Kind::Steady,
        script(
            "redis.call('ZREM', shared_key, token, '#' .. token, '?' .. token)\nlocal fence",
            "local fence",
        ),
    ),
    (
        "an heir's share outlives the lock",
        Kind::Steady,
        script(
            "redis.call('PEXPIRE', lock_key, last - now_ms)\nredis.call('PEXPIRE', shared_key, last",
            "redis.call('PEXPIRE', shared_key, last",
        ),
    ),
    (
        "an heir has the fence of another",
        Kind::Steady,
        script(
            "local fence = issue(counter, 1)\nredis.call('ZADD'",
            "local fence = counter\nredis.call('ZADD'",
        ),
    ),
    // The line.
    (
        "whoever waits leaves no mark",
        Kind::Steady,
        script("redis.call('APPEND', lock_key, MARK)", ""),
    ),
    (
        "a lock that was passed on is not marked",
        Kind::Steady,
        script("holder = owner .. (marked or mark())", "holder = owner"),
    ),
    (
        "foreign code's value is marked",
        Kind::Steady,
        script("if seq and holder and holder:find('^hf1%.') and", "if seq and holder and"),
    ),
    (
        "a release leaves the place in line",
        Kind::Steady,
        script("else\n  leave_line(token)\n", "else\n"),
    ),
    (
        "newcomers stand at the head",
        Kind::Steady,
        script("math.max(now_us, (last or 0) + 1)", "now_us - 1e12"),
    ),
    (
        "whoever cannot be reached at once has left",
        Kind::Steady,
        script("if deadline_ms < until_ms then", "if true then"),
    ),
    (
        "a claim is not heard",
        Kind::Steady,
        script("if unclaimed == token then\n  claimed()\nend", ""),
    ),
    (
        "nobody is told of a grant",
        Kind::Steady,
        script("redis.pcall(is_sharded(channel) and 'SPUBLISH' or 'PUBLISH', channel,", "type("),
    ),
    (
        "the line is kept without an end",
        Kind::Steady,
        script("redis.call('PEXPIRE', waiters_key, KEYS_MS)", ""),
    ),
    ("a lost place is taken further back", Kind::Steady, Change::Machine(Defect::PlaceForgotten)),
    ("a caller who has waited is the last", Kind::Calm, Change::Machine(Defect::PlaceAtEnd)),
    ("waiters never ask", Kind::Steady, Change::Machine(Defect::NoPoll)),
    // Shares.
    (
        "a share is given while another has the whole lock",
        Kind::Steady,
        script("  return is_shared()\n    and (limit == '0'", "  return (limit == '0'"),
    ),
    (
        "nobody counts those who share a lock",
        Kind::Steady,
        script("'(' .. now_ms, '+inf') < tonumber(limit)", "'(' .. now_ms, '+inf') < 99"),
    ),
    (
        "a share is taken at once, however many there are",
        Kind::Steady,
        script("live < tonumber(limit))", "true)"),
    ),
    (
        "a repeated acquire takes a share anew",
        Kind::Steady,
        script("and not redis.call('ZSCORE', shared_key, token)", ""),
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
        "the whole lock is given while others share it",
        Kind::Steady,
        script(
            "  if not holder or limit == WHOLE then\n    return not holder",
            "  if not holder or limit == WHOLE then\n    return true",
        ),
    ),
    (
        "those who want shares overtake whoever waits for the whole lock",
        Kind::Steady,
        script("not seq and not found[1] and", "not seq and"),
    ),
    (
        "the lock ends with the first share",
        Kind::Steady,
        script(
            "redis.call('ZRANGE', shared_key, -1, -1, 'WITHSCORES')[2]",
            "redis.call('ZRANGEBYSCORE', shared_key, now_ms, '+inf', 'WITHSCORES')[2]",
        ),
    ),
    (
        "a share is given up, and the lock lasts as long as it would have",
        Kind::Steady,
        script("    remove_share(token)\n    fit_to_shares()", "    remove_share(token)"),
    ),
    (
        "anybody has a share",
        Kind::Steady,
        script("return ends and ends > now_ms and ends", "return is_shared() and now_ms + 1"),
    ),
    (
        "a share that has ended is lengthened",
        Kind::Steady,
        script("return ends and ends > now_ms and ends", "return ends"),
    ),
    (
        "a repeated acquire cuts a share",
        Kind::Steady,
        script("if ends <= now_ms + ttl_ms then", "if true then"),
    ),
    ("shares have one fence", Kind::Steady, script("  counter = fence + reserved - 1\n", "")),
    (
        "only one of those who want shares gets one",
        Kind::Steady,
        script(
            "      if limit == WHOLE then\n        return own or ANOTHER",
            "      if true then\n        return own or ANOTHER",
        ),
    ),
    (
        "a downgrade lets nobody in",
        Kind::Steady,
        script("  fit_to_shares()\n  advance()\n", "  fit_to_shares()\n"),
    ),
    (
        "a downgrade gets another fence",
        Kind::Steady,
        script(
            "math.max(redis.call('PTTL', lock_key), 1), ARGV[3])",
            "math.max(redis.call('PTTL', lock_key), 1), ARGV[3] + 1)",
        ),
    ),
    (
        "a silent process costs a claim for each of its shares",
        Kind::Steady,
        script(
            "silent[manager] = math.max(silent[manager] or 0, -granted_ms)",
            "local _ = manager",
        ),
    ),
    (
        "a process that was heard of since is taken for silent",
        Kind::Steady,
        script("if silent_ms and heard_ms <= silent_ms then", "if silent_ms then"),
    ),
    (
        "a lock that nobody shares any more is not free",
        Kind::Losing,
        script("'(' .. now_ms, '+inf') == 0 then", "'(' .. now_ms, '+inf') < 0 then"),
    ),
    (
        "an adopted share has the fence of its former owner",
        Kind::Steady,
        script("  fence = issue(counter, 1)", "  fence = counter"),
    ),
    (
        "an adopted share stays with its former owner as well",
        Kind::Steady,
        script("announce('adopted', owner)\n  remove_share(owner)", "announce('adopted', owner)"),
    ),
    (
        "an adopted lock has the fence of its former owner",
        Kind::Steady,
        script("  return issue(counter, 1)\nend", "  return counter\nend"),
    ),
    // Several at once.
    (
        "who wants several locks overtakes those who wait for one",
        Kind::Steady,
        script("(holder or redis.call('EXISTS', KEYS[3 * i]) == 1)", "holder"),
    ),
    (
        "several locks are given though one is held",
        Kind::Steady,
        script(
            "(holder or redis.call('EXISTS', KEYS[3 * i]) == 1)",
            "redis.call('EXISTS', KEYS[3 * i]) == 1",
        ),
    ),
    (
        "a repeat for several locks lengthens no lease",
        Kind::Steady,
        script(
            "< tonumber(ttl_ms) then\n      redis.call('PEXPIRE'",
            "< 0 then\n      redis.call('PEXPIRE'",
        ),
    ),
    (
        "several locks have the fences of those before",
        Kind::Steady,
        script(
            "fences[i] = issue(counters[i], 1)\n  else",
            "fences[i] = counters[i] or issue(nil, 1)\n  else",
        ),
    ),
    // While the slot moves.
    (
        "a share is lengthened by keys that need not exist",
        Kind::Moving,
        Change::Machine(Defect::ShareByAllKeys),
    ),
    (
        "whoever has to free a lock alone frees another's",
        Kind::Moving,
        script(
            "if holder ~= token and holder ~= token .. '+' then\n  return 0\nend\nredis.call('DEL', lock_key)",
            "redis.call('DEL', lock_key)",
        ),
    ),
    // Taking a lock away, and keeping it.
    (
        "a theft robs whoever has the lock by then",
        Kind::Steady,
        script(
            "holder:find('^hf1%.') and (counter or 0) == tonumber(ARGV[8])",
            "holder:find('^hf1%.')",
        ),
    ),
    (
        "a lock is freed from whoever has it by then",
        Kind::Steady,
        script("or (counter or 0) ~= tonumber(ARGV[4])", ""),
    ),
    (
        "other code is robbed",
        Kind::Steady,
        script("holder:find('^hf1%.') and (counter or 0)", "(counter or 0)"),
    ),
    (
        "other code is robbed by every force",
        Kind::Steady,
        script("holder and (ARGV[3] == 'foreign' or holder:find('^hf1%.'))", "holder"),
    ),
    (
        "who is robbed is not told",
        Kind::Steady,
        script("announce('stolen', bare(holder))", "local _ = holder"),
    ),
    (
        "who is robbed of a share is not told",
        Kind::Steady,
        script("      announce('stolen', owner)\n", ""),
    ),
    (
        "a lock that was freed goes to nobody",
        Kind::Steady,
        script("if not holder and advance() == UNKNOWN then", "if false then"),
    ),
    (
        "whose lock was adopted is told of a theft",
        Kind::Steady,
        script(
            "announce('adopted', owner)\n  redis.call('DEL', shared_key)",
            "announce('stolen', owner)\n  redis.call('DEL', shared_key)",
        ),
    ),
    (
        "a lock lasts longer than was asked for",
        Kind::Steady,
        script("token, 'NX', 'PX', ttl_ms)", "token, 'NX', 'PX', ttl_ms + 1)"),
    ),
    ("a thief robs twice", Kind::Steady, Change::Machine(Defect::StolenAgain)),
    ("who hears of a theft goes on", Kind::Steady, Change::Machine(Defect::TheftUnheard)),
    ("a kept lock is given back", Kind::Steady, Change::Machine(Defect::NothingKept)),
    ("a close gives nothing back", Kind::Steady, Change::Machine(Defect::EverythingKept)),
    // What may have happened.
    ("nothing unknown is given back", Kind::Steady, Change::Machine(Defect::NothingGivenBack)),
    ("what may come late is given back once", Kind::Steady, Change::Machine(Defect::ReleasedOnce)),
    (
        "a release whose answer was lost tells of a loss",
        Kind::Steady,
        Change::Machine(Defect::RepeatReadAsLost),
    ),
    (
        "a connection is closed so that its requests arrive later",
        Kind::Steady,
        Change::Machine(Defect::ClosedGracefully),
    ),
];
