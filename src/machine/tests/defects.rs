//! Defects that the simulator must find. Without them it would prove nothing.
//!
//! Each breaks one rule of `docs/protocol.md`: in the scripts by another text, in the machine by a hand
//! in its state or on what goes in and out of it. So the code that is shipped has no switch.

use super::quorum_defects::Flaw;
use super::simulator::{Kind, Simulation};
use crate::clock::{Mono, ServerTime};
use crate::machine::attempt::Way;
use crate::machine::{Command, Machine, Timer};
use crate::script::{Call, Intent, Script};
use std::borrow::Cow;
use std::cell::Cell;

/// How many seeds may pass until a defect is found.
pub(super) const SEEDS: u64 = 5_000;

thread_local! {
    static PRESENT: Cell<Option<Change>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// In the scripts the first text stands where the second should.
    Script {
        right: &'static str,
        wrong: &'static str,
    },
    Machine(Defect),
    Quorum(Flaw),
}

/// A defect of the machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Defect {
    /// What a connection that was given up had in its buffers arrives late.
    ClosedGracefully,
    /// A number is above the last one of its block, for the block has no end.
    FencesWithoutEnd,
    /// The loss of a lock is not told.
    LossNotTold,
    /// Waiters rely on messages alone.
    NoPoll,
    /// The scripts are told nothing of other histories of the data.
    NoEpoch,
    /// Everything is kept, also what is to be given back.
    EverythingKept,
    /// What a caller no longer waits for is not given back.
    NothingGivenBack,
    /// What is to be kept is given back.
    NothingKept,
    /// A place in line that the server forgot is taken further back.
    PlaceForgotten,
    /// What may still be executed is given back once only, ahead of it.
    ReleasedOnce,
    /// A release that has to be repeated is taken for one of a lock that was lost before.
    RepeatReadAsLost,
    /// An earlier holder can release the lock of the next one in its process.
    StaleHandle,
    /// A thief whose answer was lost robs whoever has the lock now.
    StolenAgain,
    /// Who is told of a theft goes on.
    TheftUnheard,
    /// A token is used again once its release was sent.
    TokenUsedAgain,
    /// A grant by message is relied on for its whole claim, however late it comes.
    ValidFromArrival,
    /// Validity counts from the answer.
    ValidFromReply,
}

impl Defect {
    pub(super) fn is_on(self) -> bool {
        matches!(PRESENT.get(), Some(Change::Machine(defect)) if defect == self)
    }
}

/// Whether what happens on this thread is expected to go wrong.
fn any_present() -> bool {
    PRESENT.get().is_some()
}

/// A script as the servers of this thread run it.
pub(super) fn apply(source: &str) -> Cow<'_, str> {
    match PRESENT.get() {
        Some(Change::Script { right, wrong }) => source.replace(right, wrong).into(),
        _ => source.into(),
    }
}

/// A command as the machine gets it.
pub(super) fn misdirect(machine: &mut Machine, command: Command) -> Command {
    match command {
        Command::Close if Defect::NothingKept.is_on() => {
            // Not ahead of that: whoever judges must know what was to be kept.
            machine.leases.values_mut().for_each(|held| held.keep = false);
            command
        }
        Command::Release { lease, exported } if Defect::StaleHandle.is_on() => {
            let current = machine.leases.get(&lease.attempt()).map_or(lease, |held| held.id);
            Command::Release { lease: current, exported }
        }
        command => command,
    }
}

/// Changes what the machine remembers of its requests, ahead of an answer.
pub(super) fn misdate(machine: &mut Machine, now: Mono) {
    if Defect::ValidFromReply.is_on() {
        machine.links.redate(now);
    }
}

/// A call as it leaves the machine.
pub(super) fn distort(mut call: Call) -> Call {
    match &mut call {
        Call::Acquire { epoch, .. } | Call::Release { epoch, .. } if Defect::NoEpoch.is_on() => {
            *epoch = ServerTime::default();
        }
        Call::Acquire { intent: Intent::Join(Some(seq)), .. } if Defect::PlaceForgotten.is_on() => {
            *seq += 60_000_000;
        }
        _ => {}
    }
    call
}

/// Changes the machine's state, after every input.
pub(super) fn spoil(machine: &mut Machine) {
    let Some(Change::Machine(defect)) = PRESENT.get() else { return };
    match defect {
        Defect::FencesWithoutEnd => {
            for held in machine.leases.values_mut() {
                held.turn.left = 9;
            }
        }
        Defect::NoPoll => {
            machine.timers.retain(|(_, timer)| !matches!(timer, Timer::AttemptRetry(_)));
        }
        Defect::EverythingKept => machine.leases.values_mut().for_each(|held| held.keep = true),
        Defect::StolenAgain => {
            for attempt in machine.attempts.values_mut() {
                attempt.uncertain &= !matches!(attempt.way, Way::Steal(_));
            }
        }
        Defect::NothingGivenBack => machine.releases.retain(|_, release| release.op.is_some()),
        Defect::ReleasedOnce => {
            for release in machine.releases.values_mut() {
                release.uncertain = false;
            }
        }
        Defect::RepeatReadAsLost => {
            for release in machine.releases.values_mut() {
                release.maybe_freed = false;
            }
        }
        Defect::TokenUsedAgain => {
            let last = machine.releases.keys().map(|id| id.0).max();
            if last == Some(machine.last_attempt) {
                machine.last_attempt -= 1;
            }
        }
        _ => {}
    }
}

/// What goes wrong on this thread.
pub(super) fn present() -> Option<Change> {
    PRESENT.get()
}

/// What goes wrong on this thread from now on.
pub(super) fn set(change: Option<Change>) {
    PRESENT.set(change);
}

pub(super) const fn script(right: &'static str, wrong: &'static str) -> Change {
    Change::Script { right, wrong }
}

const DEFECTS: &[(&str, Kind, Change)] = &[
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

#[test]
fn every_defect_is_found() {
    silence_expected_panics();
    let whole = Script::ALL.map(Script::source).concat();
    let mut missed = Vec::new();
    for (defect, kind, change) in DEFECTS {
        if let Change::Script { right, .. } = change {
            assert!(whole.contains(right), "{defect}: no script contains {right:?}");
        }
        PRESENT.set(Some(*change));
        let goes_wrong =
            |seed: &u64| std::panic::catch_unwind(|| Simulation::new(*seed, *kind).run()).is_err();
        let found = (0..SEEDS).find(goes_wrong);
        PRESENT.set(None);
        match found {
            Some(seed) => println!("{defect}: seed {seed}"),
            None => missed.push(defect),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
}

/// What is caught here is no news; the panics of other tests are.
pub(super) fn silence_expected_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !any_present() {
            report(panic);
        }
    }));
}
