//! One token's way to a lock: asking, waiting in the queue at the server, being granted.
//!
//! A grant comes in the answer to a request, or by a message from whoever gave the lock up. Messages
//! are hints; an entry in the queue asks again from time to time, which also tells the server
//! that somebody still waits.

use super::context::{Context, in_order};
use super::lease::{HandoffBudget, Owes};
use super::requests::{CallError, Fallback, Finished, Requests};
use super::timers::{Owner, Timer};
use crate::protocol::call::{Call, Intent, Mode};
use crate::protocol::clock::{Mono, ServerTime};
use crate::protocol::error::Refusal;
use crate::protocol::ids::{NodeId, OpId, TokenId};
use crate::protocol::keys::LockKeys;
use crate::protocol::message::Grant;
use crate::protocol::reply::{Held, Reply};
use crate::protocol::token::{TOKEN_PREFIX, Token};
use crate::protocol::validity::{CLAIM, valid_until};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// A queue entry is confirmed at least so often, in ms, with jitter.
const POLL_MS: (u64, u64) = (2_000, 5_000);
/// Old code frees a lock without telling anybody; also the pace of those who get no messages.
const BLIND_POLL_MS: (u64, u64) = (100, 140);
/// Those who are woken at the same time by a quorum ask so far apart: longer than taking a lock lasts.
const WOKEN_MS: (u64, u64) = (0, 10);
/// The first pause of who was refused by a quorum.
const CONTENDED_MS: (u64, u64) = (10, 40);

/// A token that asks for a lock, with or without an entry in the wait queue at the server.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) keys: LockKeys,
    pub(super) beneficiary: Beneficiary,
    pub(super) policy: ContentionPolicy,
    pub(super) mode: Mode,
    /// Why the lock is not its own yet.
    pub(super) pending: Pending,
    pub(super) token: Token,
    /// The one in its token.
    pub(super) label: Box<str>,
    /// The lease that was asked for last: that of whoever is first in the queue here.
    pub(super) ttl: Duration,
    /// The longest that was asked for: the server may have given as much.
    pub(super) longest: Duration,
    /// What is left of its process's budget, if the lock was handed on to it.
    pub(super) budget: Option<HandoffBudget>,
    /// How many fences its grant reserves. Never changes, so that a repeat finds the same fence.
    pub(super) block: u8,
    pub(super) position: Position,
    /// When the caller came for whom it has this position.
    since: Mono,
    /// A message said that it has the lock, but not for how long; on a quorum, that it may be free.
    hinted: bool,
    /// How often it was refused since there was a sign that the lock may be free.
    misses: u32,
    /// A request of this token was lost and may still be executed.
    pub(super) uncertain: bool,
}

/// Whom an entry serves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Beneficiary {
    /// One caller, who does not wait.
    Caller(OpId),
    /// Whoever is first of those who wait for its lock here.
    Queue,
}

/// What an entry does about a lock that somebody else holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ContentionPolicy {
    /// Takes it away, once an answer has told the last fence issued: nobody who came later is robbed.
    Steal(Option<u64>),
    /// Nothing.
    Try,
    /// Enqueues.
    Wait,
}

/// Why an entry has no lock yet.
#[derive(Debug)]
pub(super) enum Pending {
    /// The grant came when its lease was over already.
    Late,
    /// Nothing is known: not asked yet, or no answer.
    Unanswered,
    Held(Held),
    /// No majority of the servers could be reached.
    NoQuorum(Vec<String>),
    Refused(Refusal),
}

/// Where an entry is in the queue at the server, as far as is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum Position {
    Unknown,
    Queued(u64),
    /// The server has forgotten it; it gets its old position again.
    Lost(u64),
}

/// What the server has granted an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) fence: u64,
    /// The end of the lease, by this process's clock.
    pub(super) until: Mono,
    /// The moment from which the lease counts: when it was asked for, or granted by message.
    pub(super) since: Mono,
    pub(super) owes: Option<Owes>,
}

/// What follows from an answer or a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Nothing,
    /// The entry has the lock.
    Granted(Granted),
    /// The grant cannot be used: its token is given back, and another takes its position.
    Discard,
    /// Something is known about the lock: those who have waited only for that are told, and it is asked again.
    Known(Again),
    /// The server refuses for good: everybody whom the entry serves is told.
    Refused,
    /// It asks again now.
    Send,
}

/// When an entry asks again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Again {
    Now,
    /// After a short pause.
    Soon,
    /// When the lock may be free, or to stay in the queue.
    Poll,
}

/// Whether other code holds a lock whose holder is named so.
pub(super) fn is_foreign(holder: &str) -> bool {
    !holder.is_empty() && !holder.starts_with(TOKEN_PREFIX)
}

impl Entry {
    /// Reserves one fence. Nothing was asked for with this token yet.
    pub(super) const fn new(
        keys: LockKeys,
        token: Token,
        ttl: Duration,
        label: Box<str>,
        mode: Mode,
        beneficiary: Beneficiary,
        policy: ContentionPolicy,
    ) -> Self {
        Self {
            keys,
            beneficiary,
            policy,
            mode,
            pending: Pending::Unanswered,
            token,
            label,
            ttl,
            longest: Duration::ZERO,
            budget: None,
            block: 1,
            position: Position::Unknown,
            since: Mono::NEVER,
            hinted: false,
            misses: 0,
            uncertain: false,
        }
    }

    /// Its caller came at `since`, and it is not ahead of those who came earlier: at `seq`, if that is known.
    pub(super) const fn take_position(&mut self, since: Mono, seq: Option<u64>) {
        self.since = since;
        if let Some(seq) = seq {
            self.position = Position::Lost(seq);
        }
    }

    /// Whether its position is that of an earlier caller than one who came at `began`, whose position is `seq`.
    pub(super) fn is_ahead_of(&self, began: Mono, seq: u64) -> bool {
        matches!(self.position, Position::Queued(own) if own < seq) && self.since < began
    }

    pub(super) const fn is_queued(&self) -> bool {
        matches!(self.position, Position::Queued(_))
    }

    /// Whether it takes the lock from those who have it, now that `last` is the last fence issued. If an
    /// answer was lost it may have had the lock already, and who has it since is not robbed.
    fn may_steal(&self, last: u64) -> bool {
        match self.policy {
            ContentionPolicy::Steal(None) => true,
            ContentionPolicy::Steal(Some(seen)) => seen != last && !self.uncertain,
            ContentionPolicy::Try | ContentionPolicy::Wait => false,
        }
    }

    const fn intent(&self) -> Intent {
        match (self.policy, self.position) {
            (ContentionPolicy::Steal(Some(seen)), _) => Intent::Steal(seen),
            (ContentionPolicy::Try, _) => Intent::Try,
            (ContentionPolicy::Wait, Position::Unknown) => Intent::Join(None),
            (ContentionPolicy::Steal(None), _) | (ContentionPolicy::Wait, Position::Queued(_)) => {
                Intent::Poll
            }
            (ContentionPolicy::Wait, Position::Lost(seq)) => Intent::Join(Some(seq)),
        }
    }

    /// The answer took longer than its lease. What was granted is given back with the entry, should this be its end.
    pub(super) fn too_late(&mut self) -> Step {
        self.pending = Pending::Late;
        self.uncertain = true;
        Step::Known(Again::Soon)
    }

    fn refused(&mut self, refusal: Refusal) -> Step {
        // An entry in the queue needs no more of the server than to stay there.
        let transient = refusal.is_transient() || (self.is_queued() && refusal.is_shortage());
        self.pending = Pending::Refused(refusal);
        if transient { Step::Known(Again::Soon) } else { Step::Refused }
    }

    fn held(&mut self, held: Held, quorum: bool) -> Step {
        self.position = match (self.position, held.queued) {
            (_, Some(place)) => Position::Queued(place.seq),
            (Position::Queued(seq) | Position::Lost(seq), None) => Position::Lost(seq),
            (Position::Unknown, None) => Position::Unknown,
        };
        self.misses = if self.hinted { 0 } else { self.misses + 1 };
        let hinted = self.hinted && !quorum;
        let last = held.last;
        self.pending = Pending::Held(held);
        if self.may_steal(last) {
            self.policy = ContentionPolicy::Steal(Some(last));
            return Step::Send;
        }
        let now = hinted || matches!(self.position, Position::Lost(_));
        Step::Known(if now { Again::Now } else { Again::Poll })
    }
}

#[derive(Debug, Default)]
pub(super) struct Entries(FxHashMap<TokenId, Entry>);

impl Entries {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn ids(&self) -> Vec<TokenId> {
        in_order(&self.0)
    }

    pub(super) fn get(&self, id: TokenId) -> Option<&Entry> {
        self.0.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: TokenId) -> Option<&mut Entry> {
        self.0.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: TokenId, entry: Entry) {
        self.0.insert(id, entry);
    }

    /// Ends an entry, and says whether a request of it is not answered yet.
    pub(super) fn remove(&mut self, rq: &mut Requests, id: TokenId) -> Option<(Entry, bool)> {
        let entry = self.0.remove(&id)?;
        Some((entry, rq.forget(Owner::Entry(id))))
    }

    /// Asks for the lock, unless that was asked and is not answered. `wanted`: the lease of the caller who is served
    /// next, if there is one.
    pub(super) fn send(&mut self, rq: &mut Requests, id: TokenId, wanted: Option<Duration>) {
        let owner = Owner::Entry(id);
        let Some(entry) = self.0.get_mut(&id).filter(|_| !rq.is_open(owner)) else { return };
        entry.ttl = wanted.unwrap_or(entry.ttl);
        entry.longest = entry.longest.max(entry.ttl);
        entry.hinted = false;
        let call = Call::Acquire {
            keys: entry.keys.clone(),
            token: entry.token.clone(),
            ttl: entry.ttl,
            epoch: ServerTime::default(),
            block: entry.block,
            inbox: rq.servers.inbox(&rq.cx, &entry.keys),
            intent: entry.intent(),
            mode: entry.mode,
        };
        // While its slot moves, a poll is refused until all keys have arrived: so that this takes no entry from its
        // position, the server is told that its owner lives.
        let fallback = if entry.is_queued() { Fallback::KeepEntry } else { Fallback::None };
        rq.send(owner, call, fallback);
    }

    /// A request was answered, or never will be.
    pub(super) fn answered(&mut self, rq: &mut Requests, id: TokenId, finished: Finished) -> Step {
        let Some(entry) = self.0.get_mut(&id) else { return Step::Nothing };
        let owner = Owner::Entry(id);
        match finished.reply {
            Ok(Reply::Granted { fence }) => {
                let until = valid_until(finished.sent, entry.ttl);
                if rq.servers.get(finished.node).data.is_outdated(fence) {
                    return Step::Discard;
                }
                if until <= rq.cx.now {
                    return entry.too_late();
                }
                Step::Granted(Granted { fence, until, since: finished.sent, owes: None })
            }
            Ok(Reply::Held(held)) => entry.held(held, rq.cx.config.quorum),
            // The fallback has kept the entry in the queue.
            Ok(Reply::Owner(_)) => {
                let at = rq.cx.now + rq.cx.jitter(BLIND_POLL_MS);
                rq.retry_at(owner, at);
                Step::Nothing
            }
            Ok(_) => {
                debug_assert!(false, "not a reply of acquire");
                Step::Nothing
            }
            Err(CallError::NoQuorum(causes)) => {
                entry.pending = Pending::NoQuorum(causes);
                Step::Known(Again::Soon)
            }
            Err(CallError::Refused(refusal)) => entry.refused(refusal),
            Err(error) => {
                match error {
                    // The same token asks again once connected: if it was granted, it still is.
                    CallError::Lost(_) => {
                        // Who has only looked may have got nothing.
                        entry.uncertain |= entry.policy != ContentionPolicy::Steal(None);
                        entry.pending = Pending::Unanswered;
                    }
                    CallError::Halfway(_) => entry.uncertain = true,
                    _ => {}
                }
                // Where its slot moves to, nobody asks again once connected.
                rq.retry(owner);
                Step::Nothing
            }
        }
    }

    /// A message says that an entry has the lock.
    pub(super) fn granted_by_message(
        &mut self,
        rq: &mut Requests,
        id: TokenId,
        node: NodeId,
        grant: &Grant,
    ) -> Step {
        let (now, data) = (rq.cx.now, &rq.servers.get(node).data);
        let Some(entry) = self.0.get_mut(&id) else { return Step::Nothing };
        if data.is_outdated(grant.fence) {
            return Step::Discard;
        }
        // A forged fence from the future would be above those of all later owners. Only the server's word counts then,
        // and so does its word that was given later: it has forgotten the grant since.
        let denied = data.is_from_the_future(now, grant.fence)
            || matches!(&entry.pending, Pending::Held(held) if held.time > grant.time);
        let since = data.local_time(now, grant.time).map(|since| since.min(now));
        match since.filter(|_| !denied).map(|since| (since, valid_until(since, grant.claim))) {
            Some((since, until)) if now < until => {
                rq.cx.stats.hand_off(now.since(since));
                Step::Granted(Granted { fence: grant.fence, until, since, owes: Some(Owes::Claim) })
            }
            _ => {
                // How much of the claim is left cannot be told: its answer will.
                entry.hinted = true;
                Step::Send
            }
        }
    }

    /// Lets an entry ask again when the lock may be free, or to stay in the queue.
    pub(super) fn poll_later(&self, rq: &mut Requests, id: TokenId) {
        if let Some(entry) = self.get(id) {
            let denied = rq.servers.of(&entry.keys).connection.pubsub_denied;
            let pause = poll_pause(&mut rq.cx, entry, denied);
            rq.retry_at(Owner::Entry(id), rq.cx.now + pause);
        }
    }

    /// A lock of a quorum may be free: an entry that waits for it asks soon.
    pub(super) fn ask_soon(&mut self, rq: &mut Requests, id: TokenId) {
        let at = rq.cx.now + rq.cx.jitter(WOKEN_MS);
        let Some(entry) = self.0.get_mut(&id) else { return };
        entry.misses = 0;
        let owner = Owner::Entry(id);
        if rq.is_open(owner) {
            entry.hinted = true;
        } else if rq.cx.timers.at(Timer::Retry(owner)).is_none_or(|planned| planned > at) {
            rq.retry_at(owner, at);
        }
    }

    #[cfg(all(test, feature = "driver"))]
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.0.values_mut()
    }
}

/// How long until an entry asks again: when the holder's lease ends, and every few seconds to stay in the queue.
fn poll_pause(cx: &mut Context, entry: &Entry, pubsub_denied: bool) -> Duration {
    let heartbeat = cx.jitter(POLL_MS);
    let (blind, behind) = (cx.jitter(BLIND_POLL_MS), cx.jitter((50, 200)));
    let Pending::Held(held) = &entry.pending else { return heartbeat };
    if cx.config.quorum {
        let foreign = !held.holder.starts_with(TOKEN_PREFIX);
        return quorum_pause(cx, entry.misses, held.remaining, foreign || pubsub_denied);
    }
    if is_foreign(&held.holder) {
        return blind;
    }
    let claim = CLAIM.min(entry.ttl);
    let position = held.queued.map_or(1, |queued| queued.position);
    let after_expiry = if position <= 1 { Duration::from_millis(5) } else { behind };
    let expiry = held.remaining.map_or(heartbeat, |remaining| remaining + after_expiry);
    let mut pause = heartbeat.min(expiry);
    if position <= 2 {
        // It may be granted, and the message be lost, at any moment.
        pause = pause.min(claim);
    }
    if pubsub_denied {
        pause = pause.min(claim / 3).min(blind);
    }
    pause
}

/// When to ask a quorum again: there is no queue, so random pauses keep those who want the
/// lock apart. They grow while it stays held, for a message tells when it may be free.
fn quorum_pause(
    cx: &mut Context,
    misses: u32,
    remaining: Option<Duration>,
    untold: bool,
) -> Duration {
    if misses == 0 {
        return cx.jitter(WOKEN_MS);
    }
    let (least_ms, most_ms) = CONTENDED_MS;
    let doublings = misses.min(if untold { 2 } else { 5 }) - 1;
    let pause = cx.jitter((least_ms << doublings, most_ms << doublings));
    let apart = cx.jitter(WOKEN_MS);
    remaining.map_or(pause, |remaining| pause.min(remaining + apart))
}
