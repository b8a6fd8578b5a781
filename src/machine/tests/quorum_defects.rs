//! Defects of a quorum that its simulator must find: each is one of a past or present implementation of
//! Redlock. Like `defects.rs`.

use super::defects::{self, Change, Defect, SEEDS, script};
use super::quorum::{Kind, Simulation};
use crate::machine::Quorum;
use crate::protocol::{Reply, Script, ServerTime};

/// A defect of the layer that makes one server of many.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flaw {
    /// Servers without the lock get a copy after a lost majority, too.
    CopiesAfterLoss,
    /// A lost ballot is withdrawn only from servers that answered with the lock.
    ForgetsAwaited,
    /// Fences are above the servers' clocks alone.
    IgnoresCounters,
    /// Fences are above the servers' counters alone.
    IgnoresClocks,
    /// No pending withdrawal where a connection is lost.
    NothingWithdrawn,
    /// Every vote counts as one for the proposed fences.
    AssumesWritten,
    /// Uptimes count as exact.
    UptimeIsExact,
    /// A restarted server votes at once.
    VotesAtOnce,
    /// A withdrawal is not ordered after earlier requests.
    WithdrawnAhead,
    /// A request that may still be executed is withdrawn only once.
    WithdrawnOnce,
}

impl Flaw {
    pub(super) fn is_on(self) -> bool {
        matches!(defects::present(), Some(Change::Quorum(flaw)) if flaw == self)
    }
}

/// Changes a reply before the quorum gets it.
pub(super) fn distort(reply: Reply) -> Reply {
    match reply {
        Reply::Voted { time, .. } if Flaw::IgnoresCounters.is_on() => {
            Reply::Voted { counter: 0, time, written: false }
        }
        Reply::Voted { counter, .. } if Flaw::IgnoresClocks.is_on() => {
            Reply::Voted { counter, time: ServerTime::default(), written: false }
        }
        Reply::Voted { counter, time, .. } if Flaw::AssumesWritten.is_on() => {
            Reply::Voted { counter, time, written: true }
        }
        reply => reply,
    }
}

/// Changes the state of a quorum, after every input.
pub(super) fn spoil(quorum: &mut Quorum) {
    match defects::present() {
        Some(Change::Quorum(Flaw::CopiesAfterLoss)) => quorum.believe_every_extension(),
        Some(Change::Quorum(Flaw::IgnoresClocks)) => quorum.forget_clocks(),
        Some(Change::Quorum(Flaw::ForgetsAwaited)) => quorum.forget_awaited_votes(),
        Some(Change::Quorum(Flaw::NothingWithdrawn)) => quorum.forget_withdrawals(),
        Some(Change::Quorum(Flaw::WithdrawnOnce)) => quorum.forget_lost_requests(),
        _ => {}
    }
}

const DEFECTS: &[(&str, Kind, Change)] = &[
    // 1. Two attempts read the same counters on different majorities, and compute the same fence.
    // 2. The first writes it. The second finds an equal counter: with "less or equal" it would write that fence too.
    (
        "two attempts may have the same fence",
        Kind::Hasty,
        script("counter and counter >= first", "counter and counter > first"),
    ),
    // A repeat cannot tell its own fence from that of another attempt. So that is sent once, and no answer is a no.
    (
        "round two is asked again, and its repeat accepted",
        Kind::Hasty,
        script(
            "(counter and counter >= first)",
            "(counter and counter ~= tonumber(last) and counter >= first)",
        ),
    ),
    (
        "the highest counter that was read is the fence, without a second round",
        Kind::Hasty,
        script(
            "(value ~= token and value ~= token .. MARK) or (counter and counter >= first)",
            "false",
        ),
    ),
    // 1. Attempt 1 fails, and its release is late.
    // 2. Attempt 2 gets the lock.
    // 3. The release of attempt 1 arrives, and deletes it.
    (
        "an earlier attempt's release frees a later one",
        Kind::Steady,
        script(
            "if value ~= token and value ~= token .. MARK then\n  return 0\nend\nredis.call('DEL', \
             lock_key)\nif value",
            "if not value or value:match('^(.*)%.%d+') ~= token:match('^(.*)%.%d+') then\n  return \
             0\nend\nredis.call('DEL', lock_key)\nif value",
        ),
    ),
    (
        "an own key of an earlier attempt counts as another's, and is never withdrawn",
        Kind::Steady,
        script(
            "if value ~= token and value ~= token .. MARK then\n  return 0\nend\nredis.call('DEL', \
             lock_key)\nif value",
            "if true then return 0 end\nif value",
        ),
    ),
    ("a held lock is taken", Kind::Steady, script("if owner ~= token or", "if false or")),
    (
        "an earlier attempt takes the lock from a later one",
        Kind::Steady,
        script(
            "if owner ~= token or tonumber(owner_attempt) > tonumber(attempt) then",
            "if owner ~= token then",
        ),
    ),
    (
        "an earlier attempt stands in the way of a later one",
        Kind::Steady,
        script("tonumber(owner_attempt) > tonumber(attempt) then", "owner_attempt ~= attempt then"),
    ),
    (
        "a late vote cuts a lease that was extended",
        Kind::Steady,
        script("if value and tonumber(owner_attempt) == tonumber(attempt) then", "if false then"),
    ),
    (
        "a late copy cuts a lease",
        Kind::Steady,
        script(
            "if not is_owner then\n  redis.call('SET', lock_key, token,",
            "if true then\n  redis.call('SET', lock_key, token,",
        ),
    ),
    (
        "a lock is copied without the fence",
        Kind::Steady,
        script(
            "end\nredis.call('SET', fence_key, last, 'PX', FENCE_MS)\nreturn 1",
            "end\nreturn 1",
        ),
    ),
    (
        "a lock is copied to a server that knows a later owner",
        Kind::Steady,
        script(
            "if (value and not is_owner) or (counter and counter > tonumber(last)) then",
            "if value and not is_owner then",
        ),
    ),
    (
        "a mark is lost when a later attempt takes the lock",
        Kind::Steady,
        script("attempt .. (owner_mark or '')", "attempt"),
    ),
    (
        "no message announces a free lock",
        Kind::Steady,
        script("redis.pcall('PUBLISH', channel, 'free ' .. lock_key)", ""),
    ),
    (
        "proposed fences are written though the counter is not below them",
        Kind::Hasty,
        script("if first > (counter or 0) and first", "if first > 0 and first"),
    ),
    (
        "proposed fences are written though the clock is above them",
        Kind::Steady,
        script("and first >= now_us then", "and first > 0 then"),
    ),
    (
        "a vote for the proposed fences writes none",
        Kind::Steady,
        script(
            "redis.call('SET', fence_key, last, 'PX', FENCE_MS)\n    return { 1, tonumber",
            "return { 1, tonumber",
        ),
    ),
    (
        "proposed fences are used that a minority has written",
        Kind::Hasty,
        Change::Quorum(Flaw::AssumesWritten),
    ),
    ("validity counts from the answer", Kind::Steady, Change::Machine(Defect::ValidFromReply)),
    ("a server that forgot votes at once", Kind::Losing, Change::Quorum(Flaw::VotesAtOnce)),
    ("a server votes within a second too early", Kind::Losing, Change::Quorum(Flaw::UptimeIsExact)),
    ("fences are above the clocks alone", Kind::Hasty, Change::Quorum(Flaw::IgnoresCounters)),
    ("fences are above the counters alone", Kind::Losing, Change::Quorum(Flaw::IgnoresClocks)),
    ("a vote that is awaited is left", Kind::Steady, Change::Quorum(Flaw::ForgetsAwaited)),
    ("a quorum withdraws nothing", Kind::Steady, Change::Quorum(Flaw::NothingWithdrawn)),
    ("a lost vote is withdrawn once", Kind::Steady, Change::Quorum(Flaw::WithdrawnOnce)),
    ("a withdrawal overtakes its vote", Kind::Steady, Change::Quorum(Flaw::WithdrawnAhead)),
    ("a lock is copied after a lost majority", Kind::Losing, Change::Quorum(Flaw::CopiesAfterLoss)),
];

#[test]
#[ignore = "takes minutes: npm run test:full runs it"]
fn every_defect_of_a_quorum_is_found() {
    defects::silence_expected_panics();
    let whole = Script::ALL.map(Script::source).concat();
    let mut missed = Vec::new();
    for (defect, kind, change) in DEFECTS {
        if let Change::Script { right, .. } = change {
            assert!(whole.contains(right), "{defect}: no script contains {right:?}");
        }
        defects::set(Some(*change));
        let goes_wrong =
            |seed: &u64| std::panic::catch_unwind(|| Simulation::new(*seed, *kind).run()).is_err();
        let found = (0..SEEDS).find(goes_wrong);
        defects::set(None);
        match found {
            Some(seed) => println!("{defect}: seed {seed}"),
            None => missed.push(defect),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
}
