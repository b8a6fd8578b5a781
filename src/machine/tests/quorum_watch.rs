//! Judges the calls of a quorum's servers: the rules of `docs/protocol.md`, implemented a second time and
//! without the scripts.

use super::server::Server;
use super::snapshot::bare;
use super::world::World;
use crate::machine::RequestId;
use crate::protocol::{Call, Failure, Mono, Reply, Script, ServerTime};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a fence is kept after its write.
const FENCE_KEPT: Duration = Duration::from_secs(86_400);

#[test]
fn the_scripts_keep_a_fence_for_the_same_time() {
    let source = format!("local FENCE_MS = {}\n", FENCE_KEPT.as_millis());
    assert!(Script::WriteFence.source().contains(&source), "the script keeps a fence for as long");
}

/// A server's data about the lock.
#[derive(Debug)]
pub(super) struct Seen {
    /// The lock's value, with the has-waiters flag.
    value: Option<String>,
    remaining: Duration,
    fence: Option<u64>,
    fence_remaining: Duration,
}

impl Seen {
    pub(super) fn on(server: &Server, now: Mono) -> Self {
        let keys = World::keys();
        let remaining = |key: &str| {
            let ms = server.command(now, &["PTTL", key]).and_then(|ms| ms.parse().ok());
            Duration::from_millis(ms.unwrap_or(0))
        };
        Self {
            value: server.command(now, &["GET", keys.lock()]),
            remaining: remaining(keys.lock()),
            fence: server.own_fence(now, &keys),
            fence_remaining: remaining(&keys.fence()),
        }
    }

    fn owner(&self) -> Option<&str> {
        self.value.as_deref().map(bare)
    }

    /// Whether a waiter wants a message when the lock is free.
    pub(super) fn is_marked(&self) -> bool {
        self.value.as_deref().is_some_and(|value| bare(value) != value)
    }
}

/// The value of a call: a token with its attempt.
fn attempt_of(call: &Call) -> String {
    match call {
        Call::Vote { token, attempt, .. } => format!("{token}.{attempt}"),
        call => call.token().as_str().to_owned(),
    }
}

/// The token of a value, and its attempt's number.
pub(super) fn parts(value: &str) -> Option<(&str, u64)> {
    let (token, attempt) = value.rsplit_once('.')?;
    Some((token, attempt.parse().ok()?))
}

/// The rule that an executed call has broken.
pub(super) fn judge(
    call: &Call,
    time: ServerTime,
    reply: &Result<Reply, Failure>,
    before: &Seen,
    after: &Seen,
) -> Option<&'static str> {
    let caller = attempt_of(call);
    let judgements = [
        judge_owner(call, &caller, before, after),
        judge_lease(call, &caller, before, after),
        judge_mark(call, &caller, before, after),
        judge_fence(call, time, &caller, before, after),
        judge_reply(call, &caller, reply, before, after),
    ];
    judgements.into_iter().find_map(Result::err)
}

fn rule(right: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if right { Ok(()) } else { Err(otherwise) }
}

/// Only its owner changes the ownership of the lock, and an owner is one attempt.
fn judge_owner(call: &Call, caller: &str, before: &Seen, after: &Seen) -> Result<(), &'static str> {
    let (was, is) = (before.owner(), after.owner());
    let takes = is == Some(caller)
        && match (call, was) {
            (Call::Vote { .. } | Call::CopyLock { .. }, None) => true,
            (Call::Vote { .. }, Some(was)) => match (parts(was), parts(caller)) {
                (Some((own, earlier)), Some((token, attempt))) => own == token && earlier < attempt,
                _ => false,
            },
            _ => false,
        };
    let frees = matches!(call, Call::Withdraw { .. }) && was == Some(caller) && is.is_none();
    rule(was == is || takes || frees, "a lock was changed by another")
}

/// The lease of an attempt never gets shorter, and only its owner extends it.
fn judge_lease(call: &Call, caller: &str, before: &Seen, after: &Seen) -> Result<(), &'static str> {
    if after.owner().is_none() {
        return Ok(());
    }
    let ttl = match call {
        Call::Vote { ttl, .. } | Call::Extend { ttl, .. } | Call::CopyLock { ttl, .. } => *ttl,
        _ => Duration::ZERO,
    };
    if before.owner() != after.owner() {
        return rule(after.remaining == ttl, "a lease is not as long as was asked for");
    }
    rule(after.remaining >= before.remaining, "a lease was cut")?;
    let own = after.owner() == Some(caller);
    let kept = after.remaining == before.remaining;
    rule(kept || (own && after.remaining == ttl), "a lease was lengthened by another")
}

/// Waiters get a message when the lock that was refused to them ends.
fn judge_mark(call: &Call, caller: &str, before: &Seen, after: &Seen) -> Result<(), &'static str> {
    let lost = before.is_marked() && after.value.is_some() && !after.is_marked();
    rule(!lost, "a mark was lost")?;
    let refused = matches!(call, Call::Vote { mark: true, .. }) && after.owner() != Some(caller);
    rule(!refused || after.is_marked(), "whoever was refused will not be told")?;
    rule(
        before.is_marked() || !after.is_marked() || refused,
        "a lock that nobody waits for is marked",
    )
}

/// Only the owner writes a fence, with its lock, and fences only rise.
fn judge_fence(
    call: &Call,
    time: ServerTime,
    caller: &str,
    before: &Seen,
    after: &Seen,
) -> Result<(), &'static str> {
    rule(after.fence >= before.fence, "a fence fell")?;
    let own = after.owner() == Some(caller);
    let takes = own && before.owner() != Some(caller);
    let due = match call {
        Call::Vote { fences: (first, last), .. }
            if takes && before.fence.unwrap_or(0) < *first && *first >= time.as_micros() =>
        {
            Some(*last)
        }
        Call::WriteFence { first, last, .. } if own && before.fence < Some(*first) => Some(*last),
        Call::CopyLock { last, .. } if own && before.fence <= Some(*last) => Some(*last),
        _ => None,
    };
    match due {
        Some(last) => {
            rule(after.fence == Some(last), "the lock is here without its fence")?;
            rule(after.fence_remaining == FENCE_KEPT, "a fence is forgotten too early or too late")
        }
        None => rule(after.fence == before.fence, "a fence was written that is not due"),
    }
}

/// The reply is true.
fn judge_reply(
    call: &Call,
    caller: &str,
    reply: &Result<Reply, Failure>,
    before: &Seen,
    after: &Seen,
) -> Result<(), &'static str> {
    let own = after.owner() == Some(caller);
    let lasts = |ttl: &Duration| own && after.remaining >= *ttl;
    let right = match (call, reply) {
        (Call::Vote { ttl, fences: (_, last), .. }, Ok(Reply::Voted { counter, written, .. })) => {
            let is_written = before.fence != after.fence && after.fence == Some(*last);
            lasts(ttl) && *counter == after.fence.unwrap_or(0) && *written == is_written
        }
        (Call::Vote { .. }, Ok(Reply::Held(held))) => {
            let earlier = match (before.owner().and_then(parts), parts(caller)) {
                (Some((owner, earlier)), Some((token, attempt))) => {
                    owner == token && earlier <= attempt
                }
                _ => false,
            };
            !earlier && Some(held.holder.as_str()) == after.owner()
        }
        (Call::Extend { ttl, .. }, Ok(Reply::Owner(yes))) => *yes == own && (!yes || lasts(ttl)),
        (Call::CopyLock { ttl, last, .. }, Ok(Reply::Owner(yes))) => {
            *yes == (own && before.fence <= Some(*last)) && (!yes || lasts(ttl))
        }
        (Call::WriteFence { first, .. }, Ok(Reply::Owner(yes))) => {
            *yes == (own && before.fence < Some(*first))
        }
        (Call::Withdraw { .. }, Ok(Reply::Owner(yes))) => {
            *yes == (before.owner() == Some(caller)) && (!yes || after.value.is_none())
        }
        _ => false,
    };
    rule(right, "an answer that is not so")
}

/// The replies to a process's extensions: only a lock on a majority may be copied to other servers.
#[derive(Default)]
pub(super) struct Extensions {
    /// By request: the token, and the time of sending.
    asked: BTreeMap<RequestId, Round>,
    /// The round of an extension that is repeated now.
    pub(super) repeated: Option<Round>,
    yes: BTreeMap<Round, BTreeSet<usize>>,
    denied: BTreeMap<Round, BTreeSet<usize>>,
    /// Servers that denied the token in a round, and got no copy for that.
    no: Vec<(usize, Round)>,
}

type Round = (String, Mono);

impl Extensions {
    pub(super) fn asked(&mut self, now: Mono, request: RequestId, call: &Call) {
        if let Call::Extend { token, .. } = call {
            let round = self.repeated.take().filter(|(repeated, _)| repeated == token.as_str());
            self.asked.insert(request, round.unwrap_or_else(|| (token.as_str().to_owned(), now)));
        }
    }

    /// It was not executed, and is repeated at once if it is still needed.
    pub(super) fn refused(&mut self, request: RequestId) {
        self.repeated = self.asked.remove(&request);
    }

    pub(super) fn answered(&mut self, node: usize, request: RequestId, carries: bool) {
        let Some(round) = self.asked.remove(&request) else { return };
        if carries {
            self.yes.entry(round).or_default().insert(node);
        } else {
            self.denied.entry(round.clone()).or_default().insert(node);
            self.no.push((node, round));
        }
    }

    /// Whether so many servers have denied the token in one round that there is no majority.
    pub(super) fn is_denied(&self, token: &str, servers: usize) -> bool {
        let of_token = |round: &Round| parts(&round.0).is_some_and(|(owner, _)| owner == token);
        let mut rounds = self.denied.iter().filter(|(round, _)| of_token(round));
        rounds.any(|(_, no)| no.len() * 2 >= servers)
    }

    /// Copies the lock to a server. Checks that it denied the token in a round in which a majority had it.
    pub(super) fn may_copy(&mut self, node: usize, token: &str, majority: usize) -> bool {
        let won = |round: &Round| {
            round.0 == token && self.yes.get(round).is_some_and(|yes| yes.len() >= majority)
        };
        let missed = self.no.iter().position(|(lacking, round)| *lacking == node && won(round));
        missed.map(|missed| self.no.swap_remove(missed)).is_some()
    }
}
